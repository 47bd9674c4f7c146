"""A table of predictions cut into jobs, each of which writes one whole file that says what it was made from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from graphcal.containers.parquet import open_parquet
from graphcal.files import sha256_of, sweep
from graphcal.tables.kinds import SAMPLE
from graphcal.tables.shards import format_of, naming, rows_of
from graphcal.tables.sources import Source

JOB_ROWS = 1 << 21  # of a Parquet file that is cut


@dataclass(frozen=True)
class ScoreJob:
    """One file to write."""

    shard: Path
    out: Path
    first_row: int  # of the job, in the whole table
    row_groups: range | None = None  # of the shard; None: all
    groups_first_row: int = 0  # of the job, in its shard
    record: Mapping[str, str] = field(default_factory=dict)  # what its file says of how it was made


def jobs_of(files: Source, out: Path, whole: bool = False) -> list[ScoreJob]:
    """The files to write, in the order of the table's rows."""
    root = Path(os.path.commonpath([shard.parent for shard in files.shards]))
    jobs, first_row = [], 0
    for shard in files.shards:
        name = out / shard.relative_to(root).with_suffix(".parquet")
        if format_of(shard) != "parquet" or whole or shard in files.ids:
            jobs.append(ScoreJob(shard, name, first_row))
            first_row += rows_of(shard)
            continue
        cuts = list(row_group_cuts(shard))
        for k, (groups, start, _) in enumerate(cuts):
            to = name if len(cuts) == 1 else name.with_name(f"{name.stem}-{k:05d}.parquet")
            jobs.append(ScoreJob(shard, to, first_row + start, groups, start))
        first_row += sum(rows for _, _, rows in cuts)
    twice = {job.out for job in jobs}
    if len(twice) < len(jobs):
        raise ValueError("two shards have one name but for its ending; score them into folders of their own")
    return jobs


def row_group_cuts(shard: Path) -> Iterator[tuple[range, int, int]]:
    """Runs of row groups of about JOB_ROWS rows: the groups, their first row, their rows."""
    with naming(shard), open_parquet(shard) as file:
        sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    begin, start, rows = 0, 0, 0
    for k, size in enumerate(sizes):
        rows += size
        if rows >= JOB_ROWS or k + 1 == len(sizes):
            yield range(begin, k + 1), start, rows
            begin, start, rows = k + 1, start + rows, 0
    if not sizes:
        yield range(0), 0, 0


def first_batch(files: Source, jobs: Sequence[ScoreJob]) -> pa.RecordBatch:
    for job in jobs:
        for batch in files.batches(job.shard, job.row_groups, SAMPLE):
            if batch.num_rows:
                return batch
    raise ValueError(f"{files.shards[0]}: the table has no rows")


def record_of(
    job: ScoreJob, files: Source, inputs: Mapping[Path, str], made_by: Sequence[str], out: Path, predictions: str | Path
) -> dict[str, str]:
    """What the file of a job says of how it was made.

    ``scorer`` stands for the calibration and the options, ``input`` for its rows and their context, ``place`` for the table that
    it is a part of and its name in the folder. ``inputs`` are the fingerprints of the files that are read, ``made_by`` the
    digests of scorer and context.
    """
    scorer, context = made_by
    content = (inputs[path] for path in files.files_of(job.shard))
    return {
        "scorer": scorer,
        "input": digest(context, job.shard.name, repr(job.row_groups), *content),
        "place": place_of(job.out, out, predictions),
    }


def place_of(path: Path, out: Path, predictions: str | Path) -> str:
    return digest(os.path.abspath(predictions), path.relative_to(out).as_posix())


def read_record(path: Path) -> dict[str, Any]:
    """The record in the footer of a file that `score` wrote; empty for any other file."""
    with suppress(pa.ArrowException, OSError, ValueError, KeyError):
        with open_parquet(path) as file:
            record = json.loads((file.metadata.metadata or {})[b"graphcal"])
        return record if isinstance(record, dict) else {}
    return {}


def finished(path: Path, wanted: Mapping[str, str]) -> dict[str, Any] | None:
    """What a whole file says of its rows; None where there is none, or where its input has changed since.

    A file of another calibration, of other options, or of anybody else is refused.
    """
    if not path.exists():
        return None
    record = read_record(path)
    if record.get("scorer") != wanted["scorer"]:
        raise ValueError(f"{path} is there and was made from something else; score into an empty folder, or remove it")
    if record.get("input") != wanted["input"]:
        return None
    return {name: value for name, value in record.items() if name not in wanted}


def remove_stale(out: Path, jobs: Sequence[ScoreJob], predictions: str | Path) -> int:
    """Remove the files that were scored from rows that the table no longer has; gives their number.

    A file goes only where its record names this table and this place in the folder.
    """
    written, removed = {job.out for job in jobs}, 0
    for path in sorted(out.rglob("*.parquet")):
        if path not in written and read_record(path).get("place") == place_of(path, out, predictions):
            path.unlink()
            removed += 1
    return removed


def digest(*parts: str | bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        total.update(len(content).to_bytes(8, "little") + content)
    return total.hexdigest()


def fingerprints(paths: Sequence[Path], workers: int) -> dict[Path, str]:
    """SHA-256 of the content of every file."""
    with ThreadPoolExecutor(max(workers, 1)) as pool:
        return dict(zip(paths, pool.map(sha256_of, paths)))


def remove_partials(out: Path) -> None:
    """Remove what killed processes left half written, in the folder and in those inside it."""
    for folder in [out, *(path for path in out.rglob("*") if path.is_dir())]:
        sweep(folder)
