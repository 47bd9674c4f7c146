"""Which nodes may be acted on alone: log-probabilities, the labels of the certification nodes, and the terms of the promise.

What is promised is chosen by ``promise``: of the nodes of the pool (`thresholds`, realised errors), of future nodes of the same
source, or on average over draws (`selection`). A named class is selected by its probability instead of decided by confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphcal.decisions.bounds import Array
from graphcal.decisions.decision import Decision, Interval, Plan, Promise
from graphcal.decisions.masks import check_certify_labels, check_enough, check_promise, population_of
from graphcal.decisions.selection import select_on_average
from graphcal.decisions.thresholds import certified_set, nested_sets, plan_labels
from graphcal.metrics.bins import confidence
from graphcal.metrics.inputs import check_log_probs

PROMISES = ("pool", "future", "average")


def approve(
    log_probs: Tensor,
    y: Tensor,
    certify: Tensor,
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
) -> Decision:
    """The decision on nodes with these log-probabilities (N, C); see `graphcal.decide` for the arguments."""
    check_promise(max_error, certainty)
    if promise not in PROMISES:
        raise ValueError(f"promise must be one of {', '.join(PROMISES)}, got {promise!r}")
    check_log_probs(log_probs)
    log_probs, certify, y = log_probs.detach().cpu(), certify.cpu(), y.cpu()
    pool, fitted, strata, held = (None if m is None else m.cpu() for m in (pool, fitted, strata, held))
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
        None if target is None else class_name(target, names),
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


def class_name(target: int, names: Sequence[str] | None) -> str:
    name = str(target) if names is None else str(names[target])
    return f"class {name}" if name.isdigit() else name


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
        plan_labels(sets, int(certify.sum()), open_nodes, int(approved.sum()), max_error, risk, promise == "future"),
    )
