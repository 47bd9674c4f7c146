"""`gc.decide`: for log-probabilities and labels, or for a trained model with a calibration or a recipe.

    decide(log_probs, y, certify=mask, pool=mask, max_error=0.05, certainty=0.95, random_draw=True)
    decide(out, recipe, certify=0.5, ...)         fits on one half of the validation nodes, certifies with the other
    decide(out, calibration, certify=mask, ...)   a calibration that was fitted elsewhere

Cross-fitting: both halves of the validation nodes fit and certify in turn, each way at half the risk, and the larger result is
kept. By the union bound the promise holds for both, so also for the one that was chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphcal.checks import check_mask
from graphcal.core import Calibration, Outputs, Recipe
from graphcal.decisions.approval import approve
from graphcal.decisions.decision import Decision, Promise
from graphcal.decisions.masks import check_apart, random_split
from graphcal.graphs import structure
from graphcal.study import Study, apply

Approve = Callable[..., Decision]  # `approve` with the terms of the promise bound


def decide(
    predictions: Tensor | Outputs,
    truth: Tensor | Calibration | Recipe,
    *,
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
    cross_fit: bool = False,
    seed: int = 0,
) -> Decision:
    """Which nodes may be decided automatically with at most ``max_error`` errors?

    ``certify``: labelled nodes that did not train, stop or calibrate the model (those are ``fitted``), drawn at random from the
    pool, or within ``strata`` (N,) of it. ``random_draw=True`` states that they were; only then the result is a guarantee. They
    are compared with the other nodes by probabilities, degree and ``time`` (N,): where they differ by more than chance, nothing
    is promised and a ValueError says how they differ. ``pool``: the nodes to decide. ``positive``: select this class (by number,
    or by one of ``names``) with precision 1 - ``max_error``. ``held``: nodes that are never approved. Masks are boolean masks or
    node numbers, as tensors, arrays or lists. With `Outputs` and a recipe, ``certify`` may be the share of the validation nodes
    that certifies while the others fit; ``cross_fit`` also does it the other way round, at half the risk each, and keeps the
    larger result.

    >>> g = torch.Generator().manual_seed(0)
    >>> conf = 1 - 0.5 * torch.rand(4000, generator=g) ** 3
    >>> y = (torch.rand(4000, generator=g) > conf).long()             # class 0 is right as often as its confidence says
    >>> log_probs = torch.stack([conf, 1 - conf], dim=1).log()
    >>> certify = torch.arange(4000) < 500                            # the nodes come in random order
    >>> decision = decide(log_probs, y, certify=certify, max_error=0.05, random_draw=True)
    >>> decision.num_approved, decision.errors_at_most, int((y[decision.approved] != 0).sum())
    (2423, 121, 99)
    """
    chosen: Approve = partial(
        approve,
        max_error=max_error,
        certainty=certainty,
        random_draw=random_draw,
        promise=promise,
        positive=positive,
        names=names,
        strata=strata,
        time=time,
    )
    share = isinstance(certify, float)
    if isinstance(predictions, Outputs):
        N = predictions.num_nodes
        masks = {
            k: None if m is None else check_mask(m, N, k, may_be_empty=True)
            for k, m in (("pool", pool), ("held", held))
        }
        certify = certify if share else check_mask(certify, N, "certify")
        if isinstance(truth, Calibration):
            return decide_calibrated(predictions, truth, certify, fitted, chosen, **masks)
        if isinstance(truth, Recipe):
            if cross_fit and promise == "average":
                raise ValueError(
                    "cross_fit keeps the larger of two results, which breaks a promise on average: leave cross_fit out, or "
                    "promise the pool"
                )
            return decide_fitted(predictions, truth, certify, cross_fit, certainty, seed, chosen, **masks)
    elif isinstance(predictions, Tensor) and not isinstance(truth, (Calibration, Recipe)) and not share:
        return chosen(predictions, truth, certify=certify, pool=pool, fitted=fitted, held=held)
    raise ValueError(
        "decide takes (log_probs, y, certify=mask), or (outputs, calibration or recipe), where a share for certify splits the "
        f"validation nodes; got {type(predictions).__name__}, {type(truth).__name__} and certify of {type(certify).__name__}"
    )


def decide_calibrated(
    out: Outputs,
    calibration: Calibration,
    certify: Tensor | float,
    fitted: Any,
    chosen: Approve,
    pool: Tensor | None,
    held: Tensor | None,
) -> Decision:
    """Decide with a fitted calibration; without ``fitted`` it counts as fitted on all validation nodes."""
    if isinstance(certify, float):
        raise ValueError(
            f"certify={certify} splits the validation nodes, but this calibration was fitted already: give the recipe, "
            "decide(out, recipe, certify=0.5), or a mask of nodes it was not fitted on"
        )
    on = mask_of(out, "val_mask") if fitted is None else check_mask(fitted, out.num_nodes, "fitted", may_be_empty=True)
    used = mask_of(out, "train_mask") | on
    check_apart(certify, used)
    log_probs = apply(calibration, out, 0.0).log_probs
    return approved_of(out, calibration, log_probs, certify, pool, used, held, chosen)


def decide_fitted(
    out: Outputs,
    recipe: Recipe,
    certify: Tensor | float,
    cross_fit: bool,
    certainty: float,
    seed: int,
    chosen: Approve,
    pool: Tensor | None,
    held: Tensor | None,
) -> Decision:
    """Fit the recipe on the validation nodes that do not certify, and decide."""
    val = mask_of(out, "val_mask")
    if isinstance(certify, Tensor):
        if cross_fit:
            raise ValueError("cross_fit splits the validation nodes itself: give certify as a share, for example 0.5")
        check_apart(certify, mask_of(out, "train_mask"))
        return fit_and_decide(out, recipe, certify, val & ~certify, pool, held, chosen)
    part, rest = random_split(val, certify, torch.Generator().manual_seed(seed))
    if not cross_fit:
        return fit_and_decide(out, recipe, part, rest, pool, held, chosen)
    half: Approve = partial(chosen, certainty=(1 + certainty) / 2)
    both = [fit_and_decide(out, recipe, a, b, pool, held, half) for a, b in ((part, rest), (rest, part))]
    return replace(max(both, key=lambda d: d.num_approved), certainty=certainty)


def fit_and_decide(
    out: Outputs, recipe: Recipe, certify: Tensor, on: Tensor, pool: Tensor | None, held: Tensor | None, chosen: Approve
) -> Decision:
    """Fit on the nodes ``on`` and decide. The study hides every label but those of training and validation nodes."""
    graph = copy(out.graph)
    graph.val_mask = on
    fitted = Study.of([replace(out, graph=graph)], {"recipe": recipe}, on=on).fitted["recipe"][0]
    used = mask_of(out, "train_mask") | on
    return approved_of(out, fitted.calibration, fitted.log_probs, certify, pool, used, held, chosen)


def approved_of(
    out: Outputs,
    calibration: Calibration,
    log_probs: Tensor,
    certify: Tensor,
    pool: Tensor | None,
    used: Tensor,
    held: Tensor | None,
    chosen: Approve,
) -> Decision:
    """Decide on nodes that were not ``used``; nodes whose kept prediction has a low confidence are held."""
    says = getattr(calibration, "held", None)
    if callable(says) and getattr(calibration, "predictions", "keep") == "keep":
        held = says(out) if held is None else held | says(out)
    pool = ~used if pool is None else pool & ~used
    degree = None if out.graph.get("edge_index") is None else structure(out.graph).degree.cpu().numpy()
    return chosen(log_probs, out.graph.y, certify=certify, pool=pool | certify, fitted=used, held=held, degree=degree)


def mask_of(out: Outputs, name: str) -> Tensor:
    mask = out.graph.get(name)
    return torch.zeros(out.num_nodes, dtype=torch.bool) if mask is None else mask
