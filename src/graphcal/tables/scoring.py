"""Score a table of any size with a saved calibration: bounded memory, all cores, whole files only, resumable.

The work is cut into jobs: a shard, or a few million rows of a large Parquet file. A job reads batches, calibrates them
(`Scorer`) and writes one Parquet file, which appears under its name when all of it is on the disk. Its footer says what it was
made from (by SHA-256 of the whole input), so that the same command, given again, keeps the files whose input is the same and
makes the others: the bytes are the same as if nothing had happened. Memory is a few batches per worker.

Jobs run in threads of this process, or on a Ray cluster whose machines share the folders of input and output. Threads are enough
on one machine: decoding, encoding and arithmetic run outside the interpreter's lock. One batch of a shard is written while the
next one is made, so that a single file keeps two processors busy too.

    OUT/<shard>.parquet ...   OUT/_score.json: rows, counts of rows, drift since the fit
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from graphcal.files import atomic_file, check_writable, digest, file_errors, sweep, write_atomically
from graphcal.metrics.references import RowCounts, drift_since
from graphcal.saving import find_reference, restore
from graphcal.tables.contexts import GraphInputs, TableContext, edges_context
from graphcal.tables.disk_sums import Progress
from graphcal.tables.files import BATCH, WHOLE_FILE, count_rows, fingerprints, format_of, parquet_fragment, read_batches
from graphcal.tables.layouts import ROLES
from graphcal.tables.metadata import FittedTable, with_metadata
from graphcal.tables.reading import check_given
from graphcal.tables.score_types import SAMPLE
from graphcal.tables.scorer import Scorer, scorer_of
from graphcal.tables.sources import Source, source_of
from graphcal.tables.writing import parquet_writer
from graphcal.threads import one_thread

ENGINES = ("local", "ray")
JOB_ROWS = 1 << 21  # of a Parquet file that is cut
Item = TypeVar("Item")


def score(
    calibrator: str | Path,
    predictions: str | Path,
    out: str | Path,
    edges: str | Path | None = None,
    train_ids: str | Path | None = None,
    kind: str | None = None,
    source: str | None = None,
    columns: Mapping[str, str] | None = None,
    keep_scores: bool = False,
    engine: str = "local",
    workers: int = 0,
    address: str | None = None,
    progress: Progress = None,
) -> dict[str, Any]:
    """Write calibrated predictions of every shard to the folder ``out``; return what _score.json holds."""
    for option, path in (("--edges", edges), ("--train-ids", train_ids)):
        if path is not None and not Path(path).exists():
            raise ValueError(f"{option} {path}: no such file or folder")
    calibration, files, out = restore(calibrator), source_of(predictions, source), Path(out)
    fitted, workers = FittedTable.of(calibration), workers or os.cpu_count() or 1
    reference = find_reference(calibrator)
    check_writable(out)
    jobs = jobs_of(files, out)
    given = {**files.columns, **(columns or {})}
    sample = first_batch(files, jobs)
    check_given(
        columns or {}, sample.schema.names, files.shards[0], set(ROLES) - {"label", "split", "source", "target"}
    )
    if files.check is not None:
        files.check(sample.schema, files.shards[0], bool(fitted.classes))
    scorer = scorer_of(calibration, sample, files.shards[0], kind or files.kind, given)
    scorer = replace(scorer, keep_scores=keep_scores)
    if not scorer.layout.row_per_prediction:
        jobs = jobs_of(files, out, whole=True)
    key = digest(Path(calibrator).read_bytes(), repr((scorer.layout, scorer.kind, scorer.classes, keep_scores)))
    sweep(out, inside=True)
    inputs = fingerprints(files.shards, workers)
    results: list[dict[str, Any]] = []
    with context_of(
        scorer, files, edges, train_ids, given, out, digest(key, *inputs.values()), workers, progress
    ) as context:
        if context is not None and not scorer.layout.row_per_prediction:  # rows of the context are predictions
            jobs = [replace(job, first_row=context.starts[str(job.shard)]) for job in jobs]
        made_from = key, context.digest if context else ""
        jobs = [replace(job, record=record_of(job, inputs, made_from, out, predictions)) for job in jobs]
        classes = None if reference is None else reference["sample"]["classes"]
        work = partial(score_job, scorer, context, scorer.schema(sample.schema), classes)
        with one_thread():  # of torch in every worker
            for result in run_jobs(work, jobs, engine, workers, address):
                results.append(result)
                if progress:
                    progress("scoring", len(results), len(jobs))
    summary = summarize(reference, results, scorer.classes)
    notes = notes_on(scorer, fitted, edges is not None, train_ids is not None)
    if removed := remove_stale(out, jobs, predictions):
        notes.append(f"removed {removed:,} scored file{'s' * (removed > 1)} whose rows {predictions} no longer has")
    summary |= {"notes": notes} if notes else {}
    write_atomically(out / "_score.json", json.dumps(summary, indent=1) + "\n")
    return summary


def notes_on(scorer: Scorer, fitted: FittedTable, edges: bool, train_ids: bool) -> list[str]:
    """List what a reader of scored rows should know."""
    notes = []
    if scorer.calibration.needs.training and fitted.training_rows and not train_ids:
        notes.append(
            f"the calibrator was fitted beside {fitted.training_rows:,} training rows; without --train-ids every row is taken "
            "for a new one"
        )
    if not scorer.calibration.needs.edges and (edges or train_ids):
        notes.append("the calibrator reads no graph: --edges and --train-ids are not used")
    if fitted.kind and scorer.kind.digits != fitted.digits:
        before = "not rounded" if fitted.digits is None else f"rounded to {fitted.digits}"
        notes.append(
            f"the scores are rounded to {scorer.kind.digits} digits, those of the fit were {before}; a probability of 0 is read "
            f"as {scorer.kind.floor:g}. Write more digits for the accuracy of the fit"
        )
    return notes


def context_of(
    scorer: Scorer,
    files: Source,
    edges: str | Path | None,
    train_ids: str | Path | None,
    columns: Mapping[str, str],
    out: Path,
    key: str,
    workers: int,
    progress: Progress,
) -> AbstractContextManager[TableContext | None]:
    """Return what the calibration reads off the edges; nothing where it reads none."""
    if not scorer.calibration.needs.edges:
        return nullcontext()
    if edges is None:
        raise ValueError(
            f"the calibration reads the graph around every node ({type(scorer.calibration).__name__}): give its edges with "
            "--edges, a table of source and target ids"
        )
    graph = GraphInputs(scorer, files, Path(edges), None if train_ids is None else Path(train_ids), columns)
    return edges_context(graph, out, key, workers, progress)


def summarize(
    reference: Mapping[str, Any] | None, results: Sequence[Mapping[str, Any]], classes: tuple[str, ...]
) -> dict[str, Any]:
    """Sum up the results of all jobs: rows, counts, and how far the rows are from those of the fit."""
    counts = sum((RowCounts.from_dict(result["counts"]) for result in results), RowCounts.none(len(classes)))
    summary: dict[str, Any] = {
        "schema": 1,
        "rows": int(sum(result["rows"] for result in results)),
        "files": len(results),
        "kept": int(sum(result["kept"] for result in results)),
        "profile": {
            "confidence": counts.confidence.tolist(),
            "predicted": counts.predicted.tolist(),
            "mean_confidence": counts.mean_confidence,
        },
    }
    drift = None if reference is None else drift_since(reference, counts, classes)
    return summary if drift is None else {**summary, "drift": drift}


def score_job(
    scorer: Scorer,
    context: TableContext | None,
    empty: pa.Schema,
    sample: Sequence[int] | None,
    job: ScoreJob,
) -> dict[str, Any]:
    """Write one file, or keep it where it is whole and was made from the same input; ``empty`` is for a shard without rows."""
    done = finished(job.out, job.record)
    if done is not None:
        return {**done, "kept": 1}
    counts, rows, writer = RowCounts.none(len(scorer.classes)), 0, None
    try:
        with atomic_file(job.out) as file:
            for scored, more in prefetch(scored_batches(scorer, context, sample, job)):
                writer = writer or parquet_writer(
                    file.name, with_metadata(scored.schema, scorer.classes, scorer.layout.roles)
                )
                writer.write_batch(scored)
                counts, rows = counts + more, rows + scored.num_rows
            result = {"rows": rows, "counts": counts.to_dict(), "kept": 0}
            writer = writer or parquet_writer(file.name, with_metadata(empty, scorer.classes, scorer.layout.roles))
            writer.add_key_value_metadata({"graphcal": json.dumps({**job.record, **result})})
            writer.close()
    except OSError as fault:
        raise ValueError(f"cannot write {job.out}: {fault.strerror or fault}") from None
    return result


def scored_batches(
    scorer: Scorer, context: TableContext | None, sample: Sequence[int] | None, job: ScoreJob
) -> Iterator[tuple[pa.RecordBatch, RowCounts]]:
    """Yield the batches of a job with calibrated columns, and the counts of their rows."""
    rows, size = 0, BATCH if scorer.layout.row_per_prediction else WHOLE_FILE
    for batch in read_batches(job.shard, job.row_groups, size):
        if rows == 0:
            scorer.check_shard(batch, job.shard)
        nearby = None if context is None else partial(context.read, job.first_row + rows)
        yield scorer.score(batch, nearby, job.shard, job.groups_first_row + rows, sample, job.first_row + rows)
        rows += batch.num_rows


# Jobs


@dataclass(frozen=True)
class ScoreJob:
    """One file to write."""

    shard: Path
    out: Path
    first_row: int  # of the job, in the whole table
    row_groups: range | None = None  # of the shard; None: all
    groups_first_row: int = 0  # of the job, in its shard
    record: Mapping[str, str] = field(default_factory=dict)  # how its file was made


def jobs_of(files: Source, out: Path, whole: bool = False) -> list[ScoreJob]:
    """List the files to write, in the order of the table's rows."""
    root = Path(os.path.commonpath([shard.parent for shard in files.shards]))
    jobs, first_row = [], 0
    for shard in files.shards:
        name = out / shard.relative_to(root).with_suffix(".parquet")
        if format_of(shard) != "parquet" or whole:
            jobs.append(ScoreJob(shard, name, first_row))
            first_row += count_rows(shard)
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
    with file_errors(shard):
        footer = parquet_fragment(shard).metadata
        sizes = [footer.row_group(k).num_rows for k in range(footer.num_row_groups)]
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
        for batch in read_batches(job.shard, job.row_groups, SAMPLE):
            if batch.num_rows:
                return batch
    raise ValueError(f"{files.shards[0]}: the table has no rows")


