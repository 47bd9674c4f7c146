"""Choose which nodes can be decided automatically, with a promise about their errors.

    decide(log_probs, y, certify=mask, pool=mask, max_error=0.05, certainty=0.95, random_draw=True)
    decide(out, recipe, certify=0.5, ...)         fits on one half of the validation nodes, certifies with the other
    decide(out, calibration, certify=mask, ...)   a calibration that was fitted elsewhere

The kind of promise selects the rule: a certified threshold (`thresholds`) for the nodes of the pool or for future nodes, or
conformal selection on average over draws. A named class is selected by its probability instead of by confidence.

Cross-fitting: both halves of the validation nodes fit and certify in turn, each way at half the risk, and the larger result is
kept. By the union bound the promise holds for both, so also for the larger one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from graphcal.checks import check_mask
from graphcal.decisions.bounds import Array
from graphcal.decisions.decision import (
    Bound,
    ClassOutcome,
    Decision,
    Interval,
    Kind,
    Plan,
    Promise,
    class_name,
    class_number,
)
from graphcal.decisions.masks import Draw, check_apart, check_draw, check_enough, random_part, random_split
from graphcal.decisions.thresholds import (
    certified_by_draw,
    certified_set,
    plan_labels,
    select_on_average,
    sets_of_draw,
)
from graphcal.text import plural

if TYPE_CHECKING:
    from graphcal.core import Calibration, Outputs, Recipe

MakeDraw = Callable[..., Draw]  # `check_draw` with strata, time and names bound


def decide(
    predictions: Tensor | Outputs,
    truth: Tensor | Calibration | Recipe,
    *,
    certify: Any = None,
    pool: Any = None,
    max_error: float = 0.05,
    certainty: float = 0.95,
    random_draw: bool = False,
    random_arm: Any = None,
    inclusion: Any = None,
    promise: Kind = "pool",
    positive: int | str | None = None,
    names: Sequence[str] | None = None,
    fitted: Any = None,
    strata: Any = None,
    held: Any = None,
    time: Any = None,
    cross_fit: bool = False,
    seed: int = 0,
) -> Decision:
    """Choose the nodes that can be decided automatically with at most ``max_error`` errors.

    Masks are boolean masks or node numbers, as tensors, arrays or lists. The certification nodes are compared with the other
    nodes by probabilities, degree and ``time``: where they differ by more than chance, nothing is promised and a ValueError says
    how they differ.

    Parameters
    ----------
    predictions : Tensor (N, C) or Outputs
        Calibrated log-probabilities, or a trained model's outputs.
    truth : Tensor (N,), Calibration or Recipe
        Labels; with `Outputs`, a fitted calibration or the recipe to fit.
    certify : mask or float
        Labelled nodes that did not train, stop or calibrate the model, drawn at random from the pool, or within ``strata`` of it.
        With a recipe it may be the share of the validation nodes that certifies while the others fit.
    pool : mask, optional
        Nodes to decide.
    max_error : float, default=0.05
        Largest share of errors among approved nodes.
    certainty : float, default=0.95
        Probability with which the promise must hold.
    random_draw : bool, default=False
        Your statement that the certification nodes are a simple random sample. Required for a guarantee.
    random_arm : mask, optional
        The nodes of ``certify`` that were drawn at random, from all nodes or from those without another label. They carry the
        promise; the others fit a recipe and choose the order of the search, and may have fitted the calibration.
    inclusion : (N,), optional
        Known probability with which each node was drawn for labelling, independently of the others.
    promise : {"pool", "future", "average"}, default="pool"
        Nodes that the promise covers: these, new ones, or an average over draws (see `graphcal.decisions.Promise`).
    positive : int or str, optional
        Select the members of this class instead; the precision is at least 1 - ``max_error``.
    names : sequence of str, optional
        Names of the classes.
    fitted : mask, optional
        Nodes that trained, stopped or calibrated the model.
    strata, time : (N,), optional
        Groups within which the certification nodes were drawn, and the time of each node.
    held : mask, optional
        Nodes that are never approved.
    cross_fit : bool
        Fit and certify both ways, at half the risk each, and keep the larger result.
    seed : int
        Seed of the split of the validation nodes.

    Returns
    -------
    Decision
        Approved nodes, nodes for review, the threshold and the promise.

    Examples
    --------
    >>> g = torch.Generator().manual_seed(0)
    >>> conf = 1 - 0.5 * torch.rand(4000, generator=g) ** 3
    >>> y = (torch.rand(4000, generator=g) > conf).long()             # class 0 is right as often as its confidence says
    >>> log_probs = torch.stack([conf, 1 - conf], dim=1).log()
    >>> certify = torch.arange(4000) < 500                            # the nodes come in random order
    >>> decision = decide(log_probs, y, certify=certify, max_error=0.05, random_draw=True)
    >>> decision.num_approved, decision.errors_at_most, int((y[decision.approved] != 0).sum())
    (2423, 121, 99)
    """
    stated = random_draw or random_arm is not None or inclusion is not None
    origin = (strata is not None, random_arm is not None, inclusion is not None)
    terms = Promise(max_error, certainty, promise, stated, positive, *origin)
    make_draw: MakeDraw = partial(
        check_draw, strata=strata, time=time, names=names, random_arm=random_arm, inclusion=inclusion
    )
    of_model = isinstance(truth, nn.Module) or hasattr(truth, "fit")  # a calibration or a recipe
    if isinstance(predictions, Tensor) and not of_model and not isinstance(certify, float):
        draw = make_draw(predictions, truth, certify, pool, fitted, held)
        return approve_draw(draw, terms)
    if hasattr(predictions, "graph") and of_model:
        out: Any = predictions
        recipe: Any = truth
        return decide_model(out, recipe, terms, certify, random_arm, pool, held, fitted, cross_fit, seed, make_draw)
    raise ValueError(
        "decide takes (log_probs, y, certify=mask), or (outputs, calibration or recipe), where a share for certify splits the "
        f"validation nodes; got {type(predictions).__name__}, {type(truth).__name__} and certify of {type(certify).__name__}"
    )


def approve_draw(draw: Draw, promise: Promise) -> Decision:
    """Decide on the nodes of a draw that was checked."""
    if draw.inclusion is None:
        check_enough(draw.certify, promise)
    num_classes = draw.log_probs.shape[1]
    target = class_number(promise.positive, num_classes, draw.names)
    conf, wrong = draw.scores(target)
    mask, threshold, plan, bound = _approved(draw, conf, wrong, promise)
    approved = torch.from_numpy(mask)
    above = draw.certify.numpy() & ~draw.held.numpy() & (conf >= (math.inf if threshold is None else threshold))
    members = draw.certify.numpy() & ~wrong
    classes = () if target is not None else class_table(draw, approved, promise.max_error)
    return Decision(
        promise=promise,
        threshold=threshold,
        approved=approved,
        review=draw.open & ~approved,
        num_approved=int(approved.sum()),
        num_review=int((draw.open & ~approved).sum()),
        labels=int(draw.certify.sum()),
        labelled_above=int(above.sum()),
        errors_seen=int((above & wrong).sum()),
        num_classes=num_classes,
        positive=target,
        positive_name=None if target is None else class_name(target, draw.names),
        plan=plan,
        recall=None
        if target is None or draw.strata is not None or draw.inclusion is not None
        else recall_of(members, above, promise.certainty),
        classes=classes,
        warnings=doubts(classes, 1 - conf[mask], promise.max_error),
        held=bool(draw.held.any()),
        others=0 if draw.others is None else int(draw.others.sum()),
        bound=bound,
    )


def class_table(draw: Draw, approved: Tensor, max_error: float) -> tuple[ClassOutcome, ...]:
    """Nodes decided and missed per class, by the probabilities; of several classes only the rare ones."""
    probs, C = draw.log_probs[draw.open].double().exp(), draw.log_probs.shape[1]
    expected, inside, pred = probs.sum(dim=0), approved[draw.open], probs.argmax(dim=1)
    return tuple(
        ClassOutcome(
            name=class_name(k, draw.names),
            decided=int((inside & (pred == k)).sum()),
            missed=float(probs[inside & (pred != k), k].sum()),
            expected=float(expected[k]),
            nodes=len(probs),
        )
        for k in range(C)
        if C == 2 or float(expected[k]) < 2 * max_error * len(probs)
    )


def doubts(classes: Sequence[ClassOutcome], doubt: Array, max_error: float) -> tuple[str, ...]:
    """Warnings: a target near or above a base rate, probabilities (``doubt`` of the approved) that contradict the labels."""
    lines = []
    rare = [c for c in classes if c.share < 2 * max_error and c.missed >= 0.05 * c.expected and c.missed >= 1]
    if rare:
        worst = max(rare, key=lambda c: c.missed / c.expected)
        likewise = f", likewise for {plural(len(rare) - 1, 'other class')}" if len(rare) > 1 else ""
        lines.append(
            f"at most {100 * max_error:g} % errors is no protection for {worst.name}{likewise}: only "
            f"{100 * worst.share:.2g} % are of it, and {worst.missed:,.0f} of about {worst.expected:,.0f} would be decided "
            "as something else. Select it by name, or ask for fewer errors"
        )
    if len(doubt):
        expected, spread = float(doubt.sum()), float(np.sqrt((doubt * (1 - doubt)).sum()))
        if expected - 4 * spread > max_error * len(doubt):
            lines.append(
                f"their probabilities expect {expected:,.0f} errors, the labels at most "
                f"{int(max_error * len(doubt) + 1e-9):,}: check their calibration (graphcal check)"
            )
    return tuple(lines)


def recall_of(members: Array, above: Array, certainty: float) -> Interval:
    """Share of the class above the threshold; the band of Dvoretzky, Kiefer & Wolfowitz holds at every threshold at once."""
    seen = int(members.sum())
    if seen == 0:
        return Interval(0.0, 0.0, 1.0)
    share, width = int((members & above).sum()) / seen, math.sqrt(math.log(2 / (1 - certainty)) / (2 * seen))
    return Interval(share, max(0.0, share - width), min(1.0, share + width))


def _approved(
    draw: Draw, conf: Array, wrong: Array, promise: Promise
) -> tuple[Array, float | None, Plan | None, Bound]:
    """Approved nodes (N,), their threshold, the effect of more labels, and the labels that certify."""
    held = draw.held.numpy()
    certify, candidates = draw.certify.numpy(), draw.open.numpy() & ~held
    if promise.kind == "average":  # held nodes are never approved, so their labels say nothing about approved ones
        approved = select_on_average(conf, wrong, certify & ~held, candidates, promise.max_error)
        return approved, float(conf[approved].min()) if approved.any() else None, None, "random draw"
    future = promise.kind == "future"
    sets = sets_of_draw(draw, class_number(promise.positive, draw.log_probs.shape[1], draw.names), held)
    last = certified_set(sets, promise.max_error, promise.risk, future)
    threshold = None if last is None else float(sets.threshold[last])
    approved = np.zeros(len(conf), bool) if threshold is None else candidates & (conf >= threshold)
    count, nodes = int(approved.sum()), int(draw.open.sum())
    plan = plan_labels(sets, int(certify.sum()), nodes, count, promise.max_error, promise.risk, future)
    bound: Bound = "known chances" if promise.known_chances else "random arm" if promise.random_arm else "random draw"
    if bound == "known chances" and promise.random_arm and last is not None:
        by_arm = certified_by_draw(sets, promise.max_error, promise.risk / 2)[last]
        bound = "random arm" if by_arm else "known chances"
    return approved, threshold if count else None, plan, bound


def decide_model(
    out: Outputs,
    truth: Calibration | Recipe,
    promise: Promise,
    certify: Any,
    random_arm: Any,
    pool: Any,
    held: Any,
    fitted: Any,
    cross_fit: bool,
    seed: int,
    make_draw: MakeDraw,
) -> Decision:
    """Decide on the nodes of a trained model with a fitted calibration, or with a recipe that is fitted here."""
    nodes = out.num_nodes
    share = certify if isinstance(certify, float) else None
    if share is not None and (promise.random_arm or promise.known_chances):
        raise ValueError(f"certify={share} draws a random part itself. Give certify as a mask of the labelled nodes.")
    if share is None:
        if certify is None and random_arm is not None:
            certify = mask_of(out, "val_mask") | check_mask(random_arm, nodes, "random_arm").cpu()
        drawn, others = random_part(certify, random_arm, nodes)
        certify = drawn if others is None else drawn | others
    pool = None if pool is None else check_mask(pool, nodes, "pool", may_be_empty=True)
    held = None if held is None else check_mask(held, nodes, "held", may_be_empty=True)
    train, val = mask_of(out, "train_mask"), mask_of(out, "val_mask")
    decide_with = partial(_decide_with, out, make_draw, pool, held)
    if isinstance(truth, nn.Module):
        from graphcal.study import apply

        if share is not None:
            raise ValueError(
                f"certify={share} splits the validation nodes, but this calibration was fitted already: give the recipe, "
                "decide(out, recipe, certify=0.5), or a mask of nodes it was not fitted on"
            )
        used = train | (val if fitted is None else check_mask(fitted, nodes, "fitted", may_be_empty=True))
        check_apart(drawn, used)
        return decide_with(truth, apply(truth, out, 0.0).log_probs, certify, used, promise)

    def fit_and_decide(part: Tensor, rest: Tensor, terms: Promise) -> Decision:
        from graphcal.study import Study

        graph = copy(out.graph)
        graph.val_mask = rest  # the study hides every label but those of training and validation nodes
        run = Study.of([replace(out, graph=graph)], {"recipe": truth}, on=rest).fitted["recipe"][0]
        return decide_with(run.calibration, run.log_probs, part, train | rest, terms)

    if cross_fit and promise.kind == "average":
        raise ValueError(
            "cross_fit keeps the larger of two results, which breaks a promise on average: leave cross_fit out, or promise the "
            "pool"
        )
    if share is None:
        if cross_fit:
            raise ValueError("cross_fit splits the validation nodes itself: give certify as a share, for example 0.5")
        check_apart(drawn, train)
        return fit_and_decide(certify, (val | certify) & ~drawn, promise)
    part, rest = random_split(val, share, torch.Generator().manual_seed(seed))
    if not cross_fit:
        return fit_and_decide(part, rest, promise)
    half = replace(promise, certainty=(1 + promise.certainty) / 2)
    both = [fit_and_decide(a, b, half) for a, b in ((part, rest), (rest, part))]
    return replace(max(both, key=lambda d: d.num_approved), promise=promise)


def _decide_with(
    out: Outputs,
    make_draw: MakeDraw,
    pool: Tensor | None,
    held: Tensor | None,
    calibration: Calibration,
    log_probs: Tensor,
    certify: Tensor,
    used: Tensor,
    promise: Promise,
) -> Decision:
    """Decide on nodes that were not ``used``; nodes whose kept prediction has a low confidence are held."""
    from graphcal.graphs import structure

    held_nodes = getattr(calibration, "held", None)
    if callable(held_nodes) and getattr(calibration, "predictions", "keep") == "keep":
        held = held_nodes(out) if held is None else held | held_nodes(out)
    pool = ~used if pool is None else pool & ~used
    degree = None if out.graph.get("edge_index") is None else structure(out.graph).degree.cpu().numpy()
    draw = make_draw(log_probs, out.graph.y, certify, pool | certify, used, held, degree=degree)
    return approve_draw(draw, promise)


def mask_of(out: Outputs, name: str) -> Tensor:
    mask = out.graph.get(name)
    return torch.zeros(out.num_nodes, dtype=torch.bool) if mask is None else mask
