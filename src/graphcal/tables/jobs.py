"""A table of predictions cut into jobs, each of which writes one whole file that says what it was made from."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from graphcal.tables.kinds import SAMPLE
from graphcal.tables.shards import format_of, naming, rows_of
from graphcal.tables.sources import Source

JOB_ROWS = 1 << 21  # of a Parquet file that is cut
PARTIAL = re.compile(r"\..+\.(?:parquet|npy|json)\.(\d+)\.[0-9a-f]{8}")  # what graphcal.files.atomic_file writes to


@dataclass(frozen=True)
class ScoreJob:
    """One file to write."""

    shard: Path
    out: Path
    first_row: int  # of the job, in the whole table
    row_groups: range | None = None  # of the shard; None: all
    groups_first_row: int = 0  # of the job, in its shard


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
    with naming(shard), pq.ParquetFile(shard) as file:
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


def finished(path: Path, made_from: str) -> dict[str, Any] | None:
    """What a whole file says of itself; None where it is not there, or was made from something else."""
    if not path.exists():
        return None
    with suppress(pa.ArrowException, OSError, ValueError, KeyError):
        with pq.ParquetFile(path) as file:
            found = json.loads((file.metadata.metadata or {})[b"graphcal"])
        if found.pop("made_from") == made_from:
            return dict(found)
    raise ValueError(f"{path} is there and was made from something else; score into an empty folder, or remove it")


def digest(*parts: str | bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        total.update(len(content).to_bytes(8, "little") + content)
    return total.hexdigest()


def fingerprint(path: Path, ends: int = 1 << 16) -> str:
    """Of a Parquet file's size, beginning and end, which describes all of it; of other files all."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        if format_of(path) != "parquet":
            whole = hashlib.sha256()
            while part := file.read(1 << 24):
                whole.update(part)
            return whole.hexdigest()
        head = file.read(ends)
        file.seek(max(0, size - ends))
        return digest(str(size), head, file.read(ends))


def remove_partials(out: Path) -> None:
    """What a killed process left half written."""
    for path in out.rglob(".*") if out.is_dir() else ():
        name = PARTIAL.fullmatch(path.name)
        if name and not Path(f"/proc/{name[1]}").exists():
            path.unlink(missing_ok=True)
