"""`gc.decide`: from log-probabilities and a few labels to the nodes that may be acted on alone.

    decide(log_probs, y, certify=mask, pool=mask, max_error=0.05, certainty=0.95, random_draw=True)
    decide(out, recipe, certify=0.5, ...)         fits on one half of the validation nodes, certifies with the other
    decide(out, calibration, certify=mask, ...)   a calibration that was fitted elsewhere

What is promised is chosen by ``promise``: of the nodes of the pool (`thresholds`, realised errors), of future nodes of the same
source, or on average over draws (`selection`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, Recipe, blinded
from graphcal.decisions.bounds import Array
from graphcal.decisions.decision import Decision, Interval, Plan, Promise
from graphcal.decisions.masks import (
    check_apart,
    check_certify_labels,
    check_enough,
    check_promise,
    population_of,
    random_split,
)
from graphcal.decisions.selection import select_on_average
from graphcal.decisions.thresholds import NestedSets, certified_set, nested_sets, with_more_labels
from graphcal.metrics.bins import confidence
from graphcal.metrics.inputs import check_log_probs

PROMISES = ("pool", "future", "average")


@overload
def decide(predictions: Tensor, truth: Tensor, *, certify: Tensor, **options: Any) -> Decision: ...
@overload
def decide(
    predictions: Outputs, truth: Calibration | Recipe, *, certify: Tensor | float, **options: Any
) -> Decision: ...
def decide(
    predictions: Tensor | Outputs,
    truth: Tensor | Calibration | Recipe,
    *,
    certify: Tensor | float,
    pool: Tensor | None = None,
    max_error: float = 0.05,
    certainty: float = 0.95,
    random_draw: bool = False,
    promise: Promise = "pool",
    positive: int | str | None = None,
    names: Sequence[str] | None = None,
    fitted: Tensor | None = None,
    strata: Tensor | None = None,
    held: Tensor | None = None,
    cross_fit: bool = False,
    seed: int = 0,
) -> Decision:
    """Which nodes may be decided automatically with at most ``max_error`` errors?

    ``certify``: labelled nodes that did not train, stop or calibrate the model (those are ``fitted``), drawn at random from the
    pool, or within ``strata`` (N,) of it; ``random_draw=True`` states that they were, and only then the result is a guarantee.
    ``pool``: the nodes to decide. ``positive``: select this class (by number, or by one of ``names``) with precision
    1 - ``max_error``. ``held``: nodes that are never approved. With `Outputs` and a recipe, ``certify`` may be the share of the
    validation nodes that certifies while the others fit; ``cross_fit`` also does it the other way round, at half the risk
    each, and keeps the larger result: an exact promise that uses every label twice, once per way.

    >>> g = torch.Generator().manual_seed(0)
    >>> conf = 1 - 0.5 * torch.rand(4000, generator=g) ** 3
    >>> y = (torch.rand(4000, generator=g) > conf).long()             # class 0 is right as often as its confidence says
    >>> log_probs = torch.stack([conf, 1 - conf], dim=1).log()
    >>> certify = torch.arange(4000) < 500                            # the nodes come in random order
    >>> decision = decide(log_probs, y, certify=certify, max_error=0.05, random_draw=True)
    >>> decision.num_approved, decision.errors_at_most, int((y[decision.approved] != 0).sum())
    (2423, 121, 99)
    """
    if isinstance(predictions, Outputs):
        rest = {
            "pool": pool,
            "max_error": max_error,
            "certainty": certainty,
            "random_draw": random_draw,
            "promise": promise,
        }
        rest |= {"positive": positive, "names": names, "strata": strata}
        return _of_model(predictions, truth, certify, fitted, held, cross_fit, seed, rest)
    if not isinstance(truth, Tensor) or not isinstance(certify, Tensor):
        raise ValueError(
            "decide takes (log_probs, y, certify=mask), or (outputs, calibration or recipe): a share for certify splits the "
            f"validation nodes of outputs. Got y of {type(truth).__name__} and certify of {type(certify).__name__}"
        )
    check_promise(max_error, certainty)
    if promise not in PROMISES:
        raise ValueError(f"promise must be one of {', '.join(PROMISES)}, got {promise!r}")
    check_log_probs(predictions)
    log_probs, y = predictions.detach().cpu(), truth.cpu()
    masks = [None if m is None else m.cpu() for m in (certify, pool, fitted, strata, held)]
    certify, pool, fitted, strata, held = masks  # type: ignore[assignment]
    population = population_of(certify, pool, fitted, len(log_probs))
    check_certify_labels(y, certify, log_probs.shape[1])
    if promise != "average":
        check_enough(certify, max_error, certainty)
    target = class_number(positive, log_probs.shape[1], names)
    conf, wrong = scores_of(log_probs, y, target)
    chosen = _approved(
        conf,
        wrong,
        certify.numpy(),
        population.numpy(),
        max_error,
        1 - certainty,
        promise,
        _array(strata),
        _array(held),
    )
    approved, threshold, plan = chosen
    above = certify.numpy() & (conf >= (math.inf if threshold is None else threshold))
    if held is not None:
        above &= ~held.numpy()
    return Decision(
        torch.from_numpy(approved),
        population & ~certify & ~torch.from_numpy(approved),
        threshold,
        max_error,
        certainty,
        promise,
        random_draw,
        int(certify.sum()),
        int(above.sum()),
        int((above & wrong).sum()),
        plan,
        None
        if target is None
        else str(positive if isinstance(positive, str) else names[target] if names else f"class {target}"),
        None if target is None else recall_of(certify.numpy() & ~wrong, above, certainty),
    )


def scores_of(log_probs: Tensor, y: Tensor, target: int | None) -> tuple[Array, Array]:
    """The score that orders the nodes, and who is wrong: of the prediction, or of the claim "is of this class"."""
    if target is None:
        conf, pred = confidence(log_probs)[0].numpy(), log_probs.argmax(dim=1)
        return conf, (pred != y).numpy()
    return log_probs[:, target].double().exp().clamp(max=1).numpy(), (y != target).numpy()


def class_number(positive: int | str | None, num_classes: int, names: Sequence[str] | None) -> int | None:
    if positive is None:
        return None
    known = [str(k) for k in range(num_classes)] if names is None else list(names)
    if isinstance(positive, str):
        if positive not in known:
            raise ValueError(f"unknown class {positive!r}; the classes are {', '.join(known)}")
        return known.index(positive)
    if not 0 <= positive < num_classes:
        raise ValueError(f"unknown class {positive}; the classes are 0..{num_classes - 1}")
    return positive


def recall_of(members: Array, above: Array, certainty: float) -> Interval:
    """Share of the class above the threshold; the band of Dvoretzky, Kiefer & Wolfowitz holds at every threshold at once."""
    seen = int(members.sum())
    if seen == 0:
        return Interval(0.0, 0.0, 1.0)
    share, width = int((members & above).sum()) / seen, math.sqrt(math.log(2 / (1 - certainty)) / (2 * seen))
    return Interval(share, max(0.0, share - width), min(1.0, share + width))


def _array(mask: Tensor | None) -> Array | None:
    return None if mask is None else mask.numpy()


def _approved(
    conf: Array,
    wrong: Array,
    certify: Array,
    population: Array,
    max_error: float,
    risk: float,
    promise: Promise,
    strata: Array | None,
    held: Array | None,
) -> tuple[Array, float | None, Plan | None]:
    """Approved nodes, their threshold, and what more labels would do."""
    candidates = population & ~certify if held is None else population & ~certify & ~held
    if promise == "average":
        if strata is not None:
            raise ValueError(
                "the promise on average needs one simple random draw: leave strata out, or promise the pool"
            )
        approved = select_on_average(conf, wrong, certify, candidates, max_error)
        return approved, float(conf[approved].min()) if approved.any() else None, None
    sets = nested_sets(conf, wrong, certify, population, strata, held)
    last = certified_set(sets, max_error, risk, promise == "future")
    threshold = None if last is None else float(sets.threshold[last])
    approved = np.zeros(len(conf), bool) if threshold is None else candidates & (conf >= threshold)
    if not approved.any():
        approved, threshold = np.zeros(len(conf), bool), None
    open_nodes = int((population & ~certify).sum())
    return (
        approved,
        threshold,
        plan_labels(sets, int(certify.sum()), open_nodes, int(approved.sum()), max_error, risk, promise),
    )


def plan_labels(
    sets: NestedSets, labels: int, nodes: int, approved: int, max_error: float, risk: float, promise: Promise
) -> Plan | None:
    """The first of +50 %, +100 %, +300 % labels that decides more, by 2 % of the nodes at least, None where none does."""
    for factor in (1.5, 2.0, 4.0):
        more = round_number((factor - 1) * labels)
        if more >= nodes:
            return None
        last = certified_set(with_more_labels(sets, 1 + more / labels), max_error, risk, promise == "future")
        if last is None:
            continue
        then = round(nodes * float(sets.nodes[:, last].sum() / max(sets.nodes[:, -1].sum(), 1)))
        if then >= approved + 0.02 * nodes:
            return Plan(more, round_number(then, 2))
    return None


def round_number(value: float, digits: int = 1) -> int:
    """A count as people say it: one or two digits that matter."""
    if value < 1:
        return 1
    unit = 10 ** max(0, math.floor(math.log10(value)) - digits + 1)
    return int(round(value / unit) * unit)


def _of_model(
    out: Outputs,
    truth: Any,
    certify: Tensor | float,
    fitted: Tensor | None,
    held: Tensor | None,
    cross_fit: bool,
    seed: int,
    options: dict[str, Any],
) -> Decision:
    """`decide` for a trained model: a calibration as it is, or a recipe that is fitted on what does not certify."""
    graph = out.graph
    if graph.get("y") is None:
        raise ValueError("the graph has no labels y: certification nodes are labelled")
    seen = graph.get("train_mask", torch.zeros(out.num_nodes, dtype=torch.bool))
    val = graph.get("val_mask", torch.zeros(out.num_nodes, dtype=torch.bool))
    if isinstance(truth, Calibration):
        if not isinstance(certify, Tensor):
            raise ValueError(
                f"certify={certify} splits the validation nodes, but this calibration was fitted already: give the recipe, "
                "decide(out, recipe, certify=0.5), or a mask of nodes it was not fitted on"
            )
        fitted = seen | (val if fitted is None else fitted)
        check_apart(certify, fitted)
        return _calibrated(out, truth, certify, fitted, held, options)
    if not isinstance(truth, Recipe):
        raise ValueError(f"decide(out, ...) takes a calibration or a recipe, got {type(truth).__name__}")
    if cross_fit and isinstance(certify, Tensor):
        raise ValueError("cross_fit splits the validation nodes itself: give certify as a share, for example 0.5")
    if isinstance(certify, Tensor):
        check_apart(certify, seen)
        return _fitted_on(out, truth, certify, val & ~certify, seen, held, options)
    part, rest = random_split(val, certify, torch.Generator().manual_seed(seed))
    if not cross_fit:
        return _fitted_on(out, truth, part, rest, seen, held, options)
    half = {**options, "certainty": (1 + options["certainty"]) / 2}
    both = [_fitted_on(out, truth, a, b, seen, held, half) for a, b in ((part, rest), (rest, part))]
    return replace(max(both, key=lambda d: d.num_approved), certainty=options["certainty"])


def _fitted_on(
    out: Outputs,
    recipe: Recipe,
    certify: Tensor,
    on: Tensor,
    seen: Tensor,
    held: Tensor | None,
    options: dict[str, Any],
) -> Decision:
    """Fit on ``on``, with every label but those and the training ones hidden; then certify."""
    blind = blinded(out.graph)
    blind.y = torch.where(on | seen, blind.y, torch.full_like(blind.y, -1))
    blind.val_mask = on
    calibration = recipe.fit(replace(out, graph=blind), on=on)
    return _calibrated(out, calibration, certify, seen | on, held, options)


def _calibrated(
    out: Outputs,
    calibration: Calibration,
    certify: Tensor,
    fitted: Tensor,
    held: Tensor | None,
    options: dict[str, Any],
) -> Decision:
    with torch.no_grad():
        log_probs = calibration(out)
    says = getattr(calibration, "held", None)  # a calibration that keeps predictions may hold nodes back
    if callable(says):
        held = says(out) if held is None else held | says(out)
    pool = ~fitted if options["pool"] is None else options["pool"] & ~fitted
    return decide(
        log_probs, out.graph.y, certify=certify, fitted=fitted, held=held, **{**options, "pool": pool | certify}
    )
