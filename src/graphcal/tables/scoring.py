"""Score a table of any size with a saved calibration: bounded memory, all cores, whole files only, resumable.

The work is cut into jobs: a shard, or a few million rows of a large Parquet file. A job reads batches, calibrates them
(`Scorer`) and writes one Parquet file, which appears under its name when all of it is on the disk. Its footer says what it was
made from (by SHA-256 of the whole input), so that the same command, given again, keeps the files whose input is the same and
makes the others: the bytes are the same as if nothing had happened. Memory is a few batches per worker.

    OUT/<shard>.parquet ...   OUT/_score.json: rows, profile, drift against the fit
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphcal.engine.threads import one_thread
from graphcal.files import atomic_file, check_writable, write_atomically
from graphcal.saving import restore
from graphcal.tables.contexts import GraphFiles, Progress, TableContext, edges_context
from graphcal.tables.execution import made_ahead, run_jobs
from graphcal.tables.exporting import parquet_writer
from graphcal.tables.fitted_tables import FittedTable
from graphcal.tables.jobs import (
    ScoreJob,
    digest,
    fingerprints,
    finished,
    first_batch,
    jobs_of,
    record_of,
    remove_partials,
    remove_stale,
)
from graphcal.tables.layouts import ROLES
from graphcal.tables.profiles import Profile, drift
from graphcal.tables.scorer import Scorer, check_shard, scorer_of
from graphcal.tables.shards import BATCH
from graphcal.tables.sources import Source, source_of
from graphcal.tables.table_checks import check_given
from graphcal.tables.table_metadata import remembering


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
    """Write calibrated predictions of every shard to the folder ``out``; gives what _score.json holds."""
    for option, path in (("--edges", edges), ("--train-ids", train_ids)):
        if path is not None and not Path(path).exists():
            raise ValueError(f"{option} {path}: no such file or folder")
    calibration, files, out = restore(calibrator), source_of(predictions, source), Path(out)
    fitted, workers = FittedTable.of(calibration), workers or os.cpu_count() or 1
    check_writable(out)
    jobs = jobs_of(files, out)
    given = {**files.columns, **(columns or {})}
    sample = first_batch(files, jobs)
    check_given(
        columns or {}, sample.schema.names, files.shards[0], set(ROLES) - {"label", "split", "source", "target"}
    )
    if files.check is not None:
        files.check(sample.schema, files.shards[0], bool(fitted.classes))
    scorer = replace(
        scorer_of(calibration, sample, files.shards[0], kind or files.kind, given), keep_scores=keep_scores
    )
    if scorer.layout.form == "long":
        jobs = jobs_of(files, out, whole=True)
    key = digest(Path(calibrator).read_bytes(), repr((scorer.layout, scorer.kind, scorer.classes, keep_scores)))
    remove_partials(out)
    inputs = fingerprints([path for shard in files.shards for path in files.files_of(shard)], workers)
    found: list[dict[str, Any]] = []
    with context_of(
        scorer, files, edges, train_ids, given, out, digest(key, *inputs.values()), workers, progress
    ) as context:
        if (
            context is not None and scorer.layout.form == "long"
        ):  # rows of the context are predictions, not rows of the file
            jobs = [replace(job, first_row=context.starts[str(job.shard)]) for job in jobs]
        made_from = key, context.digest if context else ""
        jobs = [replace(job, record=record_of(job, files, inputs, made_from, out, predictions)) for job in jobs]
        work = partial(score_job, scorer, files, context, scorer.schema(sample.schema))
        with one_thread():  # of torch in every worker
            for result in run_jobs(work, jobs, engine, workers, address):
                found.append(result)
                if progress:
                    progress("scoring", len(found), len(jobs))
    summary = summarised(fitted.profile, found, len(scorer.classes))
    notes = notes_on(scorer, fitted, edges is not None, train_ids is not None)
    if removed := remove_stale(out, jobs, predictions):
        notes.append(f"removed {removed:,} scored file{'s' * (removed > 1)} whose rows {predictions} no longer has")
    summary |= {"notes": notes} if notes else {}
    write_atomically(out / "_score.json", json.dumps(summary, indent=1) + "\n")
    return summary


def notes_on(scorer: Scorer, fitted: FittedTable, edges: bool, train_ids: bool) -> list[str]:
    """What a reader of scored rows should know of how they were read."""
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
    """What the calibration reads off the edges; nothing where it reads none."""
    if not scorer.calibration.needs.edges:
        return nullcontext()
    if edges is None:
        raise ValueError(
            f"the calibration reads the graph around every node ({type(scorer.calibration).__name__}): give its edges with "
            "--edges, a table of source and target ids"
        )
    graph = GraphFiles(scorer, files, Path(edges), None if train_ids is None else Path(train_ids), columns)
    return edges_context(graph, out, key, workers, progress)


def summarised(at_fit: Profile | None, found: Sequence[Mapping[str, Any]], classes: int) -> dict[str, Any]:
    """Rows, their profile, and how far they are from those of the fit."""
    profile = sum(
        (Profile.from_dict(one["profile"]) for one in found), Profile(np.zeros(20, int), np.zeros(classes, int))
    )
    summary = {
        "rows": int(sum(one["rows"] for one in found)),
        "files": len(found),
        "kept": int(sum(one["kept"] for one in found)),
        "profile": profile.to_dict(),
    }
    if at_fit is not None:
        summary["drift"] = drift(at_fit, profile)
    return summary


def score_job(
    scorer: Scorer, files: Source, context: TableContext | None, empty: pa.Schema, job: ScoreJob
) -> dict[str, Any]:
    """Write one file, or keep it where it is whole and was made from the same; of a shard without rows the ``empty`` one."""
    done = finished(job.out, job.record)
    if done is not None:
        return {**done, "kept": 1}
    profile, rows, writer = Profile(np.zeros(20, int), np.zeros(len(scorer.classes), int)), 0, None
    try:
        with atomic_file(job.out) as file:
            for scored, seen in made_ahead(scored_batches(scorer, files, context, job)):
                writer = writer or parquet_writer(
                    file.name, remembering(scored.schema, scorer.classes, scorer.layout.roles)
                )
                writer.write_batch(scored)
                profile, rows = profile + seen, rows + scored.num_rows
            result = {"rows": rows, "profile": profile.to_dict(), "kept": 0}
            writer = writer or parquet_writer(file.name, remembering(empty, scorer.classes, scorer.layout.roles))
            writer.add_key_value_metadata({"graphcal": json.dumps({**job.record, **result})})
            writer.close()
    except OSError as fault:
        raise ValueError(f"cannot write {job.out}: {fault.strerror or fault}") from None
    return result


def scored_batches(
    scorer: Scorer, files: Source, context: TableContext | None, job: ScoreJob
) -> Iterator[tuple[pa.RecordBatch, Profile]]:
    """The batches of a job with calibrated columns, and what their rows are like."""
    rows, whole = 0, BATCH if scorer.layout.form != "long" else 1 << 62
    for batch in files.batches(job.shard, job.row_groups, whole):
        if rows == 0:
            check_shard(scorer, batch, job.shard)
        nearby = None if context is None else partial(context.read, job.first_row + rows)
        yield scorer.profiled(batch, nearby, job.shard, job.groups_first_row + rows)
        rows += batch.num_rows
