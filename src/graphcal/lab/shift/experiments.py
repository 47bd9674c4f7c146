"""Measure calibrators on wrong predictions, unknown classes and changed graphs. Each table is a list of rows, one per method.

    wrong_predictions    what does a calibration do to the confidence of wrong predictions?
    out_of_distribution  what happens with an unknown class, other features, other edges?

Calibrators are fitted on validation nodes of the unchanged graph, without its test labels, which are read only to measure.

Three ways in which the graph at hand can differ from the graph that was calibrated.

    without_class        a class that no training or validation node had shows up at test time
    with_mixed_features  later nodes' features are not like those seen: a share of each row comes from another node
    with_rewired_edges   later nodes' edges are not like those seen: a share of them leads elsewhere

"Later" nodes are all outside the training and the validation set. Those two stay as they were: the shift comes at test time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import Recipe
from graphcal.lab.training import Run, Training, train
from graphcal.methods import SCAR, GraphScaling, TemperatureScaling, Uncalibrated
from graphcal.metrics import mean_scores
from graphcal.metrics.bins import confidence
from graphcal.metrics.selective import auroc_of, grouped
from graphcal.observation import observe
from graphcal.study import Study


def without_class(data: Data, label: int) -> Data:
    """The same graph with ``label`` unknown: its nodes leave the training, validation and test sets and are `unknown_mask`.

    The classes above it move down by one; nodes of the unknown class are labelled -1.
    """
    classes = int(data.get("num_classes") or int(data.y.max()) + 1)
    if not 0 <= label < classes:
        raise ValueError(f"class {label} does not exist: the graph has classes 0..{classes - 1}")
    if classes < 3:
        raise ValueError(f"leaving out a class needs at least three; the graph has {classes}")
    reduced = copy.copy(data)
    unknown = data.y == label
    reduced.y = torch.where(data.y > label, data.y - 1, data.y).masked_fill(unknown, -1)
    reduced.num_classes = classes - 1
    reduced.unknown_mask = unknown & data.test_mask
    for name in ("train_mask", "val_mask", "test_mask"):
        reduced[name] = data[name] & ~unknown
    return reduced


def later(data: Data) -> Tensor:
    """Nodes that neither training nor validation saw."""  # (N,)
    seen: Tensor = data.train_mask | data.val_mask
    return ~seen


def with_mixed_features(data: Data, share: float, generator: torch.Generator) -> Data:
    """Each later node takes a random ``share`` of its features from another, random node."""
    _check_share(share)
    if data.x.layout != torch.strided:
        raise ValueError(f"mixing features needs dense features x (N, F); got a tensor with layout {data.x.layout}")
    changed = copy.copy(data)
    other = data.x[torch.randint(len(data.x), (len(data.x),), generator=generator)]
    taken = (torch.rand(data.x.shape, generator=generator) < share) & later(data)[:, None]
    changed.x = torch.where(taken, other, data.x)
    return changed


def with_rewired_edges(data: Data, share: float, generator: torch.Generator) -> Data:
    """A random ``share`` of the edges between later nodes moves one end to another, random later node.

    Both directions of an edge move together; edges come back in both directions, without self loops.
    """
    _check_share(share)
    row, col = torch.unique(data.edge_index.sort(0).values, dim=1)  # each undirected edge once
    pool = later(data).nonzero().flatten()
    moved = later(data)[row] & later(data)[col] & (torch.rand(len(row), generator=generator) < share)
    col = torch.where(moved, pool[torch.randint(len(pool), (len(col),), generator=generator)], col)
    pairs = torch.stack([row, col])[:, row != col]
    changed = copy.copy(data)
    changed.edge_index = torch.unique(torch.cat([pairs, pairs.flip(0)], 1), dim=1)
    return changed


def _check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in [0, 1]; got {share}")


METHODS: dict[str, Recipe] = {
    "none": Uncalibrated(),
    "ts": TemperatureScaling(),
    "scar": SCAR(),
    "graph-scaling": GraphScaling(),
}
SHARES = (0.0, 0.5, 1.0)
TableRows = list[dict[str, Any]]


def study_of(runs: Sequence[Run], data: Data, methods: Mapping[str, Recipe]) -> Study:
    """The methods, fitted on the validation nodes of every run."""
    return Study.of([run.outputs for run in runs], methods, on=data.val_mask)


def measured_rows(study: Study, **labels: Any) -> TableRows:
    """A row per method, measured on the test nodes; ``labels`` go before the numbers."""
    test = study.graph.test_mask
    rows = []
    for name, scores in study.scores(test).items():
        moved = [lp.argmax(-1) != out.pred for lp, out in zip(study.log_probs(name), study.outputs)]
        changed = fmean(float(one[test].double().mean()) for one in moved)
        rows.append({**labels, "method": name, **mean_scores(scores).to_dict(), "changed": changed})
    return rows


def wrong_predictions(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    methods: Mapping[str, Recipe] = METHODS,
) -> TableRows:
    """Confidence on right and on wrong predictions, before and after each method."""
    return measured_rows(study_of(train(data, backbone, training, seeds), data, methods))


def out_of_distribution(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    shares: Sequence[float] = SHARES,
    unknown: int = 0,
    methods: Mapping[str, Recipe] = METHODS,
    generator: torch.Generator | None = None,
) -> TableRows:
    """Each method under mixed features, rewired edges (by share; 0 is the graph as it is) and an unknown class.

    Rows of the unknown class: ``confidence_unknown`` is the mean confidence on its nodes, where every answer is wrong, and
    ``auroc_unknown`` how well low confidence gives them away.
    """
    seeds = list(seeds)
    generator = generator or torch.Generator().manual_seed(0)
    runs = train(data, backbone, training, seeds)
    study = study_of(runs, data, methods)
    rows: TableRows = []
    for shift, change in (("features", with_mixed_features), ("edges", with_rewired_edges)):
        for share in shares:
            changed = change(data, share, generator)
            views = [observe(run.model, changed) for run in runs]
            rows += measured_rows(study.reapply(views), shift=shift, share=share)
    reduced = without_class(data, unknown)
    return rows + _unknown_class(study_of(train(reduced, backbone, training, seeds), reduced, methods))


def _unknown_class(study: Study) -> TableRows:
    """The rows of a graph from which a class was left out, with the confidence on that class."""
    test, unknown = study.graph.test_mask, study.graph.unknown_mask
    rows = measured_rows(study, shift="unknown class", share=1.0)
    for row in rows:
        conf = [confidence(lp)[0] for lp in study.log_probs(row["method"])]
        row["confidence_unknown"] = fmean(float(c[unknown].mean()) for c in conf)
        row["auroc_unknown"] = fmean(separation(c[test], c[unknown]) for c in conf)
    return rows


def separation(known_scores: Tensor, unknown: Tensor) -> float:
    """Probability that a known node is more confident than an unknown one."""
    is_known = torch.cat([torch.ones_like(known_scores), torch.zeros_like(unknown)]).double()
    return auroc_of(*grouped(torch.cat([known_scores, unknown]), is_known))
