"""Search the weight decay of the final layer: SCAR's class-centroid level (arXiv:2505.11335, Section 3.1).

`tune_decay` chooses a decay on validation nodes. `sweep_decay` shows what a decay does to accuracy and confidence.

*Search.* The paper advises "a binary search", because a smaller final decay takes a model from under- to over-confident. Read as
a method: the signed validation gap

    g(lambda) = accuracy - mean confidence        rises with lambda; positive is under-confident

has a root, and bisection over log10 lambda finds it. `search="bisection"` does that; a round splits the bracket at three points
instead of one, since three replicas train in less time than three rounds. It ends when |g| is below its own standard error,
sqrt(a (1 - a) / n) for accuracy a on n validation nodes: nothing finer can be seen. `search="grid"` takes the best of a list by
validation NLL or ECE.

Everything is chosen on validation nodes. ``after`` asks the question that matters before using this: which decay is best once a
calibrator has been fitted on top?

Candidates train together as replicas, with test labels hidden. With a calibrator on top, each validation node is judged by a fit
on the other folds (`graphcal.study.held_out`).

Departures: the paper names neither the function that is bisected nor the nodes it is evaluated on.

*Sweep*, by where the decay acts (arXiv:2505.11335, figures on lambda and on global decay):

    final    the final layer only, all others at the training's own decay        the paper's lever
    global   every layer                                                         what people tune otherwise
    others   every layer but the final one, which keeps the training's own       a reviewer's question

All decays, places and seeds train together as replicas. A sweep is for looking, so it may be measured on test nodes; choosing a
decay is `tune_decay`'s job and happens on validation nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import stdev
from typing import Any

import torch
from torch_geometric.data import Data

from graphcal.checks import check_mask
from graphcal.core import Recipe, hide_test_labels
from graphcal.lab.models import backbone_of
from graphcal.lab.training import Replica, Run, Training, default_training, train_replicas
from graphcal.methods import Uncalibrated
from graphcal.methods.solvers.node_order import kfold
from graphcal.metrics import Scores, mean_scores, score
from graphcal.study import Study, held_out

FOLDS = 5


@dataclass(frozen=True)
class DecayCandidate:
    """One decay on the validation nodes, with the scores of every seed."""

    decay: float
    by_seed: tuple[Scores, ...]

    @cached_property
    def scores(self) -> Scores:
        """Means over seeds."""
        return mean_scores(self.by_seed)

    @property
    def nll_sd(self) -> float:
        return stdev(s.nll for s in self.by_seed) if len(self.by_seed) > 1 else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {"decay": self.decay, **self.scores.to_dict(), "nll_sd": self.nll_sd}


def training_or_default(backbone: Any, training: Training | None) -> Training:
    """The settings that `train` would use."""
    return training or default_training(backbone_of(backbone))


class Candidates:
    """The decays tried so far: trained with all seeds as replicas, judged on the validation nodes, kept with their runs."""

    def __init__(
        self, data: Data, backbone: Any, training: Training | None, seeds: list[int], after: Recipe | None
    ) -> None:
        self.data, self.backbone, self.seeds = data, backbone, seeds
        self.after = after or Uncalibrated()
        self.training = training_or_default(backbone, training)
        self.blind = hide_test_labels(data)
        self.blind.num_classes = int(data.get("num_classes") or int(data.y.max()) + 1)
        self.nodes = int(data.val_mask.sum())
        self.folds = kfold(self.nodes, FOLDS, torch.Generator().manual_seed(0))
        self.base = Replica(0).weight_decays(self.training)[1]
        self.runs: dict[float, list[Run]] = {}
        self.points: dict[float, DecayCandidate] = {}

    @property
    def curve(self) -> list[DecayCandidate]:
        """Candidates by falling decay."""
        return [self.points[decay] for decay in sorted(self.points, reverse=True)]

    def add(self, decays: Sequence[float]) -> None:
        """Train and judge the decays that are new."""
        new = [d for d in dict.fromkeys(decays) if d not in self.points]
        replicas = [Replica(seed, final_weight_decay=d) for d in new for seed in self.seeds]
        runs = train_replicas(self.blind, self.backbone, self.training, replicas)
        val, y = self.data.val_mask, self.data.y[self.data.val_mask]
        for k, decay in enumerate(new):
            runs_of_decay = self.runs[decay] = runs[k * len(self.seeds) : (k + 1) * len(self.seeds)]
            seen = [held_out(run.outputs, self.after, val, self.folds) for run in runs_of_decay]
            self.points[decay] = DecayCandidate(decay, tuple(score(log_probs, y) for log_probs in seen))


PAPER_DECAYS = (5e-3, 5e-4, 5e-5, 5e-6)
PLACES = ("final", "global", "others")


def sweep_decay(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    decays: Sequence[float] = PAPER_DECAYS,
    seeds: Iterable[int] = range(3),
    which: str | Sequence[str] = "both",
) -> list[dict[str, Any]]:
    """Train with each decay and return a row per place and decay, with means over seeds and the sd of accuracy and ECE.

    ``which``: final, global, others, several of them, or "both" for the paper's final and global.
    """
    places = ("final", "global") if which == "both" else (which,) if isinstance(which, str) else tuple(which)
    for layers in places:
        if layers not in PLACES:
            raise ValueError(f"which={layers!r} is not one of {', '.join(PLACES)}, both")
    mask = check_mask(data.get("test_mask"), int(data.num_nodes), "test_mask")
    training = training_or_default(backbone, training)
    seeds = list(seeds)
    cells = [(layers, decay) for layers in places for decay in decays]
    replicas = [_replica(layers, decay, seed, training) for layers, decay in cells for seed in seeds]
    runs = train_replicas(data, backbone, training, replicas)
    study = Study.of([run.outputs for run in runs], {"none": Uncalibrated()}, on=data.val_mask)
    scores = study.scores(mask)["none"]
    rows = []
    for k, (layers, decay) in enumerate(cells):
        scores_of_decay = scores[k * len(seeds) : (k + 1) * len(seeds)]
        row = {"which": layers, "decay": decay, **mean_scores(scores_of_decay).to_dict()}
        for name in ("accuracy", "ece"):
            row[f"{name}_sd"] = (
                stdev(getattr(one, name) for one in scores_of_decay) if len(scores_of_decay) > 1 else 0.0
            )
        rows.append(row)
    return rows


def _replica(layers: str, decay: float, seed: int, training: Training) -> Replica:
    _, final_decay = Replica(seed).weight_decays(training)
    if layers == "final":
        return Replica(seed, final_weight_decay=decay)
    return Replica(seed, weight_decay=decay, final_weight_decay=decay if layers == "global" else final_decay)


FRACTIONS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.0)  # of the base decay: the default grid
LOWEST = 0.01  # of the base decay: the lower end of the bisection, as far as the paper's sweep goes
INSIDE = 3  # points a round trains inside the bracket
NARROW = 0.05  # decades: a bracket that is not worth splitting
CRITERIA = ("nll", "ece")
SEARCHES = ("bisection", "grid")


@dataclass(frozen=True, eq=False)
class DecaySearch:
    """The chosen decay of the final layer, the curve behind it, and the runs that were trained with it."""

    decay: float
    base: float  # the decay that the training would have used
    curve: tuple[DecayCandidate, ...]  # by falling decay
    search: str
    criterion: str
    note: str
    runs: list[Run]

    @property
    def spent(self) -> bool:
        """The final layer trains without decay already: there is nothing left to reduce."""
        return self.base == 0

    def to_dict(self) -> dict[str, Any]:
        names = ("decay", "base", "search", "criterion", "note", "spent")
        return {**{name: getattr(self, name) for name in names}, "curve": [point.to_dict() for point in self.curve]}


def tune_decay(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    decays: Sequence[float] | None = None,
    seeds: Iterable[int] = range(3),
    search: str = "bisection",
    criterion: str = "nll",
    after: Recipe | None = None,
) -> DecaySearch:
    """Choose the final layer's weight decay on the validation nodes.

    ``decays`` are the grid, or the two ends of the bisection (default: down from the training's own decay). ``after`` is a
    calibrator whose result is judged instead of the bare model's.

    >>> import graphcal
    >>> data = graphcal.lab.synthetic(500, seed=0)
    >>> short = graphcal.lab.Training(epochs=5)
    >>> result = graphcal.lab.tune_decay(data, training=short, decays=[1e-3, 1e-4], seeds=[0], search="grid")
    >>> result.base, len(result.curve), result.decay in [point.decay for point in result.curve]
    (0.0005, 3, True)
    """
    for name, value, choices in (("search", search, SEARCHES), ("criterion", criterion, CRITERIA)):
        if value not in choices:
            raise ValueError(f"{name}={value!r} is not one of {', '.join(choices)}")
    tried = Candidates(data, backbone, training, list(seeds), after)
    base = tried.base
    if base == 0 and decays is None:
        tried.add([0.0])
        note = (
            "the final layer already trains without weight decay: this lever is spent; calibrate after training instead"
        )
        return _result(tried, 0.0, search, criterion, note)
    if search == "grid":
        tried.add([base, *(decays if decays is not None else [base * f for f in FRACTIONS])])
        best_decay = min(tried.curve, key=lambda point: getattr(point.scores, criterion)).decay
        note = (
            "the training's own decay is best already"
            if best_decay == base
            else f"lowest validation {criterion} of the grid"
        )
    else:
        if decays is not None and (len(decays) < 2 or min(decays) <= 0):
            raise ValueError(f"bisection needs two positive ends in decays; got {list(decays)}")
        best_decay, note = _bisect(tried, min(decays) if decays else base * LOWEST, max(decays) if decays else base)
    return _result(tried, best_decay, search, criterion, note)


def _bisect(tried: Candidates, low: float, high: float) -> tuple[float, str]:
    """The decay in [low, high] whose validation gap is nearest to zero, and why the search ended there."""
    tried.add([low, *_between(low, high), high])
    while True:
        points = tried.curve  # by falling decay: the gap falls along it, but for noise
        gaps = [point.scores.signed_gap for point in points]
        k = min(range(len(points)), key=lambda k: abs(gaps[k]))
        nearest, gap, accuracy = points[k].decay, gaps[k], points[k].scores.accuracy
        error = math.sqrt(accuracy * (1 - accuracy) / tried.nodes)
        if abs(gap) <= error:
            return nearest, f"validation gap {gap:+.3f}, within its standard error of {error:.3f}"
        if all(gap < 0 for gap in gaps):
            note = f"over-confident at every decay up to {high:g}: reducing it further would make it worse"
            return points[0].decay, note
        if all(gap > 0 for gap in gaps):
            return nearest, f"under-confident at every decay down to {low:g}: this lever is too short here"
        turn = next(k for k, (a, b) in enumerate(pairwise(gaps)) if a < 0 < b or b < 0 < a)
        upper, lower = points[turn].decay, points[turn + 1].decay
        if math.log10(upper / lower) < NARROW:
            return nearest, f"validation gap {gap:+.3f} at the end of the bisection"
        tried.add(_between(lower, upper))


def _between(low: float, high: float) -> list[float]:
    return [low * (high / low) ** (k / (INSIDE + 1)) for k in range(1, INSIDE + 1)]


def _result(tried: Candidates, decay: float, search: str, criterion: str, note: str) -> DecaySearch:
    runs = [replace(run, outputs=replace(run.outputs, graph=tried.data)) for run in tried.runs[decay]]
    return DecaySearch(decay, tried.base, tuple(tried.curve), search, criterion, note, runs)
