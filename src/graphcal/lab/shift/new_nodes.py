"""Measure calibration on nodes that came after the fit, and with sampled neighbours.

    waves      the model and the calibrations come from the graph without the new nodes; after each of five waves the nodes that
               came with it are measured, with all their neighbours
    sampled    all new nodes at the end, their logits from sampled batches (three fan-outs), calibrated in three ways:
               table   what is read off the graph comes from the whole graph, computed once (`Calibration.context`)
               plain   nothing is known of the neighbourhood (rows of NaN)
               batch   it is read off the sampled batch, whose neighbourhoods are cut: the mistake that the other two avoid

Rows are those of `graphcal.lab.shift.experiments`: one per method, fractions.

Nodes that arrive after a calibration was fitted: hidden with their edges while training and fitting, then let in by waves.

At most a third of the nodes, drawn from the test set, are new; the others stay, their labels unread. The nodes of the result are
numbered in the order of arrival, so that the graph at any time is its first nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import Calibration, Outputs, Recipe
from graphcal.files import write_atomically
from graphcal.lab.shift.experiments import TableRows, measured_rows, study_of
from graphcal.lab.training import NeighborSampler, Run, Training, train
from graphcal.methods import CALIBRATORS
from graphcal.observation import observe
from graphcal.observation.batches import GraphParts
from graphcal.study import FittedRun, Study

WAVES = 5
NEW = 1 / 3  # of all nodes, at most


@dataclass(frozen=True, eq=False)
class Arrivals:
    """A graph whose nodes are numbered in the order of arrival; ``sizes[w]`` nodes are there after wave w, wave 0 first."""

    graph: Data
    sizes: tuple[int, ...]  # WAVES + 1 numbers

    def after(self, wave: int) -> Data:
        """The graph as it is then. Its test nodes are those that came with the wave; before the first, there is none."""
        end = self.sizes[wave]
        there = GraphParts(self.graph).among(torch.arange(end))
        there.test_mask = torch.zeros(end, dtype=torch.bool)
        if wave > 0:
            there.test_mask[self.sizes[wave - 1] :] = True
        return there

    def complete(self) -> Data:
        """The graph at the end. Its test nodes are all that came."""
        last = self.after(len(self.sizes) - 1)
        last.test_mask[self.sizes[0] :] = True
        return last


def arrivals(data: Data, generator: torch.Generator, waves: int = WAVES) -> Arrivals:
    """The graph with its new nodes last, in ``waves`` of nearly equal size."""
    nodes, test = int(data.num_nodes), data.test_mask.nonzero().flatten()
    new = test[torch.randperm(len(test), generator=generator)][: int(NEW * nodes)]
    if len(new) < waves:
        raise ValueError(f"{len(new)} test nodes cannot arrive in {waves} waves")
    is_new = torch.zeros(nodes, dtype=torch.bool)
    is_new[new] = True
    order = torch.cat([(~is_new).nonzero().flatten(), new])
    ends = [nodes - len(new) + len(new) * wave // waves for wave in range(waves + 1)]
    return Arrivals(GraphParts(data).among(order), tuple(ends))


FANOUTS = ((5, 5), (10, 10), (25, 25))
WAYS = ("table", "plain", "batch")
METHODS = ("none", "ts", "scar", "graph-scaling")
BATCH = 512


def inductive(
    data: Data,
    backbone: Any = "sage",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    methods: Mapping[str, Recipe] | None = None,
    folder: str | Path | None = None,
) -> TableRows:
    """The rows of both parts, means over seeds. A seed's rows are kept in ``folder`` and not computed again."""
    recipes = {name: CALIBRATORS[name]() for name in METHODS} if methods is None else methods
    return mean_rows([_kept(data, backbone, training, seed, recipes, folder) for seed in seeds])


def _kept(
    data: Data, backbone: Any, training: Training | None, seed: int, methods: Mapping[str, Recipe], folder: Any
) -> TableRows:
    name = data.get("name", "graph")
    path = None if folder is None else Path(folder) / f"{name}-{backbone}-{seed}.json"
    if path is not None and path.exists():
        rows: TableRows = json.loads(path.read_text())
        if {row["method"] for row in rows} == set(methods):
            return rows
    rows = one_seed(data, backbone, training, seed, methods)
    if path is not None:
        write_atomically(path, json.dumps(rows) + "\n")
    return rows


def one_seed(
    data: Data, backbone: Any, training: Training | None, seed: int, methods: Mapping[str, Recipe]
) -> TableRows:
    """Both parts for one training; the seed also draws who arrives when, and the samples."""
    coming = arrivals(data, torch.Generator().manual_seed(seed))
    first_graph = coming.after(0)
    runs = train(first_graph, backbone, training, [seed])
    study = study_of(runs, first_graph, methods)
    rows: TableRows = []
    for wave in range(1, len(coming.sizes)):
        views = [observe(run.model, coming.after(wave)) for run in runs]
        rows += measured_rows(study.reapply(views), shift="wave", wave=wave)
    complete = coming.complete()
    (run,) = runs
    whole = study.reapply([observe(run.model, complete)])
    rows += measured_rows(whole, shift="sampled", fanout="all", way="table")
    for fanouts in FANOUTS:
        rows += sampled_rows(whole, run, complete, fanouts, seed)
    return rows


def sampled_rows(whole: Study, run: Run, graph: Data, fanouts: Sequence[int], seed: int) -> TableRows:
    """Every method on the logits of sampled batches of one fan-out, in each of the three ways."""
    generator = torch.Generator().manual_seed(seed)
    batches = list(NeighborSampler(graph, fanouts, BATCH, generator=generator))
    (seen,) = (observe(run.model, graph, loader=batches),)
    rows: TableRows = []
    for way in WAYS:
        fitted = {
            name: (_served(one.calibration, way, whole.outputs[0], seen, batches, run),)
            for name, (one,) in whole.fitted.items()
        }
        study = Study(whole.graph, (seen,), whole.recipes, fitted)
        rows += measured_rows(study, shift="sampled", fanout=str(fanouts[0]), way=way)
    return rows


def _served(
    calibration: Calibration, way: str, whole: Outputs, seen: Outputs, batches: Sequence[Data], run: Run
) -> FittedRun:
    with torch.no_grad():
        if way == "batch":
            log_probs = _off_the_batch(calibration, seen, batches, run)
        else:
            table = calibration.context_of(whole)
            rows = table if way == "table" else torch.full_like(table, torch.nan)
            log_probs = calibration.log_probs(seen.logits, rows)
    return FittedRun(calibration, log_probs, 0.0, 0.0)


def _off_the_batch(calibration: Calibration, seen: Outputs, batches: Sequence[Data], run: Run) -> Tensor:
    log_probs = torch.empty_like(seen.logits)
    for batch in batches:
        seeds = int(batch.batch_size)
        graph = Data(x=batch.x, edge_index=batch.edge_index, train_mask=batch.train_mask)
        logits = run.model(batch.x, batch.edge_index)
        log_probs[batch.n_id[:seeds]] = calibration(Outputs(logits, graph))[:seeds]
    return log_probs


def mean_rows(by_seed: Sequence[TableRows]) -> TableRows:
    """Means over seeds of rows that differ in nothing but their numbers."""
    joined: TableRows = []
    for same in zip(*by_seed):
        numbers = {k for k, v in same[0].items() if isinstance(v, float)}
        joined.append({k: fmean(row[k] for row in same) if k in numbers else v for k, v in same[0].items()})
    return joined
