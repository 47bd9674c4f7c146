"""Compute cells: train (or find) the models, calibrate, measure, write.

    base -> trained models (cached) -> Outputs on a graph without test labels -> recipe.fit -> log-probabilities -> measure

Only `measured` sees test labels: a calibrator gets a graph from which they have been taken (`graphcal.core.blinded`), and
models are trained on a graph where every label outside the training and validation nodes is gone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal import metrics
from graphcal.bench.engines import Engine, JobResult, Tick
from graphcal.bench.models import Graphs, Models, models_of
from graphcal.bench.records import Record, Store
from graphcal.bench.spec import Cell, Job, TrainingGroup
from graphcal.core import Calibration, blinded
from graphcal.methods import CALIBRATORS
from graphcal.versions import installed_versions


@dataclass(frozen=True)
class Fitted:
    """A calibrator on one candidate training, and what validation says of it."""

    base: TrainingGroup
    calibration: Calibration
    logits: Tensor  # (N, C)
    log_probs: Tensor  # (N, C)
    validation_nll: float
    train_seconds: float
    fit_seconds: float
    apply_seconds: float


def calibrated(cell: Cell, base: TrainingGroup, models: Models, graph: Data) -> Fitted:
    out = models.outputs[cell.run](blinded(graph))
    stop = {"val": graph.val_mask, "train": graph.train_mask, "none": None}[cell.stop]
    started = time.process_time()
    calibration = CALIBRATORS[cell.calibrator](**cell.settings).fit(out, on=graph.val_mask, stop=stop)
    fitted = time.process_time()
    with torch.no_grad():
        log_probs = calibration(out).detach()
    applied = time.process_time()
    val = graph.val_mask
    return Fitted(
        base, calibration, out.logits, log_probs, metrics.nll(log_probs[val], graph.y[val]), models.seconds,
        fitted - started, applied - fitted,
    )  # fmt: skip


def measured(log_probs: Tensor, y: Tensor, bins: int) -> dict[str, float]:
    """The numbers of a table, as fractions."""
    ece, floor = metrics.ece(log_probs, y, bins), metrics.ece_floor(log_probs, bins)
    accuracy, confidence = metrics.accuracy(log_probs, y), float(log_probs.double().max(-1).values.exp().mean())
    return {
        "accuracy": accuracy,
        "confidence": confidence,
        "over_confidence": confidence - accuracy,
        "ece": ece,
        "ece_floor": floor,
        "ece_excess": ece - floor,
        "ece_debiased": metrics.ece_debiased(log_probs, y, bins),
        "nll": metrics.nll(log_probs, y),
        "brier": metrics.brier(log_probs, y),
        "nodes": len(y),
    }


def unlabelled(graph: Data) -> Tensor:
    """Every node that is in neither training nor validation and has a label to be compared with."""  # (N,)
    return ~graph.train_mask & ~graph.val_mask & (graph.y >= 0) & graph.labelled


def compute(cell: Cell, models: Mapping[str, Models], graph: Data) -> tuple[Record, Tensor, Tensor]:
    """The record of a cell, and its log-probabilities and labels on the test nodes."""
    tried = [calibrated(cell, base, models[base.key], graph) for base in cell.groups]
    best = min(tried, key=lambda one: one.validation_nll)
    test, rest, val, y = graph.test_mask, unlabelled(graph), graph.val_mask, graph.y
    result: dict[str, Any] = {
        "test": measured(best.log_probs[test], y[test], cell.bins),
        "unlabelled": measured(best.log_probs[rest], y[rest], cell.bins),
        "validation": {"nll": best.validation_nll, "ece": metrics.ece(best.log_probs[val], y[val], cell.bins)},
        "bins": metrics.reliability(best.log_probs[test], y[test], cell.bins).to_dict(),
        "nodes": {"all": len(y), **{name: int(graph[f"{name}_mask"].sum()) for name in ("train", "val", "test")}},
        "changed": int((best.log_probs.argmax(-1) != best.logits.argmax(-1))[test].sum()),
        "fitted": best.calibration.extra_repr(),
        "chosen": best.base.training if len(tried) > 1 else None,
    }
    seconds = {
        "trained": {one.base.key: one.train_seconds for one in tried},
        "train": best.train_seconds,
        "search": sum(one.train_seconds + one.fit_seconds for one in tried if one is not best),
        "fit": best.fit_seconds,
        "apply": best.apply_seconds,
    }
    return Record(cell.to_dict(), result, seconds, installed_versions()), best.log_probs[test], y[test]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Sums are added in one order on every machine and under every engine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class Bench:
    """What the cells of one job share: graphs, trained models, and the trainings that failed."""

    store: Store
    graphs: Graphs = field(default_factory=Graphs)
    models: dict[str, Models] = field(default_factory=dict)
    faults: dict[str, Exception] = field(default_factory=dict)

    def models_of(self, base: TrainingGroup) -> Models:
        if base.key in self.faults:  # it would fail again, and take as long
            raise self.faults[base.key]
        if base.key not in self.models:
            try:
                self.models[base.key] = models_of(base, self.store, self.graphs)
            except Exception as fault:
                self.faults[base.key] = fault
                raise
        return self.models[base.key]

    def compute(self, cell: Cell) -> None:
        models = {base.key: self.models_of(base) for base in cell.groups}
        graph = self.graphs.of(cell.group, cell.run[0])
        self.store.put(cell, *compute(cell, models, graph))


def work(job: Job, tick: Tick, folder: str, wait: bool) -> JobResult:
    """Compute what is unfinished of a job. A cell that fails is recorded with its error and the next one begins."""
    store, written = Store(folder), list[Path]()
    with store.lock(f"job-{job.key}", wait) as mine, one_thread():
        if not mine:
            return JobResult(job, busy=True)
        bench = Bench(store)
        for cell in job.cells:
            if store.has(cell):
                continue
            try:
                bench.compute(cell)
                written += [store.nodes_path(cell.key), store.record_path(cell.key)]
            except Exception as error:  # whatever one method does wrong, the others are still wanted
                store.fail(cell, error)
                written.append(store.failure_path(cell.key))
            tick()
    return JobResult(job, tuple(str(path) for path in written))


def run(jobs: Sequence[Job], store: Store, engine: Engine, tick: Tick) -> None:
    """All jobs; those another process is at come last, and wait for it."""
    busy: list[Job] = []
    for wait in (False, True):
        for report in engine.map(partial(work, folder=str(store.folder), wait=wait), busy if wait else jobs, tick):
            if report.busy:
                busy.append(report.job)
            for cell in report.job.cells if report.lost else ():
                if not store.has(cell):
                    store.fail(cell, RuntimeError(f"the worker that computed this cell died: {report.lost}"))
