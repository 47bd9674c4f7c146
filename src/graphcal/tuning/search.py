"""SCAR's class-centroid level, searched: which weight decay should the final layer have? (arXiv:2505.11335, Section 3.1)

The paper advises "a binary search", because a smaller final decay takes a model from under- to over-confident. Read as a method:
the signed validation gap

    g(lambda) = mean confidence - accuracy        falls as lambda grows

has a root, and bisection over log10 lambda finds it. `search="bisection"` does that; a round splits the bracket at three points
instead of one, since three replicas train in less time than three rounds. It ends when |g| is below its own standard error,
sqrt(a (1 - a) / n) for accuracy a on n validation nodes: nothing finer can be seen. `search="grid"` takes the best of a list by
validation NLL or ECE.

Everything is chosen on validation nodes. ``after`` asks the question that matters before using this: which decay is best once a
calibrator has been fitted on top? It is fitted and scored on different folds of the validation nodes.

Departures: the paper names neither the function that is bisected nor the nodes it is evaluated on.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal import metrics
from graphcal.calibrators.fitting import folds
from graphcal.core import Outputs, Recipe, blinded
from graphcal.training import Replica, Run, Training, train_replicas

Progress = Callable[[int, int, int], None]
FRACTIONS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.0)  # of the base decay: the default grid
LOWEST = 0.01  # of the base decay: the lower end of the bisection, as far as the paper's sweep goes
INSIDE = 3  # points a round trains inside the bracket
NARROW = 0.05  # decades: a bracket that is not worth splitting
CRITERIA = ("nll", "ece")
SEARCHES = ("bisection", "grid")
FOLDS = 5


@dataclass(frozen=True)
class Candidate:
    """One decay on the validation nodes: means over seeds."""

    decay: float
    nll: float
    ece: float
    accuracy: float
    conf: float
    nll_sd: float

    @property
    def gap(self) -> float:
        """Mean confidence minus accuracy: negative is under-confident."""
        return self.conf - self.accuracy


@dataclass(frozen=True, eq=False)
class DecaySearch:
    """The chosen decay of the final layer, the curve behind it, and the runs that were trained with it."""

    decay: float
    base: float  # the decay that the training would have used
    curve: tuple[Candidate, ...]  # by falling decay
    search: str
    criterion: str
    note: str
    runs: list[Run]

    @property
    def spent(self) -> bool:
        """The final layer trains without decay already: there is nothing left to reduce."""
        return self.base == 0

    def to_dict(self) -> dict[str, Any]:
        curve = [{**asdict(point), "gap": point.gap} for point in self.curve]
        names = ("decay", "base", "search", "criterion", "note", "spent")
        return {**{name: getattr(self, name) for name in names}, "curve": curve}


def tune_decay(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    decays: Sequence[float] | None = None,
    seeds: Iterable[int] = range(3),
    search: str = "bisection",
    criterion: str = "nll",
    after: Recipe | None = None,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> DecaySearch:
    """Choose the final layer's weight decay on the validation nodes.

    ``decays`` are the grid, or the two ends of the bisection (default: down from the training's own decay). ``after`` is a
    calibrator whose result is judged instead of the bare model's; ``generator`` draws its folds.
    """
    for name, value, choices in (("search", search, SEARCHES), ("criterion", criterion, CRITERIA)):
        if value not in choices:
            raise ValueError(f"{name}={value!r} is not one of {', '.join(choices)}")
    trainer = _Trainer(data, backbone, training, list(seeds), after, generator, progress)
    base = trainer.base
    if base == 0 and decays is None:
        trainer.add([0.0])
        note = (
            "the final layer already trains without weight decay: this lever is spent; calibrate after training instead"
        )
        return trainer.result(0.0, search, criterion, note)
    if search == "grid":
        trainer.add([base, *(decays if decays is not None else [base * f for f in FRACTIONS])])
        chosen = min(trainer.curve, key=lambda point: getattr(point, criterion)).decay
        note = (
            "the training's own decay is best already"
            if chosen == base
            else f"lowest validation {criterion} of the grid"
        )
    else:
        if decays is not None and (len(decays) < 2 or min(decays) <= 0):
            raise ValueError(f"bisection needs two positive ends in decays; got {list(decays)}")
        chosen, note = _bisect(trainer, min(decays) if decays else base * LOWEST, max(decays) if decays else base)
    return trainer.result(chosen, search, criterion, note)


def _bisect(trainer: _Trainer, low: float, high: float) -> tuple[float, str]:
    """The decay in [low, high] whose validation gap is nearest to zero, and why the search ended there."""
    trainer.add([low, *_between(low, high), high])
    while True:
        points = trainer.curve  # by falling decay: the gap rises along it
        nearest = min(points, key=lambda point: abs(point.gap))
        error = math.sqrt(nearest.accuracy * (1 - nearest.accuracy) / trainer.nodes)
        if abs(nearest.gap) <= error:
            return nearest.decay, f"validation gap {nearest.gap:+.3f}, within its standard error of {error:.3f}"
        if all(point.gap > 0 for point in points):
            return points[
                0
            ].decay, f"over-confident at every decay up to {high:g}: reducing it further would make it worse"
        if all(point.gap < 0 for point in points):
            return points[-1].decay, f"under-confident at every decay down to {low:g}: this lever is too short here"
        upper, lower = next((a.decay, b.decay) for a, b in pairwise(points) if a.gap < 0 < b.gap or b.gap < 0 < a.gap)
        if math.log10(upper / lower) < NARROW:
            return nearest.decay, f"validation gap {nearest.gap:+.3f} at the end of the bisection"
        trainer.add(_between(lower, upper))


def _between(low: float, high: float) -> list[float]:
    return [low * (high / low) ** (k / (INSIDE + 1)) for k in range(1, INSIDE + 1)]


class _Trainer:
    """Trains decays times seeds as replicas and keeps the curve."""

    def __init__(
        self,
        data: Data,
        backbone: Any,
        training: Training | None,
        seeds: list[int],
        after: Recipe | None,
        generator: torch.Generator | None,
        progress: Progress | None,
    ) -> None:
        self.data, self.backbone, self.seeds, self.after, self.progress = data, backbone, seeds, after, progress
        self.training = training or Training()
        self.blind = blinded(data)
        self.blind.classes = int(data.get("classes") or int(data.y.max()) + 1)
        self.nodes = int(data.val_mask.sum())
        generator = generator or torch.Generator().manual_seed(0)
        self.folds = folds(self.nodes, FOLDS, generator)
        self.base = Replica(0).decays(self.training)[1]
        self.runs: dict[float, list[Run]] = {}
        self.points: dict[float, Candidate] = {}

    @property
    def curve(self) -> list[Candidate]:
        return [self.points[decay] for decay in sorted(self.points, reverse=True)]

    def add(self, decays: Sequence[float]) -> None:
        new = [d for d in dict.fromkeys(decays) if d not in self.points]
        replicas = [Replica(seed, final_weight_decay=d) for d in new for seed in self.seeds]
        runs = train_replicas(self.blind, self.backbone, self.training, replicas, self.progress)
        for k, decay in enumerate(new):
            self.runs[decay] = runs[k * len(self.seeds) : (k + 1) * len(self.seeds)]
            self.points[decay] = self._judged(decay)

    def _judged(self, decay: float) -> Candidate:
        y = self.data.y[self.data.val_mask]
        seen = [held_out(run.outputs, self.data.val_mask, self.after, self.folds) for run in self.runs[decay]]
        nlls = [metrics.nll(log_probs, y) for log_probs in seen]
        return Candidate(
            decay,
            statistics.fmean(nlls),
            statistics.fmean(metrics.ece(log_probs, y) for log_probs in seen),
            statistics.fmean(metrics.accuracy(log_probs, y) for log_probs in seen),
            statistics.fmean(float(log_probs.max(-1).values.exp().mean()) for log_probs in seen),
            statistics.stdev(nlls) if len(nlls) > 1 else 0.0,
        )

    def result(self, decay: float, search: str, criterion: str, note: str) -> DecaySearch:
        runs = [replace(run, outputs=replace(run.outputs, graph=self.data)) for run in self.runs[decay]]
        return DecaySearch(decay, self.base, tuple(self.curve), search, criterion, note, runs)


def held_out(out: Outputs, val: Tensor, after: Recipe | None, parts: list[Tensor]) -> Tensor:
    """Log-probabilities of the validation nodes, each calibrated by a fit on the other folds."""  # (n, C)
    if after is None:
        return out.logits[val].log_softmax(-1)
    nodes = val.nonzero().flatten()
    log_probs = torch.empty(len(nodes), out.classes, dtype=out.logits.dtype)
    for part in parts:
        on = val.clone()
        on[nodes[part]] = False
        log_probs[part] = after.fit(out, on=on)(out).detach()[nodes[part]]
    return log_probs
