"""Accuracy of a window of nodes without labels, with an interval; precision, recall and number of positives of a class.

The number of errors in the window is counted as in `counts`: chance, neighbourhood and fit. A window may differ from the nodes
that were labelled, so a fourth part is rehearsed on them. For each of four facts f (degree, agreement of neighbours' predictions,
confidence of the model, calibrated confidence) the labelled nodes are cut into fifths with shares q_b, and

    B_f²   = Σ_b q_b (mean cross-fitted residual of fifth b)² - its variance        how far calibration is off along f; at least 0
    s_f    = √(Σ_b (share of the window in fifth b - q_b)² / .8)                    how uneven the window is along f
    shift  = max_f (s_f B_f)²                                                       added to the variance of the share of errors

Prior shift.  Where the user says that the shares of classes have moved, and nothing else, EM (`priors`) estimates the new ones
from the window for the calibration and for each refit, and probabilities move with them.

No interval.  A node lies outside if its community (resolution 1) holds no labelled node of the calibration, or if its degree
is beyond theirs; on another graph than that of the fit only degrees are compared. Nothing rehearses such nodes: where they are
more than half of the window, the estimate has no interval.

A change that leaves logits and edges as they were cannot be seen.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri

from graphcal.checks import check_mask
from graphcal.communities import RESOLUTIONS
from graphcal.core import Calibration, Outputs
from graphcal.decisions.bounds import Array
from graphcal.decisions.counts import EventModel, Moments, event_class, refits_of, set_matrix
from graphcal.decisions.decision import Interval
from graphcal.decisions.priors import em_prior
from graphcal.graphs import class_name
from graphcal.residuals import SMALLEST, evenly, node_facts
from graphcal.text import Summarized, plural

FACTS = ("degree", "agreement", "confidence of the model", "confidence")
COARSEST = RESOLUTIONS.index(1.0)  # communities of the first hierarchy
MOST_OUTSIDE = 0.5  # of a window, for an interval
FEWEST = 50  # labelled nodes predicted as a class, to rehearse with them alone
UNSEEN = (
    "A change of the labels that leaves logits and edges as they were. Only random labels of the window show it: "
    "200 give about ± 5 points."
)


@dataclass(frozen=True)
class WindowAccuracy(Summarized):
    """Estimated accuracy of a window of nodes, with the parts of its variance."""

    accuracy: Interval
    chance: float  # variance of the accuracy if errors were independent
    neighbourhood: float  # because neighbours err together
    fit: float  # because few labels fit the calibration
    shift: float  # because the window differs from what was labelled
    fact: str  # in which it differs most, for the calibration
    widening: float  # of each end of the interval by the shift
    nodes: int
    labelled: int  # of them with a label, which are counted exactly
    outside: float  # share of the window that lies where nothing was labelled
    certainty: float
    positive: str | None = None  # name of the class of the three estimates that follow
    positives: Interval | None = None  # number of members
    precision: Interval | None = None  # None where no node is predicted as the class
    recall: Interval | None = None
    prior: tuple[float, ...] | None = None  # shares of the classes by EM

    @property
    def carries(self) -> bool:
        """True if the labelled nodes carry an interval; if not, every interval has the widest ends there are."""
        return self.outside <= MOST_OUTSIDE

    @property
    def same_labels(self) -> int:
        """Random labels of the window that would give an interval of the same width; 0 without an interval."""
        if not self.carries:
            return 0
        half, z = (self.accuracy.high - self.accuracy.low) / 2, float(ndtri((1 + self.certainty) / 2))
        share = min(max(self.accuracy.value, 0.02), 0.98)
        return min(self.nodes, math.ceil(share * (1 - share) * (z / max(half, 1e-9)) ** 2))

    @property
    def sentence(self) -> str:
        """The estimate in one sentence."""
        a = self.accuracy
        if not self.carries:
            return (
                f"Estimated accuracy {100 * a.value:.1f} %, without an interval: {100 * self.outside:.0f} % of the window lies "
                "where nothing was labelled. Label some of it at random."
            )
        text = f"Estimated accuracy {100 * a.value:.1f} % ({100 * a.low:.0f} to {100 * a.high:.0f} %)"
        if self.widening >= 0.005:
            points = plural(round(100 * self.widening), "point")
            text += f", of which {points} because the window differs from what was labelled ({self.fact})"
        return f"{text}."

    @property
    def unseen(self) -> str:
        """Limit of an estimate without labels: what it cannot show."""
        return UNSEEN

    @property
    def summary(self) -> list[tuple[str, str]]:
        """Headings and texts for a terminal or a notebook."""
        total = max(self.chance + self.neighbourhood + self.fit + self.shift, 1e-300)
        parts = ", ".join(
            f"{name} {100 * getattr(self, name) / total:.0f} %" for name in ("chance", "neighbourhood", "fit", "shift")
        )
        rows = [("Accuracy", self.sentence), ("Variance", parts)]
        if self.positives is not None:
            p = self.positives
            ends = f" ({p.low:,.0f} to {p.high:,.0f})" if self.carries else ""
            rows.append((str(self.positive), f"{p.value:,.0f} nodes{ends}"))
        for name, share in (("Precision", self.precision), ("Recall", self.recall)):
            if share is not None:
                text = share.text() if self.carries else f"{100 * share.value:.0f} %"
                rows.append((name, f"{text} of {self.positive}"))
        if self.carries:
            same = f"{plural(self.same_labels, 'random label')} of the {plural(self.nodes, 'node')} would tell it as precisely."
            rows.append(("Labels", same))
        return [*rows, ("Not seen", self.unseen)]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "same_labels": self.same_labels, "sentence": self.sentence, "unseen": self.unseen}


def estimate(
    calibration: Calibration,
    out: Outputs,
    window: Any,
    certainty: float = 0.9,
    *,
    positive: int | str | None = None,
    prior_shift: bool = False,
) -> WindowAccuracy:
    """Estimate the accuracy of a window of nodes without labels, with an interval.

    The labelled nodes of the calibration are a random draw of the nodes of their time. The interval covers the accuracy in that
    share of windows that differ from them in nothing, or in where they lie; it is widened for windows that differ in degree,
    agreement of neighbours or confidence. If more than half of the window lies in communities or at degrees where nothing was
    labelled, there is no interval: its ends are 0 and 1. Labelled nodes in the window count as they are.

    Parameters
    ----------
    calibration : Calibration
        Fitted with ``GraphScaling(sets=True)``.
    out : Outputs
        Outputs of the model, on the graph of the fit or on another one.
    window : mask or node numbers
        Nodes whose accuracy is estimated.
    certainty : float, default=0.9
        Share of windows whose interval covers the accuracy.
    positive : int or str, optional
        Class whose precision, recall and number of members are estimated, too.
    prior_shift : bool, default=False
        Your statement that the shares of the classes have moved and nothing else has. EM estimates them; if anything else moved,
        the estimate gets worse.

    Returns
    -------
    WindowAccuracy
        Accuracy with its interval, the four parts of the variance, the fact in which the window differs, and the share of it that
        lies where nothing was labelled.

    Examples
    --------
    >>> import graphcal
    >>> out = graphcal.example()
    >>> calibrate = graphcal.GraphScaling(sets=True).fit(out, on=out.graph.val_mask)
    >>> window = graphcal.estimate(calibrate, out, out.graph.test_mask)
    >>> 0 < window.accuracy.low < window.accuracy.value < window.accuracy.high < 1
    True
    """
    if not 0 < certainty < 1:
        raise ValueError(f"certainty must lie between 0 and 1, got {certainty:g}.")
    inside = check_mask(window, out.num_nodes, "window").cpu().numpy()
    view = _View.of(calibration, out, inside, prior_shift)
    errors, shift, fact = view.count("error", inside)
    with_shift, without = (_ends(one, certainty) for one in (_widened(errors, shift), errors))
    n, constant = float(inside.sum()), float(errors.constant[0])
    expected = float(errors.mean[0])
    accuracy = Interval(1 - (constant + expected) / n, 1 - with_shift[1] / n, 1 - with_shift[0] / n)
    widening = max(0.0, (with_shift[1] - with_shift[0] - without[1] + without[0]) / (2 * n))
    result = WindowAccuracy(
        accuracy,
        chance=float(errors.chance[0]) / n**2,
        neighbourhood=float(errors.neighbourhood[0]) / n**2,
        fit=float(errors.fit[0]) / n**2,
        shift=shift * (float(errors.size[0]) / n) ** 2,
        fact=FACTS[fact],
        widening=widening,
        nodes=int(n),
        labelled=int(errors.labelled[0]),
        outside=float(view.outside(inside).sum()) / n,
        certainty=certainty,
        prior=None if view.prior is None else tuple(view.prior.tolist()),
    )
    if positive is not None:
        result = replace(result, **_of_class(view, out, inside, positive, certainty))
    return result if result.carries else _without_intervals(result)


def _without_intervals(result: WindowAccuracy) -> WindowAccuracy:
    """The same estimates with the widest ends there are."""
    widest = {
        name: replace(one, low=0.0, high=float(result.nodes) if name == "positives" else 1.0)
        for name in ("accuracy", "positives", "precision", "recall")
        if (one := getattr(result, name)) is not None
    }
    return replace(result, widening=0.0, **widest)


def _of_class(view: _View, out: Outputs, inside: Array, positive: int | str, certainty: float) -> dict[str, Any]:
    """Members of a class, precision and recall."""
    k = event_class(out, positive)
    predicted = inside & (view.pred == k)

    def members(nodes: Array, level: float, of_prediction: int | None = None) -> Interval:
        if not nodes.any():
            return Interval(0.0, 0.0, 0.0)
        moments, shift, _ = view.count(k, nodes, of_prediction)
        return Interval(float(moments.constant[0] + moments.mean[0]), *_ends(_widened(moments, shift), level))

    half = (1 + certainty) / 2  # two intervals at half of the risk each
    hits, missed = members(predicted, half, k), members(inside & ~predicted, half)
    total = hits.value + missed.value
    recall = Interval(
        hits.value / total if total else 0.0,
        hits.low / max(hits.low + missed.high, 1e-12),
        hits.high / (hits.high + missed.low) if hits.high + missed.low else 1.0,
    )
    precision, n = None, float(predicted.sum())
    if n:
        one = members(predicted, certainty, k)
        precision = Interval(one.value / n, one.low / n, one.high / n)
    name = class_name(out.graph, k)
    return {
        "positive": f"class {name}" if name.isdigit() else name,
        "positives": members(inside, certainty),
        "precision": precision,
        "recall": recall,
    }


def _ends(moments: Moments, certainty: float) -> tuple[float, float]:
    low, high = moments.interval(certainty)
    return float(low[0]), float(high[0])


def _widened(moments: Moments, shift: float) -> Moments:
    """Moments with the variance of a shift of the share."""
    return replace(moments, fit=moments.fit + shift * moments.size**2)


@dataclass(frozen=True, eq=False)
class _View:
    """A calibration's view of one graph: facts of its nodes and of the labelled ones, and moved probabilities."""

    calibration: Any
    out: Outputs
    pred: Array  # (N,)
    facts: Array  # (N, 4)
    labelled_facts: Array  # (n, 4)
    labelled_pred: Array  # (n,)
    moved: list[Array] | None = None  # class probabilities (N, C) of the calibration and its refits after a prior shift
    prior: Array | None = None
    models: dict[str | int, EventModel] = field(default_factory=dict)

    @classmethod
    def of(cls, calibration: Any, out: Outputs, inside: Array, prior_shift: bool) -> _View:
        sets = refits_of(calibration, out)
        with torch.no_grad():
            log_probs = calibration(out).double()
        some = evenly(len(sets.nodes))
        held = sets.held_out[some].double().exp().max(1)
        conf = log_probs.exp().amax(1)[:, None]
        view = cls(
            calibration,
            out,
            log_probs.argmax(1).numpy(),
            torch.cat([node_facts(out), conf], 1).numpy(),
            torch.cat([sets.facts[some].double(), held.values[:, None]], 1).numpy(),
            held.indices.numpy(),
        )
        if not prior_shift:
            return view
        with torch.no_grad():
            context = calibration.context_of(out)
            refits = [refit.log_probs(out.logits, context).double() for refit in calibration.refits()]
        seen = np.bincount(sets.labels.numpy(), minlength=out.num_classes) + 0.5
        old, moved, priors = seen / seen.sum(), [], []
        for one in (log_probs, *refits):
            probs = one.exp().numpy()
            priors.append(em_prior(probs[inside], old))
            weighted = probs * (priors[-1] / old)
            moved.append(weighted / weighted.sum(1, keepdims=True))
        return replace(view, moved=moved, prior=priors[0])

    def model(self, event: str | int) -> EventModel:
        """The model of an event, with moved probabilities after a prior shift."""
        if event not in self.models:
            model = EventModel.of(self.calibration, self.out, event)
            if self.moved is not None:
                rows = np.arange(len(self.pred))
                chances = [1 - p[rows, self.pred] if event == "error" else p[:, int(event)] for p in self.moved]
                p = np.clip(np.stack(chances, 1), SMALLEST, 1 - SMALLEST)
                model = replace(model, prob=p[:, 0], refits=p[:, 1:])
            self.models[event] = model
        return self.models[event]

    def outside(self, nodes: Array) -> Array:
        """Unlabelled ones of ``nodes`` (N,) whose community holds no labelled node, or whose degree is beyond theirs."""
        model, sets = self.model("error"), self.calibration.sets
        degree, labelled = self.facts[:, 0], sets.facts[:, 0].double().numpy()
        beyond = (degree < labelled.min()) | (degree > labelled.max())
        if self.out.graph.get("edge_index") is not None and (model.at[COARSEST] >= 0).all():  # the graph of the fit
            part = model.groups[COARSEST]
            beyond |= ~np.isin(part, part[sets.nodes.numpy()])
        return np.asarray(nodes & ~model.observed & beyond)

    def count(self, event: str | int, nodes: Array, of_prediction: int | None = None) -> tuple[Moments, float, int]:
        """Moments of the count in ``nodes`` (N,), the variance of the share by the shift, and the number of its fact.

        The shift of nodes predicted as one class is rehearsed on labelled nodes predicted as it, where they are enough.
        """
        model = self.model(event)
        moments = model.moments(set_matrix([nodes], len(self.pred)))
        like = np.ones(len(self.labelled_pred), bool) if of_prediction is None else self.labelled_pred == of_prediction
        like = like if like.sum() >= FEWEST else np.ones_like(like)
        variance = model.held_out * (1 - model.held_out)
        open_ = nodes & ~model.observed
        if not open_.any():
            return moments, 0.0, 0
        shift = [
            rehearsed(model.residual[like], variance[like], old, new)
            for old, new in zip(self.labelled_facts[like].T, self.facts[open_].T)
        ]
        return moments, float(max(shift)), int(np.argmax(shift))


