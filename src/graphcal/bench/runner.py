"""Compute cells: train (or find) the models, study, write.

    training group -> trained models (cached) -> Outputs -> Study (blinds, fits, applies, measures) -> record

Models are trained on a graph where every label outside the training and validation nodes is gone.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.bench.engines import Engine, JobResult, Tick
from graphcal.bench.models import Graphs, Models, models_of
from graphcal.bench.records import Record, Store
from graphcal.bench.spec import Cell, Job, TrainingGroup
from graphcal.engine.threads import one_thread
from graphcal.methods import CALIBRATORS
from graphcal.metrics import Scores, reliability
from graphcal.saving import installed_versions
from graphcal.study import FittedRun, Study


@dataclass(frozen=True)
class Tried:
    """A cell's calibrator on one candidate training, and what validation says of it."""

    group: TrainingGroup
    train_seconds: float
    study: Study
    validation: Scores

    @property
    def fitted(self) -> FittedRun:
        """The one calibrator on the one run."""
        ((one,),) = self.study.fitted.values()
        return one

    def scores(self, nodes: Tensor, bins: int) -> Scores:
        ((one,),) = self.study.scores(nodes, bins).values()
        return one


def try_group(cell: Cell, group: TrainingGroup, models: Models, graph: Data) -> Tried:
    """Fit the cell's calibrator on the validation nodes of one candidate; seconds are those of one core."""
    out = models.outputs[cell.run](graph)
    stop = {"val": graph.val_mask, "train": graph.train_mask, "none": None}[cell.stop]
    recipe = CALIBRATORS[cell.calibrator](**cell.settings)
    study = Study.of([out], {cell.calibrator: recipe}, on=graph.val_mask, stop=stop, clock=time.process_time)
    ((validation,),) = study.scores(graph.val_mask, cell.bins).values()
    return Tried(group, models.seconds, study, validation)


def with_fitting_nodes(graph: Data, count: int, seed: int) -> Data:
    """The graph with ``count`` random validation nodes, and random test nodes where those do not suffice; the rest is test.

    Fewer are the first of more, so that a curve over their number is of one sample that grows.
    """
    generator = torch.Generator().manual_seed(seed)
    order = []
    for mask in (graph.val_mask, graph.test_mask):
        nodes = mask.nonzero().flatten()
        order.append(nodes[torch.randperm(len(nodes), generator=generator)])
    chosen = torch.cat(order)[:count]
    if len(chosen) < count or count > len(order[0]) + len(order[1]) // 2:
        raise ValueError(
            f"fit_labels={count}: only {len(order[0])} validation and {len(order[1])} test nodes are there"
        )
    other = copy.copy(graph)
    other.val_mask = torch.zeros_like(graph.val_mask)
    other.val_mask[chosen] = True
    other.test_mask = (graph.val_mask | graph.test_mask) & ~other.val_mask
    return other


def unlabelled(graph: Data) -> Tensor:
    """Every node that is in neither training nor validation and has a label to be compared with."""  # (N,)
    others: Tensor = ~graph.train_mask & ~graph.val_mask & (graph.y >= 0) & graph.labelled
    return others


def compute(cell: Cell, models: Mapping[str, Models], graph: Data) -> tuple[Record, Tensor, Tensor]:
    """The record of a cell, and its log-probabilities and labels on the test nodes."""
    tried = [try_group(cell, group, models[group.key], graph) for group in cell.groups]
    best = min(tried, key=lambda one: one.validation.nll)
    test, y, log_probs = graph.test_mask, graph.y, best.fitted.log_probs
    result: dict[str, Any] = {
        "test": best.scores(test, cell.bins).to_dict(),
        "unlabelled": best.scores(unlabelled(graph), cell.bins).to_dict(),
        "validation": best.validation.to_dict(),
        "bins": reliability(log_probs[test], y[test], cell.bins).to_dict(),
        "nodes": {"all": len(y), **{name: int(graph[f"{name}_mask"].sum()) for name in ("train", "val", "test")}},
        "changed": int((log_probs.argmax(-1) != best.study.outputs[0].pred)[test].sum()),
        "fitted": best.fitted.calibration.extra_repr(),
        "chosen": best.group.training if len(tried) > 1 else None,
    }
    seconds = {
        "trained": {one.group.key: one.train_seconds for one in tried},
        "train": best.train_seconds,
        "search": sum(one.train_seconds + one.fitted.fit_seconds for one in tried if one is not best),
        "fit": best.fitted.fit_seconds,
        "apply": best.fitted.apply_seconds,
    }
    return Record(cell.to_dict(), result, seconds, installed_versions()), log_probs[test], y[test]


@dataclass
class Bench:
    """What the cells of one job share: graphs, trained models, and the trainings that failed."""

    store: Store
    graphs: Graphs = field(default_factory=Graphs)
    models: dict[str, Models] = field(default_factory=dict)
    faults: dict[str, Exception] = field(default_factory=dict)

    def models_of(self, group: TrainingGroup) -> Models:
        if group.key in self.faults:  # it would fail again, and take as long
            raise self.faults[group.key]
        if group.key not in self.models:
            try:
                self.models[group.key] = models_of(group, self.store, self.graphs)
            except Exception as fault:
                self.faults[group.key] = fault
                raise
        return self.models[group.key]

    def compute(self, cell: Cell) -> None:
        models = {group.key: self.models_of(group) for group in cell.groups}
        graph = self.graphs.of(cell.group, cell.run[0])
        if cell.fit_labels:
            graph = with_fitting_nodes(graph, cell.fit_labels, cell.run[1])
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


def run_jobs(jobs: Sequence[Job], store: Store, engine: Engine, tick: Tick) -> None:
    """All jobs; those another process is at come last, and wait for it."""
    busy: list[Job] = []
    for wait in (False, True):
        for report in engine.map(partial(work, folder=str(store.folder), wait=wait), busy if wait else jobs, tick):
            if report.busy:
                busy.append(report.job)
            for cell in report.job.cells if report.lost else ():
                if not store.has(cell):
                    store.fail(cell, RuntimeError(f"the worker that computed this cell died: {report.lost}"))
