"""Targets of `graphcal.tables`: predictions in every layout and format, as any engine writes them, with labels, edges and splits.

What is read is in a folder: `predictions.*`, perhaps `labels.*` and `edges.*`, and `how.json`, the options of `read_table`.
"""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import fuzz_inputs as inputs
import numpy as np
from fuzz_targets import Target, broken_column, broken_tensor, write_npz

ROWS = 12
FORMATS = ("parquet", "parquet", "csv", "tsv", "arrow", "arrow-stream", "npz", "pt")


def probabilities() -> np.ndarray:
    k = np.arange(ROWS)
    probs = np.full((ROWS, 3), 0.2)
    probs[k, k % 3] = 0.6
    return probs


def columns_of(layout: str) -> dict[str, Any]:
    """A sound table of predictions."""
    probs, k = probabilities(), np.arange(ROWS)
    ids = {"id": np.array([f"n{i}" for i in k]), "label": k % 3, "split": np.array(["train", "val", "test"])[k % 3]}
    if layout == "wide":
        return {**ids, **{f"prob_{c}": probs[:, c] for c in range(3)}}
    if layout == "named":
        return {
            **ids,
            "label": np.array(["a", "b", "c"])[k % 3],
            **{f"{c}_PROB": probs[:, i] for i, c in enumerate("abc")},
        }
    if layout == "list":
        return {**ids, "logits": [list(map(float, row)) for row in np.log(probs)]}
    if layout == "long":
        rows = {"id": np.repeat(ids["id"], 3), "class": np.tile(["a", "b", "c"], ROWS), "prob": probs.reshape(-1)}
        return {**rows, "label": np.repeat(np.array(["a", "b", "c"])[k % 3], 3)}
    if layout == "top-label":
        return {**ids, "prediction": k % 3, "confidence": probs.max(1)}
    if layout == "graphstorm":
        return {"pred": [list(map(float, row)) for row in probs], "nid": ids["id"]}
    if layout == "neo4j":
        return {
            "nodeId": k,
            "predictedClass": k % 3,
            "predictedProbabilities": [list(map(float, row)) for row in probs],
        }
    if layout == "kumo":
        return {"ENTITY": k, **{f"{c}_PROB": probs[:, i] for i, c in enumerate("abc")}}
    return {"id": k, "label": k % 2, "logit": probs[:, 0]}  # binary


LAYOUTS = ("wide", "named", "list", "long", "top-label", "graphstorm", "neo4j", "kumo", "binary")


def tables(folder: Path, rng: random.Random) -> None:
    layout = rng.choice(LAYOUTS)
    columns, how = columns_of(layout), {}
    if layout in ("graphstorm", "neo4j", "kumo"):
        how = {"source": layout, **({"classes": "0,1,2"} if layout == "neo4j" else {})}
    if rng.random() < 0.3 and "label" not in columns:
        key = next(name for name in ("nid", "nodeId", "ENTITY") if name in columns)
        labels = {
            "id": columns[key],
            "label": np.arange(ROWS) % 3,
            "split": np.array(["val", "test"])[np.arange(ROWS) % 2],
        }
        write(folder, "labels", labels, rng.choice(("parquet", "csv")), rng, rng.random() < 0.7)
        how |= {"labels": "labels"}
    if rng.random() < 0.1:
        options = (
            {"kind": "probs"},
            {"layout": "list"},
            {"classes": "a,b,c"},
            {"columns": {"id": "id"}},
        )
        how |= rng.choice(options)
    write(folder, "predictions", columns, rng.choice(FORMATS), rng, rng.random() < 0.9)
    (folder / "how.json").write_text(json.dumps(how))


def write(folder: Path, stem: str, columns: dict[str, Any], form: str, rng: random.Random, broken: bool) -> None:
    columns = dict(columns)
    for _ in range(rng.choice((0, 1, 1, 2)) if broken else 0):
        change_columns(columns, rng)
    suffix = {"arrow-stream": "arrow"}.get(form, form)
    path = folder / f"{stem}.{suffix}"
    if form == "npz":
        write_npz(path, {name: np.asarray(_plain(column)) for name, column in columns.items()}, rng)
        return
    try:
        content = {"csv": csv, "tsv": csv, "pt": pt}.get(form, binary)(columns, form, rng, broken)
    except Exception:  # a library cannot write it: then as it was, in another format
        path, content = folder / f"{stem}.csv", csv(columns, "csv", rng, broken)
    if broken and rng.random() < 0.4:
        pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little") if form == "parquet" else 0
        kept = pages if rng.random() < 0.5 else 0  # broken in its footer alone, or anywhere
        content = content[:kept] + inputs.broken_bytes(content[kept:], rng)
    path.write_bytes(content)


