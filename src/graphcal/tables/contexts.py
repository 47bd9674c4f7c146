"""Compute graph context for tables that do not fit in memory.

    predictions -> logits (C, N) and ids in files      ids at the ends of edges -> row numbers -> blocks of edges in files
    both -> calibration.context -> (K, N) in a file, of which a job of scoring reads its rows

Memory is bounded by one batch: see `edges` and `disk_sums`.

Everything lies in a hidden folder of the output. When a killed command is given again, a context that was finished is used; what
was not is made anew. The folder goes when all is done, and when anything is refused.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphcal.files import digest, one_process, sha256_of, write_atomically
from graphcal.tables.disk_sums import DiskColumns, DiskSums, Progress, write_blocks
from graphcal.tables.edges import RowNumbers, edge_batches, edge_count_bound
from graphcal.tables.files import BATCH, WHOLE_FILE, count_rows, fingerprints, plain_ids, read_batches, shards_of
from graphcal.tables.labels import ENDS, training_ids
from graphcal.tables.scorer import Scorer
from graphcal.tables.sources import Source

PREFIX = ".graph-"  # of the hidden folder


@dataclass(frozen=True)
class GraphInputs:
    """Input files of a context and how to read them."""

    scorer: Scorer
    source: Source
    edges: Path
    train_ids: Path | None
    columns: Mapping[str, str]

    @property
    def is_long(self) -> bool:
        return not self.scorer.layout.row_per_prediction

    @property
    def id(self) -> str:
        name = self.scorer.layout.roles.get("id")
        if name is None:
            raise ValueError("edges name nodes by id: the predictions need a column of ids")
        return name

    def made_from(self, key: str, workers: int) -> str:
        """Fingerprint of the inputs of a context; ``key`` stands for the calibration and the predictions."""
        tables = [*shards_of(self.edges), *(shards_of(self.train_ids) if self.train_ids else ())]
        return digest(key, repr(sorted(self.columns.items())), *fingerprints(tables, workers).values())

    def batches(self, shard: Path) -> Iterator[pa.RecordBatch]:
        return read_batches(shard, None, WHOLE_FILE if self.is_long else BATCH)

    def ids_of(self, batch: pa.RecordBatch, shard: Path) -> pa.Array:
        """Ids, one per prediction."""
        ids = plain_ids(batch[self.id], shard, self.id)
        return pc.unique(ids) if self.is_long else ids

    def rows(self, shard: Path) -> int:
        """Number of predictions in a shard."""
        if not self.is_long:
            return count_rows(shard)
        return sum(len(self.ids_of(batch, shard)) for batch in self.batches(shard))


@dataclass(frozen=True)
class TableContext:
    """The context (K, N) of all rows, in a file; ``starts`` is the first row of every shard."""

    columns: DiskColumns
    starts: Mapping[str, int]
    digest: str

    def read(self, first_row: int, count: int) -> np.ndarray:
        return self.columns.read(slice(first_row, first_row + count))  # (K, n)


@contextmanager
def edges_context(
    files: GraphInputs, out: Path, key: str, workers: int, progress: Progress = None
) -> Iterator[TableContext]:
    """The context of all rows of a table, in a folder that is there as long as it is used."""
    calibration = files.scorer.calibration
    if calibration.needs.whole_graph or calibration.needs.same_graph:
        raise ValueError(
            f"{type(calibration).__name__} needs the whole graph at once and cannot score a table in parts: calibrate the table "
            "itself (graphcal calibrate), or choose graph-scaling, scar or rbs"
        )
    made_from = files.made_from(key, workers)
    folder = out / f"{PREFIX}{made_from[:16]}"
    with one_process(out / ".graph.lock", f"another process is scoring into {out}; wait for it, or use another folder"):
        finished = finished_context(folder, made_from)
        for leftover in out.glob(f"{PREFIX}*"):  # of killed processes: this one holds the lock
            if finished is None or leftover != folder:
                shutil.rmtree(leftover)
        try:
            try:
                context = finished or make_context(files, folder, made_from, workers, progress)
            except OSError as fault:
                raise ValueError(f"cannot write {folder}: {fault.strerror or fault}") from None
            yield context
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def finished_context(folder: Path, made_from: str) -> TableContext | None:
    """The context that a killed command left, where it is whole."""
    path = folder / "context.json"
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["made_from"] != made_from:
        return None
    columns = DiskColumns(folder / "context", record["width"], record["rows"], record["dtype"])
    return TableContext(columns, record["starts"], record["digest"])


def make_context(files: GraphInputs, folder: Path, made_from: str, workers: int, progress: Progress) -> TableContext:
    folder.mkdir(parents=True)
    logits, numbers, starts = write_logits(files, folder, workers, progress)
    numbers.refuse_duplicates()
    ends = ((s, t) for s, t in numbers.of(edge_batches(files.edges, files.columns), len(ENDS), files.edges))
    train = None if files.train_ids is None else training_set(files.train_ids, files.columns, numbers, folder)
    blocks = write_blocks(folder / "edges", numbers.rows, ends, edge_count_bound(files.edges), progress)
    made = files.scorer.calibration.context(logits, DiskSums(blocks, train, folder, workers, progress))
    columns = replace(made, path=made.path.rename(folder / "context"))
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != columns.path:
            path.unlink()
    size = {"width": columns.width, "rows": columns.num_rows, "dtype": columns.dtype}
    record = {"made_from": made_from, "starts": starts, "digest": sha256_of(columns.path), **size}
    write_atomically(folder / "context.json", json.dumps(record))
    return TableContext(columns, starts, record["digest"])


def write_logits(
    files: GraphInputs, folder: Path, workers: int, progress: Progress
) -> tuple[DiskColumns, RowNumbers, dict[str, int]]:
    """Logits (C, N) and ids of all predictions in files, and the first row of every shard."""
    counts = {shard: files.rows(shard) for shard in files.source.shards}
    ends = np.cumsum([0, *counts.values()]).tolist()
    logits = DiskColumns.make(folder / "logits", len(files.scorer.classes), ends[-1])
    numbers = RowNumbers(folder, workers)
    for k, shard in enumerate(files.source.shards):
        if progress:
            progress("reading predictions", k, len(counts))
        first = 0
        for batch in files.batches(shard):
            block = np.stack(list(files.scorer.logits(batch, shard, first)))
            logits.write(numbers.rows, block)
            numbers.add(files.ids_of(batch, shard))
            first += batch.num_rows
    return logits, numbers, {str(shard): start for shard, start in zip(counts, ends)}


def training_set(path: Path, columns: Mapping[str, str], numbers: RowNumbers, folder: Path) -> DiskColumns:
    """(1, N) 1 at the training rows that a table names."""
    ids = training_ids(path, columns)
    out = DiskColumns.make(folder / "train", 1, numbers.rows, "uint8")
    with open(out.path, "r+b") as file:
        for (rows,) in numbers.of([[ids]], 1, path, refuse_strange_ids):
            for row in np.sort(rows).tolist():
                file.seek(row)
                file.write(b"\x01")
    return out


def refuse_strange_ids(where: str | Path, ids: int, different: int, example: object) -> NoReturn:
    raise ValueError(f"{where}: {ids:,} ids have no prediction (first: {example!r})")