def rehearsed(residual: Array, variance: Array, labelled: Array, window: Array) -> float:
    """(s B)² of one fact: residuals (n,) and their variances by fifths of the ``labelled`` values, and the window's values (m,).

    >>> rng = np.random.default_rng(0)
    >>> fact, off = np.repeat([0.0, 1.0, 2.0, 3.0, 4.0], 100), np.repeat([0.2, 0.1, 0.0, -0.1, -0.2], 100)
    >>> like, lowest = rehearsed(off, np.zeros(500), fact, fact), rehearsed(off, np.zeros(500), fact, np.zeros(50))
    >>> like, round(lowest, 3)
    (0.0, 0.02)
    """
    ends = np.unique(np.quantile(labelled, [0.2, 0.4, 0.6, 0.8]))
    fifth, count = np.searchsorted(ends, labelled, side="right"), len(ends) + 1
    nodes = np.bincount(fifth, minlength=count)
    mean = np.bincount(fifth, residual, count) / np.maximum(nodes, 1)
    chance = np.bincount(fifth, variance, count) / np.maximum(nodes, 1) ** 2
    share = nodes / len(labelled)
    off = max(float((share * (mean**2 - chance)).sum()), 0.0)
    now = np.bincount(np.searchsorted(ends, window, side="right"), minlength=count) / len(window)
    return float(((now - share) ** 2).sum() / 0.8 * off)
