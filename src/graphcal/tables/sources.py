"""Prediction files of other engines, as they write them.

    graphstorm   <ntype>/pred.predict-00000_00000.parquet, also predict-00000_00000.parquet and .csv: `pred` (list), `nid`;
                 of edges <src>_<rel>_<dst>/..., `pred`, `src_nid`, `dst_nid`: a row's id is the pair
    gigl         `node_id` with `emb`, the logits of its node classification; `pred` is an arg-max and is refused
    neo4j        `nodeId`, `predictedClass`, `predictedProbabilities` in the order of the model's classes: needs --classes
    kumo         `ENTITY`, `CLASS`, `SCORE` (long); `ENTITY` with <class>_PROB, or with `SCORE` (binary)

What an engine writes without a confidence cannot be calibrated: it is refused, with the setting that writes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from graphcal.tables.files import holds_text, is_list, partition_columns, read_table_file, shards_of

GRAPHSTORM_TABLE = re.compile(r"(pred\.)?predict-\d+_\d+\.(parquet|csv)")
GRAPHSTORM_TENSOR = re.compile(r"predict-\d+\.pt")

Check = Callable[[pa.Schema, Path, bool], None]  # columns, file, whether the classes are known


@dataclass(frozen=True)
class Source:
    """The shards of a table of predictions, with the columns that the engine writes."""

    shards: tuple[Path, ...]
    kind: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    check: Check | None = None  # refuses what cannot be calibrated
    folders: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)  # columns of Hive partitions, by shard

    def read(self, shard: Path) -> pa.Table:
        table = read_table_file(shard)
        for name, value in self.folders.get(shard, {}).items():
            if name not in table.column_names:
                table = table.append_column(name, pa.array([value] * table.num_rows, pa.string()))
        return table


def source_of(path: str | Path, name: str | None = None) -> Source:
    """Return the files at ``path`` as the engine ``name`` writes them; any table of predictions without a name."""
    if name is None:
        shards = tuple(shards_of(path))
        return Source(shards, folders={shard: partition_columns(shard, Path(path)) for shard in shards})
    if name not in SOURCES:
        raise ValueError(f"--from {name!r} is not known; choose one of {', '.join(SOURCES)}")
    if name == "graphstorm":
        return graphstorm(Path(path))
    return Source(tuple(shards_of(path)), *TABLES[name])


def graphstorm(path: Path) -> Source:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    tables = [file for file in files if GRAPHSTORM_TABLE.fullmatch(file.name)]
    if not tables:
        hint = "expected <ntype>/pred.predict-00000_00000.parquet, as save_prediction_path writes them"
        if any(file.name.startswith("embed") for file in files):
            hint = "embeddings alone cannot be calibrated: run inference with save_prediction_path"
        if any(GRAPHSTORM_TENSOR.fullmatch(file.name) for file in files):
            hint = (
                "raw tensors hold GraphStorm's own node numbers: let it map them back (gs_remap), which writes Parquet"
            )
        raise ValueError(f"{path}: no predictions of GraphStorm; {hint}")
    folders = sorted({file.parent for file in tables})
    if len(folders) > 1:
        names = ", ".join(str(folder.relative_to(path)) for folder in folders)
        raise ValueError(
            f"{path} holds predictions of several types or tasks ({names}); give one of these folders as PREDICTIONS"
        )
    return Source(tuple(tables), "probs", {"scores": "pred", "id": "nid"}, check=_graphstorm_check)


def _graphstorm_check(schema: pa.Schema, path: Path, classes: bool) -> None:
    name = next((n for n in ("pred", "scores") if n in schema.names), None)
    if name is not None and not is_list(schema.field(name).type) and not holds_text(schema.field(name).type):
        raise ValueError(
            f"{path}: {name!r} is one number per node, a class without its confidence, which cannot be calibrated; run inference "
            "with return_proba: true"
        )


def _gigl_check(schema: pa.Schema, path: Path, classes: bool) -> None:
    if "emb" not in schema.names:
        raise ValueError(
            f"{path}: GiGL's predictions are the winning class without its confidence, which cannot be calibrated; give its "
            "embeddings table (node_id, emb): for node classification emb holds the logits"
        )


def _neo4j_check(schema: pa.Schema, path: Path, classes: bool) -> None:
    if "predictedProbabilities" not in schema.names:
        raise ValueError(
            f"{path}: no column 'predictedProbabilities', and a class without its confidence cannot be calibrated; predict with "
            "includePredictedProbabilities: true"
        )
    if not classes:
        raise ValueError(
            f"{path}: predictedProbabilities has the order of the model's classes, which need not be 0, 1, 2, ...: give it with "
            "--classes (in Python, model.classes() of the Graph Data Science client)"
        )


def _kumo_check(schema: pa.Schema, path: Path, classes: bool) -> None:
    if not any(name == "SCORE" or name.upper().endswith("_PROB") for name in schema.names):
        raise ValueError(
            f"{path}: no SCORE and no <class>_PROB, so no confidence; the columns are {', '.join(schema.names)}"
        )


NEO4J = {"id": "nodeId", "prediction": "predictedClass", "scores": "predictedProbabilities"}
TABLES: dict[str, tuple[str, Mapping[str, str], Check]] = {  # engines that write plain tables
    "gigl": ("logits", {"id": "node_id", "scores": "emb"}, _gigl_check),
    "neo4j": ("probs", NEO4J, _neo4j_check),
    "kumo": ("probs", {"id": "ENTITY", "class": "CLASS"}, _kumo_check),
}
SOURCES = ("graphstorm", *TABLES)
