"""SCAR's class-centroid level, searched: which weight decay should the final layer have? (arXiv:2505.11335, Section 3.1)

The paper advises "a binary search", because a smaller final decay takes a model from under- to over-confident. Read as a method:
the signed validation gap

    g(lambda) = accuracy - mean confidence        rises with lambda; positive is under-confident

has a root, and bisection over log10 lambda finds it. `search="bisection"` does that; a round splits the bracket at three points
instead of one, since three replicas train in less time than three rounds. It ends when |g| is below its own standard error,
sqrt(a (1 - a) / n) for accuracy a on n validation nodes: nothing finer can be seen. `search="grid"` takes the best of a list by
validation NLL or ECE.

Everything is chosen on validation nodes. ``after`` asks the question that matters before using this: which decay is best once a
calibrator has been fitted on top?

Departures: the paper names neither the function that is bisected nor the nodes it is evaluated on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch_geometric.data import Data

from graphcal.core import Recipe
from graphcal.lab.training import Run, Training
from graphcal.lab.training.trainer import Progress
from graphcal.lab.tuning.candidates import Candidates, DecayCandidate

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
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> DecaySearch:
    """Choose the final layer's weight decay on the validation nodes.

    ``decays`` are the grid, or the two ends of the bisection (default: down from the training's own decay). ``after`` is a
    calibrator whose result is judged instead of the bare model's; ``generator`` draws its folds.

    >>> import graphcal as gc
    >>> data = gc.lab.synthetic(500, seed=0)
    >>> found = gc.lab.tune_decay(data, training=gc.lab.Training(epochs=5), decays=[1e-3, 1e-4], seeds=[0], search="grid")
    >>> found.base, len(found.curve), found.decay in [point.decay for point in found.curve]
    (0.0005, 3, True)
    """
    for name, value, choices in (("search", search, SEARCHES), ("criterion", criterion, CRITERIA)):
        if value not in choices:
            raise ValueError(f"{name}={value!r} is not one of {', '.join(choices)}")
    tried = Candidates(data, backbone, training, list(seeds), after, generator, progress)
    base = tried.base
    if base == 0 and decays is None:
        tried.add([0.0])
        note = (
            "the final layer already trains without weight decay: this lever is spent; calibrate after training instead"
        )
        return _result(tried, 0.0, search, criterion, note)
    if search == "grid":
        tried.add([base, *(decays if decays is not None else [base * f for f in FRACTIONS])])
        chosen = min(tried.curve, key=lambda point: getattr(point.scores, criterion)).decay
        note = (
            "the training's own decay is best already"
            if chosen == base
            else f"lowest validation {criterion} of the grid"
        )
    else:
        if decays is not None and (len(decays) < 2 or min(decays) <= 0):
            raise ValueError(f"bisection needs two positive ends in decays; got {list(decays)}")
        chosen, note = _bisect(tried, min(decays) if decays else base * LOWEST, max(decays) if decays else base)
    return _result(tried, chosen, search, criterion, note)


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
