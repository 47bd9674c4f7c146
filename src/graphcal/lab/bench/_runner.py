"""Compute cells: train (or find) the models, study, write.

    training group -> trained models (cached) -> Outputs -> Study (blinds, fits, applies, measures) -> record

Models are trained on a graph where every label outside the training and validation nodes is gone.

Trained models are cached by the hash of their training, so that twenty calibrators share one. A base is trained
whole, all its runs together, and cached in one safetensors file: logits, final representation, final layer and weights of every
run. A training that was killed leaves nothing, and is done again the same way.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import FinalLayer, Outputs
from graphcal.files import write_atomically
from graphcal.lab.bench.engines import Engine, JobResult, Tick
from graphcal.lab.bench.expansion import recipe_class
from graphcal.lab.bench.records import (
    Cell,
    Job,
    Record,
    RunId,
    Store,
    TrainingGroup,
    canonical,
    read_checked,
    with_checksum,
)
from graphcal.lab.bench.releases import STORED, ServedRow, next_release, serve, windows
from graphcal.lab.datasets import load
from graphcal.lab.models import BACKBONES, ModelConfig, Replicas, TrainedGNN
from graphcal.lab.training import Replica, Run, Training, train_replicas
from graphcal.metrics import Scores, reliability
from graphcal.saving import installed_versions
from graphcal.study import FittedRun, Study
from graphcal.threads import one_thread


class Graphs:
    """The graphs of one job. Splits of the same graph share its features and edges."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, str, bool | None], dict[tuple[int, int], Data]] = {}

    def of(self, base: TrainingGroup, split: int) -> Data:
        loaded = self._loaded.setdefault((base.dataset, base.protocol, base.row_normalise), {})
        key = (base.labels_per_class, split)
        if key not in loaded:
            graph = load(base.dataset, base.protocol, *key, row_normalise=base.row_normalise)
            if loaded:
                first = next(iter(loaded.values()))
                graph.x, graph.edge_index = first.x, first.edge_index
            loaded[key] = graph
        return loaded[key]


@dataclass(frozen=True)
class Models:
    """The models of one base: what each says on a graph, and the seconds each took (those of all, divided by their number)."""

    outputs: Mapping[RunId, Callable[[Data], Outputs]]
    seconds: float
    elsewhere: Mapping[RunId, Callable[[str], Outputs]]  # on the release of that name
    views: dict[RunId, Outputs] = field(default_factory=dict)  # kept for releases, which take long to prepare

    def on(self, run: RunId, graph: Data, keep: bool) -> Outputs:
        """Outputs of a run on the graph it was trained on."""
        if run in self.views:
            return self.views[run]
        out = self.outputs[run](graph)
        if keep:
            self.views[run] = out
        return out


def models_of(base: TrainingGroup, store: Store, graphs: Graphs) -> Models:
    """The trained models: found in the cache, or trained and put there. Two processes never train the same base at once."""
    path = store.cache_path(base.key)
    with store.lock(f"base-{base.key}"):
        if path.exists() and not _is_sound(base, path):
            store.set_aside(path)
        if not path.exists():
            _train(base, path, graphs)
    return _read(base, path)


def _is_sound(base: TrainingGroup, path: Path) -> bool:
    """Return whether a file is complete and holds the runs of this training."""
    try:
        tensors, about = read_checked(path)
        config, seconds = json.loads(about["config"]), float(about["seconds"])
    except (ValueError, KeyError, FileNotFoundError):
        return False
    needed = {f"{number}/logits" for number in range(len(base.runs))}
    mine = about.get("base") == canonical(asdict(base)) and isinstance(config, dict) and seconds >= 0
    return mine and needed <= tensors.keys()


def _train(base: TrainingGroup, path: Path, graphs: Graphs) -> None:
    splits = [graphs.of(base, split) for split, _ in base.runs]
    replicas = [
        Replica(seed, train_mask=graph.train_mask, val_mask=graph.val_mask)
        for (_, seed), graph in zip(base.runs, splits)
    ]
    seen = copy.copy(splits[0])  # shares x and edge_index
    used = torch.stack([graph.train_mask | graph.val_mask for graph in splits]).any(0)
    seen.y = torch.where(used, seen.y, -1)
    del seen.test_mask
    backbone = BACKBONES[base.backbone](**base.architecture)
    started = time.process_time()
    runs = train_replicas(seen, backbone, Training.from_dict(base.training), replicas)
    seconds = time.process_time() - started
    tensors: dict[str, Tensor] = {}
    for number, run in enumerate(runs):
        out, model = run.outputs, _replicas(run)
        kept = {"logits": out.logits}
        if out.final is not None:
            kept |= {"weight": out.final.weight, "bias": out.final.bias}
        kept |= {f"state/{name}": value for name, value in model.state_dict().items()}
        tensors |= {f"{number}/{name}": t.detach().contiguous().clone() for name, t in kept.items() if t is not None}
    config = asdict(_replicas(runs[0]).config)
    about = {"base": canonical(asdict(base)), "seconds": repr(seconds), "config": canonical(config)}
    write_atomically(path, with_checksum(tensors, about))