def _plain(column: Any) -> Any:
    try:
        array = np.asarray(column)
    except ValueError:
        array = np.zeros(len(column))
    return array if array.dtype != object else np.zeros(len(column))


def change_columns(columns: dict[str, Any], rng: random.Random) -> None:
    name, kind = rng.choice(list(columns)), rng.randrange(8)
    if kind == 0 and len(columns) > 1:
        del columns[name]
    elif kind == 1:
        columns[inputs.any_word(rng)] = columns.pop(name)
    elif kind == 2:
        columns[
            rng.choice(("prob_300000000", "logit_-1", "calibrated_prob_0", "probs", "prob", "split", "class", "prob_٣"))
        ] = columns[name]
    elif kind == 3 and isinstance(columns[name], np.ndarray):
        texts = [inputs.any_word(rng) if rng.random() < 0.2 else str(value) for value in columns[name]]
        columns[name] = np.array(texts)
    else:
        columns[name] = broken_column(columns[name], rng)


def csv(columns: dict[str, Any], form: str, rng: random.Random, broken: bool) -> bytes:
    mark = "\t" if form == "tsv" else ","
    rows = [
        [";".join(map(str, value)) if isinstance(value, list) else str(value) for value in column]
        for column in columns.values()
    ]
    text = "\n".join(mark.join(row) for row in (list(map(str, columns)), *map(list, zip(*rows)))) + "\n"
    text = inputs.broken_text(text, rng) if broken and rng.random() < 0.5 else text
    return text.encode(rng.choice(("utf-8",) * 8 + ("utf-16", "utf-8-sig")), "replace")


def binary(columns: dict[str, Any], form: str, rng: random.Random, broken: bool) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, file = pa.table(columns), io.BytesIO()
    if rng.random() < 0.2:
        table = pa.table(
            {
                name: column.dictionary_encode() if pa.types.is_string(column.type) else column
                for name, column in zip(table.column_names, table.columns)
            }
        )
    if form == "parquet":
        encoding = rng.choice((None, None, "DELTA_BYTE_ARRAY"))  # of texts
        texts = {name: encoding for name in table.column_names if pa.types.is_string(table.schema.field(name).type)}
        pq.write_table(
            table,
            file,
            compression=rng.choice(("none", "snappy", "zstd")),
            row_group_size=rng.choice((5, 100)),
            use_dictionary=encoding is None,
            column_encoding=texts if encoding else None,
        )
    else:
        options = pa.ipc.IpcWriteOptions(compression=rng.choice((None, None, "zstd")))
        with (pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream)(file, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=rng.choice((5, 100)))
    return file.getvalue()


def pt(columns: dict[str, Any], form: str, rng: random.Random, broken: bool) -> bytes:
    import torch

    tensors: Any = {
        name: torch.tensor(np.asarray(c)) for name, c in columns.items() if np.asarray(c).dtype.kind in "fiub"
    }
    if broken and tensors and rng.random() < 0.7:
        name = rng.choice(list(tensors))
        tensors[name] = broken_tensor(tensors[name], rng)
    file = io.BytesIO()
    torch.save(
        rng.choice((tensors, tensors, *tensors.values())), file, _use_new_zipfile_serialization=rng.random() < 0.9
    )
    return file.getvalue()


def read_tables(folder: Path) -> Any:
    from graphcal.tables.reading import read_table

    how = json.loads((folder / "how.json").read_text())
    if "labels" in how:
        how["labels"] = next(folder.glob("labels.*"))
    table = read_table(next(folder.glob("predictions.*")), **how)
    assert table.log_probs.shape == (table.num_rows, table.num_classes)
    assert not table.log_probs.isnan().any(), "NaN was read as a score"
    return table.labels if table.y is not None else None


def edges(folder: Path, rng: random.Random) -> None:
    k = np.arange(20)
    names = np.array([f"n{i % ROWS}" for i in k])
    write(folder, "edges", {"src": names, "dst": names[(k * 5) % 20]}, rng.choice(FORMATS), rng, True)


def read_edge_file(folder: Path) -> Any:
    import pyarrow as pa

    from graphcal.tables.edges import read_edges

    return read_edges(next(folder.glob("edges.*")), pa.array([f"n{k}" for k in range(ROWS)]))


def table_targets() -> dict[str, Target]:
    return {"tables": Target(tables, read_tables), "edges": Target(edges, read_edge_file)}
