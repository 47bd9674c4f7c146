"""Prediction files of other engines, as they write them.

    graphstorm   <ntype>/pred.predict-00000_00000.parquet, also predict-00000_00000.parquet and .csv: `pred` (list), `nid`;
                 raw <ntype>/predict-00000.pt with predict_nids-00000.pt, ids mapped by raw_id_mappings/<ntype>/part-*.parquet
                 of edges <src>_<rel>_<dst>/..., `pred`, `src_nid`, `dst_nid`: a row's id is the pair
    gigl         `node_id` with `emb`, the logits of its node classification; `pred` is an arg-max and is refused
    neo4j        `nodeId`, `predictedClass`, `predictedProbabilities` in the order of the model's classes: needs --classes
    kumo         `ENTITY`, `CLASS`, `SCORE` (long); `ENTITY` with <class>_PROB, or with `SCORE` (binary)

What an engine writes without a confidence cannot be calibrated: it is refused, with the setting that writes one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from graphcal.files import file_errors
from graphcal.tables.files import (
    BATCH,
    holds_text,
    is_list,
    partition_columns,
    read_batches,
    read_table_file,
    read_tables,
    shards_of,
)

GRAPHSTORM_TABLE = re.compile(r"(pred\.)?predict-\d+_\d+\.(parquet|csv)")
GRAPHSTORM_TENSOR = re.compile(r"predict-\d+\.pt")
GRAPHSTORM_IDS = re.compile(r"(predict_)?nids-\d+\.pt")


@dataclass(frozen=True)
class Source:
    """The shards of a table of predictions, with the columns that the engine writes."""

    shards: tuple[Path, ...]
    kind: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[Path, Path] = field(default_factory=dict)  # shard of scores -> file of its ids
    id_map: Path | None = None  # folder that says which id an internal number stands for
    notes: tuple[str, ...] = ()
    check: Callable[[pa.Schema, Path, bool], None] | None = None  # refuses what cannot be calibrated
    folders: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)  # columns of Hive partitions, by shard

    def files_of(self, shard: Path) -> list[Path]:
        """List the files that the rows of a shard come from: itself, and those of its ids."""
        if shard not in self.ids:
            return [shard]
        return [shard, self.ids[shard], *(shards_of(self.id_map) if self.id_map else ())]

    def read(self, shard: Path) -> pa.Table:
        table = pa.Table.from_batches(list(self.batches(shard))) if self.ids else read_table_file(shard)
        for name, value in self.folders.get(shard, {}).items():
            if name not in table.column_names:
                table = table.append_column(name, pa.array([value] * table.num_rows, pa.string()))
        return table

    def batches(self, shard: Path, row_groups: range | None = None, size: int = BATCH) -> Iterator[pa.RecordBatch]:
        if shard not in self.ids:
            yield from read_batches(shard, row_groups, size)
            return
        scores, ids = read_table_file(shard), read_table_file(self.ids[shard])["scores"]
        if len(ids) != len(scores):
            raise ValueError(f"{self.ids[shard]}: {len(ids)} ids for the {len(scores)} rows of {shard}")
        if self.id_map is not None:
            ids = original_ids(ids, self.id_map)
        yield from scores.append_column("nid", ids).combine_chunks().to_batches(max_chunksize=size)


def source_of(path: str | Path, name: str | None = None) -> Source:
    """Return the files at ``path`` as the engine ``name`` writes them; any table of predictions without a name."""
    if name is None:
        shards = tuple(shards_of(path))
        return Source(shards, folders={shard: partition_columns(shard, Path(path)) for shard in shards})
    if name not in SOURCES:
        raise ValueError(f"--from {name!r} is not known; choose one of {', '.join(SOURCES)}")
    return SOURCES[name](Path(path))


def graphstorm(path: Path) -> Source:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    tables = [file for file in files if GRAPHSTORM_TABLE.fullmatch(file.name)]
    tensors = [file for file in files if GRAPHSTORM_TENSOR.fullmatch(file.name)]
    files_read = tables or tensors
    if not files_read:
        hint = (
            "embeddings alone cannot be calibrated: run inference with save_prediction_path"
            if any(file.name.startswith("embed") for file in files)
            else "expected <ntype>/pred.predict-00000_00000.parquet or predict-00000.pt, as save_prediction_path writes them"
        )
        raise ValueError(f"{path}: no predictions of GraphStorm; {hint}")
    folders = sorted({file.parent for file in files_read})
    if len(folders) > 1:
        names = ", ".join(str(folder.relative_to(path)) for folder in folders)
        raise ValueError(
            f"{path} holds predictions of several types or tasks ({names}); give one of these folders as PREDICTIONS"
        )
    columns = {"scores": "pred", "id": "nid"}
    if tables:
        return Source(tuple(tables), "probs", columns, check=_graphstorm_check)
    return _graphstorm_raw(path, tensors)


def _graphstorm_raw(path: Path, tensors: list[Path]) -> Source:
    folder = tensors[0].parent
    ids = sorted(file for file in folder.iterdir() if GRAPHSTORM_IDS.fullmatch(file.name))
    if not ids and any(file.name.startswith("src_nids-") for file in folder.iterdir()):
        raise ValueError(
            f"{folder}: raw predictions of edges, both ends in GraphStorm's own numbers; let it map them back (the default of "
            "its command line, or gs_remap) and give the Parquet files, which hold src_nid and dst_nid"
        )
    if len(ids) != len(tensors):
        raise ValueError(f"{folder}: {len(tensors)} predict-*.pt, but {len(ids)} predict_nids-*.pt beside them")
    for info in (folder / "result_info.json", folder.parent / "result_info.json"):
        if info.is_file():
            with file_errors(info):
                written = json.loads(info.read_text(encoding="utf-8")).get("world_size", len(tensors))
            if written != len(tensors):
                raise ValueError(
                    f"{info}: {written} workers wrote predictions, but {len(tensors)} predict-*.pt are here"
                )
    maps = [parent / "raw_id_mappings" / folder.name for parent in (path, folder, *folder.parents[:3])]
    id_map = next((candidate for candidate in maps if candidate.is_dir()), None)
    note = () if id_map else (f"no raw_id_mappings/{folder.name} near {path}: the ids are GraphStorm's own numbers",)
    columns = {"scores": "scores", "id": "nid"}
    return Source(tuple(tensors), "probs", columns, dict(zip(tensors, ids)), id_map, note, _graphstorm_check)


def _graphstorm_check(schema: pa.Schema, path: Path, classes: bool) -> None:
    name = next((n for n in ("pred", "scores") if n in schema.names), None)
    if name is not None and not is_list(schema.field(name).type) and not holds_text(schema.field(name).type):
        raise ValueError(
            f"{path}: {name!r} is one number per node, a class without its confidence, which cannot be calibrated; run inference "
            "with return_proba: true"
        )


def original_ids(numbers: pa.ChunkedArray, folder: Path) -> pa.ChunkedArray:
    """Look up the ids that GraphStorm's numbers stand for."""
    table = read_tables(folder)
    new, orig = ("new", "orig") if "new" in table.column_names else ("node_int_id", "node_str_id")
    if not {new, orig} <= set(table.column_names):
        raise ValueError(f"{folder}: expected columns 'orig' and 'new', found {', '.join(table.column_names)}")
    rows = pc.index_in(numbers.cast(pa.int64()), value_set=table[new].cast(pa.int64()).combine_chunks())
    if rows.null_count:
        raise ValueError(f"{folder}: {rows.null_count} of {len(rows)} node numbers are not in the id mapping")
    return table[orig].take(rows)