def _replicas(run: Run) -> Replicas:
    assert isinstance(run.model, TrainedGNN)
    return run.model.replicas


def _read(base: TrainingGroup, path: Path) -> Models:
    with safe_open(path, "pt") as file:
        seconds = float(file.metadata()["seconds"])
    outputs = {run: partial(_outputs, base, path, number) for number, run in enumerate(base.runs)}
    elsewhere = {run: cache(partial(_served, base, path, number)) for number, run in enumerate(base.runs)}
    return Models(outputs, seconds / len(base.runs), elsewhere)


def _outputs(base: TrainingGroup, path: Path, number: int, graph: Data) -> Outputs:
    model, kept = _model(base, path, number)
    final = FinalLayer.from_weight(kept["weight"], kept["bias"]) if "weight" in kept else None
    handle = model.on(graph)
    return Outputs(kept["logits"], graph, final, handle.hidden, handle)


def _model(base: TrainingGroup, path: Path, number: int) -> tuple[TrainedGNN, dict[str, Tensor]]:
    with safe_open(path, "pt") as file:
        mine = f"{number}/"
        kept = {name[len(mine) :]: file.get_tensor(name) for name in file.keys() if name.startswith(mine)}  # noqa: SIM118
        config = ModelConfig(**json.loads(file.metadata()["config"]))
    state = {name[len("state/") :]: t for name, t in kept.items() if name.startswith("state/")}
    return TrainedGNN.from_state(BACKBONES[base.backbone](**base.architecture), config, state), kept


def _served(base: TrainingGroup, path: Path, number: int, release: str) -> Outputs:
    graph = next_release(base.dataset, release).graph
    return _model(base, path, number)[0].on(graph).outputs(graph)


@dataclass(frozen=True)
class Candidate:
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


def try_group(cell: Cell, group: TrainingGroup, models: Models, graph: Data) -> Candidate:
    """Fit the cell's calibrator on the validation nodes of one candidate; seconds are those of one core."""
    out = models.on(cell.run, graph, keep=bool(cell.serve))
    stop = {"val": graph.val_mask, "train": graph.train_mask, "none": None}[cell.stop]
    recipe = recipe_class(cell.calibrator)(**cell.settings)
    study = Study.of([out], {cell.calibrator: recipe}, on=graph.val_mask, stop=stop, clock=time.process_time)
    ((validation,),) = study.scores(graph.val_mask, cell.bins).values()
    return Candidate(group, models.seconds, study, validation)


def with_fitting_nodes(graph: Data, count: int, seed: int) -> Data:
    """The graph with ``count`` random validation nodes, and random test nodes where those do not suffice; the rest is test.

    Fewer are the first of more, so that a curve over their number is of one sample that grows.
    """
    generator = torch.Generator().manual_seed(seed)
    order = []
    for mask in (graph.val_mask, graph.test_mask):
        nodes = mask.nonzero().flatten()
        order.append(nodes[torch.randperm(len(nodes), generator=generator)])
    fit_nodes = torch.cat(order)[:count]
    if len(fit_nodes) < count or count > len(order[0]) + len(order[1]) // 2:
        raise ValueError(
            f"fit_labels={count}: only {len(order[0])} validation and {len(order[1])} test nodes are there"
        )
    other = copy.copy(graph)
    other.val_mask = torch.zeros_like(graph.val_mask)
    other.val_mask[fit_nodes] = True
    other.test_mask = (graph.val_mask | graph.test_mask) & ~other.val_mask
    return other


def unlabelled(graph: Data) -> Tensor:
    """Every node that is in neither training nor validation and has a label to be compared with."""  # (N,)
    others: Tensor = ~graph.train_mask & ~graph.val_mask & (graph.y >= 0) & graph.labelled
    return others


def compute(cell: Cell, models: Mapping[str, Models], graph: Data) -> tuple[Record, Tensor, Tensor]:
    """The record of a cell, and its log-probabilities and labels on the test nodes; of a cell that serves, on some of them."""
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
    kept = test.nonzero().flatten()
    if cell.serve:
        started = time.process_time()
        result["served"] = _serve(cell, best, models[best.group.key], graph)
        seconds["serve"] = time.process_time() - started
        kept = kept[:: max(1, len(kept) // STORED)]
    return Record(cell.to_dict(), result, seconds, installed_versions()), log_probs[kept], y[kept]


def _serve(cell: Cell, tried: Candidate, models: Models, graph: Data) -> list[ServedRow]:
    following = next_release(cell.group.dataset, cell.serve)
    split = windows(graph, following, cell.run[0])
    out = models.elsewhere[cell.run](cell.serve)
    return serve(tried.study, split, replace(out, graph=split.graph), cell.bins, cell.run[1])


@dataclass
class Bench:
    """State shared by the cells of one job: graphs, trained models, failed trainings."""

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
