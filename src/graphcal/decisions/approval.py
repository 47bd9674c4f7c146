"""Which nodes may be acted on alone: log-probabilities, the labels of the certification nodes, and the terms of the promise.

What is promised is chosen by ``promise``: of the nodes of the pool (`thresholds`, realised errors), of future nodes of the same
source, or on average over draws (`selection`). A named class is selected by its probability instead of decided by confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcal.decisions.bounds import Array
from graphcal.decisions.decision import ClassOutcome, Decision, Interval, Plan, Promise
from graphcal.decisions.masks import Draw, check_draw, check_enough, check_promise
from graphcal.decisions.selection import select_on_average
from graphcal.decisions.thresholds import certified_set, nested_sets, plan_labels
from graphcal.metrics.bins import confidence

PROMISES = ("pool", "future", "average")


def approve(
    log_probs: Tensor,
    y: Tensor,
    certify: Any,
    pool: Any = None,
    max_error: float = 0.05,
    certainty: float = 0.95,
    random_draw: bool = False,
    promise: Promise = "pool",
    positive: int | str | None = None,
    names: Sequence[str] | None = None,
    fitted: Any = None,
    strata: Any = None,
    held: Any = None,
    time: Any = None,
    degree: Any = None,
    drawn_here: bool = False,
) -> Decision:
    """Decide on nodes with these log-probabilities (N, C); see `graphcal.decide` for the arguments."""
    draw = check_draw(log_probs, y, certify, pool, fitted, held, strata, time, degree, names, drawn_here)
    return approve_draw(draw, max_error, certainty, random_draw, promise, positive, names)


def approve_draw(
    draw: Draw,
    max_error: float = 0.05,
    certainty: float = 0.95,
    random_draw: bool = False,
    promise: Promise = "pool",
    positive: int | str | None = None,
    names: Sequence[str] | None = None,
) -> Decision:
    """Decide on the nodes of a draw that was checked."""
    check_promise(max_error, certainty)
    if promise not in PROMISES:
        raise ValueError(f"promise must be one of {', '.join(PROMISES)}, got {promise!r}")
    if promise != "average":
        check_enough(draw.certify, max_error, certainty)
    elif draw.strata is not None:
        raise ValueError("the promise on average needs one simple random draw: leave strata out, or promise the pool")
    target = class_number(positive, draw.log_probs.shape[1], names)
    conf, wrong = scores_of(draw.log_probs, draw.y, target)
    approved, threshold, plan = _approved(draw, conf, wrong, max_error, 1 - certainty, promise)
    above = draw.certify.numpy() & ~draw.held.numpy() & (conf >= (math.inf if threshold is None else threshold))
    decision = Decision(
        torch.from_numpy(approved),
        draw.open & ~torch.from_numpy(approved),
        threshold,
        max_error,
        certainty,
        promise,
        random_draw,
        int(draw.certify.sum()),
        int(above.sum()),
        int((above & wrong).sum()),
        plan,
        None if target is None else class_name(target, names),
        None
        if target is None or draw.strata is not None
        else recall_of(draw.certify.numpy() & ~wrong, above, certainty),
    )
    decision = replace(decision, classes=class_table(draw, decision, target, names))
    return replace(decision, warnings=doubts(decision, conf))


def class_table(
    draw: Draw, decision: Decision, target: int | None, names: Sequence[str] | None
) -> tuple[ClassOutcome, ...]:
    """What is decided and missed per class, by the probabilities; empty unless there are two classes or a rare one."""
    probs = draw.log_probs[draw.open].double().exp()
    expected, approved = probs.sum(dim=0), decision.approved[draw.open]
    C = draw.log_probs.shape[1]
    if target is not None or (C > 2 and float(expected.min()) >= 2 * decision.max_error * len(probs)):
        return ()
    pred = probs.argmax(dim=1)
    rows = []
    for k in range(C):
        if C > 2 and float(expected[k]) >= 2 * decision.max_error * len(probs):
            continue
        missed = float(probs[approved & (pred != k), k].sum())
        decided = int((approved & (pred == k)).sum())
        rows.append(ClassOutcome(class_name(k, names), decided, missed, float(expected[k]), len(probs)))
    return tuple(rows)


def doubts(decision: Decision, conf: Array) -> tuple[str, ...]:
    """What the user should know before acting: a target near or above a base rate, probabilities that contradict the labels."""
    lines = [
        f"at most {100 * decision.max_error:g} % errors is no protection for {row.name}: only {100 * row.share:.2g} % of the "
        f"nodes are of it, and {row.missed:,.0f} of about {row.expected:,.0f} would be decided as something else. "
        "Select it by name, or ask for fewer errors"
        for row in decision.classes
        if row.share < 2 * decision.max_error and row.missed >= 0.05 * row.expected and row.missed >= 1
    ]
    if decision.num_approved:
        doubt = 1 - conf[decision.approved.numpy()]
        expected, spread = float(doubt.sum()), float(np.sqrt((doubt * (1 - doubt)).sum()))
        if expected - 4 * spread > decision.max_error * decision.num_approved:
            lines.append(
                f"the probabilities of these nodes expect {expected:,.0f} errors, the labels at most "
                f"{decision.errors_at_most:,}: they are not calibrated. Calibrate them first (graphcal calibrate)"
            )
    return tuple(lines)


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


def _approved(
    draw: Draw, conf: Array, wrong: Array, max_error: float, risk: float, promise: Promise
) -> tuple[Array, float | None, Plan | None]:
    """Approved nodes, their threshold, and what more labels would do."""
    held = draw.held.numpy()
    certify, population, candidates = draw.certify.numpy(), draw.population.numpy(), draw.open.numpy() & ~held
    if promise == "average":  # held nodes are never approved, so their labels say nothing about approved ones
        approved = select_on_average(conf, wrong, certify & ~held, candidates, max_error)
        return approved, float(conf[approved].min()) if approved.any() else None, None
    sets = nested_sets(conf, wrong, certify, population, draw.strata, held)
    last = certified_set(sets, max_error, risk, promise == "future")
    threshold = None if last is None else float(sets.threshold[last])
    approved = np.zeros(len(conf), bool) if threshold is None else candidates & (conf >= threshold)
    if not approved.any():
        approved, threshold = np.zeros(len(conf), bool), None
    open_nodes = int(draw.open.sum())
    plan = plan_labels(sets, int(certify.sum()), open_nodes, int(approved.sum()), max_error, risk, promise == "future")
    return approved, threshold, plan