def gigl(path: Path) -> Source:
    return Source(tuple(shards_of(path)), "logits", {"id": "node_id", "scores": "emb"}, check=_gigl_check)


def _gigl_check(schema: pa.Schema, path: Path, classes: bool) -> None:
    if "emb" not in schema.names:
        raise ValueError(
            f"{path}: GiGL's predictions are the winning class without its confidence, which cannot be calibrated; give its "
            "embeddings table (node_id, emb): for node classification emb holds the logits"
        )


def neo4j(path: Path) -> Source:
    columns = {"id": "nodeId", "prediction": "predictedClass", "scores": "predictedProbabilities"}
    return Source(tuple(shards_of(path)), "probs", columns, check=_neo4j_check)


def _neo4j_check(schema: pa.Schema, path: Path, classes: bool) -> None:
    if "predictedProbabilities" not in schema.names:
        raise ValueError(
            f"{path}: no column 'predictedProbabilities', and a class without its confidence cannot be calibrated; predict with "
            "includePredictedProbabilities: true"
        )
    if not classes:
        raise ValueError(
            f"{path}: predictedProbabilities has the order of the model's classes, which need not be 0, 1, 2, ...: say it with "
            "--classes (in Python, model.classes() of the Graph Data Science client)"
        )


def kumo(path: Path) -> Source:
    return Source(tuple(shards_of(path)), "probs", {"id": "ENTITY", "class": "CLASS"}, check=_kumo_check)


def _kumo_check(schema: pa.Schema, path: Path, classes: bool) -> None:
    if not any(name == "SCORE" or name.upper().endswith("_PROB") for name in schema.names):
        raise ValueError(
            f"{path}: no SCORE and no <class>_PROB, so no confidence; the columns are {', '.join(schema.names)}"
        )


SOURCES: dict[str, Callable[[Path], Source]] = {
    "graphstorm": graphstorm,
    "gigl": gigl,
    "neo4j": neo4j,
    "kumo": kumo,
}