def record_of(
    job: ScoreJob, inputs: Mapping[Path, str], made_by: Sequence[str], out: Path, predictions: str | Path
) -> dict[str, str]:
    """Return how the file of a job was made, for its footer.

    ``scorer`` stands for the calibration and the options, ``input`` for its rows and their context, ``position`` for the table
    that it is a part of and its name in the folder. ``inputs`` are the fingerprints of the files that are read, ``made_by`` the
    digests of scorer and context.
    """
    scorer, context = made_by
    return {
        "scorer": scorer,
        "input": digest(context, job.shard.name, repr(job.row_groups), inputs[job.shard]),
        "position": position_of(job.out, out, predictions),
    }


def position_of(path: Path, out: Path, predictions: str | Path) -> str:
    return digest(os.path.abspath(predictions), path.relative_to(out).as_posix())


def read_record(path: Path) -> dict[str, Any]:
    """Read the record in the footer of a file that `score` wrote; empty for any other file."""
    with suppress(pa.ArrowException, OSError, ValueError, KeyError):
        record = json.loads((parquet_fragment(path).metadata.metadata or {})[b"graphcal"])
        return record if isinstance(record, dict) else {}
    return {}


def finished(path: Path, wanted: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the result stored in a whole file; None where there is none, or where its input has changed since.

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
    """Remove the files that were scored from rows that the table no longer has; return their number.

    A file goes only where its record names this table and this position in the folder.
    """
    written, removed = {job.out for job in jobs}, 0
    for path in sorted(out.rglob("*.parquet")):
        if path not in written and read_record(path).get("position") == position_of(path, out, predictions):
            path.unlink()
            removed += 1
    return removed


def run_jobs(
    work: Callable[[ScoreJob], dict[str, Any]],
    jobs: Sequence[ScoreJob],
    engine: str = "local",
    workers: int = 0,
    address: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the result of every job, in the order in which jobs end; the first error ends all."""
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}")
    if address is not None and engine != "ray":
        raise ValueError(f"--address is the address of a Ray cluster, but the engine is {engine!r}: add --engine ray")
    count = min(workers or os.cpu_count() or 1, max(len(jobs), 1))
    return on_ray(work, jobs, count, address) if engine == "ray" else in_threads(work, jobs, count)


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the same items; while one is used, a thread makes the next."""
    nothing = object()
    with ThreadPoolExecutor(1) as maker:
        coming: Future[Any] = maker.submit(next, items, nothing)
        while (item := coming.result()) is not nothing:
            coming = maker.submit(next, items, nothing)
            yield item


def in_threads(
    work: Callable[[ScoreJob], dict[str, Any]], jobs: Sequence[ScoreJob], count: int
) -> Iterator[dict[str, Any]]:
    pool = ThreadPoolExecutor(count)
    try:
        for done in as_completed([pool.submit(work, job) for job in jobs]):
            yield done.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def on_ray(
    work: Callable[[ScoreJob], dict[str, Any]], jobs: Sequence[ScoreJob], count: int, address: str | None
) -> Iterator[dict[str, Any]]:
    """Run jobs by Ray Data, one row per job."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise ValueError("--engine ray needs Ray: pip install 'graphcal[ray]'") from None
    started = not ray.is_initialized()
    if started:
        local: dict[str, Any] = {} if address else {"num_cpus": count}
        ray.init(address=address, include_dashboard=False, log_to_driver=False, configure_logging=False, **local)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        numbers = ray.data.from_items([{"job": k} for k in range(len(jobs))], override_num_blocks=max(len(jobs), 1))
        for row in numbers.map(partial(_run_job, work, list(jobs))).iter_rows():
            if row["fault"]:
                raise ValueError(row["fault"])
            yield json.loads(row["result"])
    finally:
        if started:
            ray.shutdown()


def _run_job(work: Callable[[Any], dict[str, Any]], jobs: list[Any], row: dict[str, Any]) -> dict[str, str]:
    """Do the job of one row; return errors as values: Ray would wrap them in a long traceback."""
    try:
        return {"result": json.dumps(work(jobs[row["job"]])), "fault": ""}
    except (ValueError, OSError) as fault:
        return {"result": "", "fault": str(fault)}
