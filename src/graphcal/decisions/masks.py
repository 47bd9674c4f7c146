"""Three masks, kept apart: nodes whose labels fitted something, nodes whose labels certify, and the rest. One label, one job."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcal.checks import check_mask
from graphcal.decisions.bounds import labels_needed


def check_promise(max_error: float, certainty: float) -> None:
    if not 0 < max_error < 1 or not 0.5 <= certainty < 1:
        raise ValueError(
            f"max_error must lie between 0 and 1 and certainty in 0.5..1, got {max_error} and {certainty}; 0.05 means 5 %"
        )


def population_of(certify: Tensor, pool: Tensor | None, fitted: Tensor | None, num_nodes: int) -> Tensor:
    """The nodes that certification nodes were drawn from: they and the pool, without nodes that fitted anything.

    ``pool`` may hold all certification nodes or none of them; without one it is every node that fitted nothing.
    """
    check_mask(certify, num_nodes, "certify")
    if fitted is not None:
        check_apart(certify, check_mask(fitted, num_nodes, "fitted", may_be_empty=True))
    if pool is None:
        pool = torch.ones(num_nodes, dtype=torch.bool) if fitted is None else ~fitted
    check_mask(pool, num_nodes, "pool", may_be_empty=True)
    if fitted is not None and (pool & fitted).any():
        raise ValueError(
            f"pool shares {int((pool & fitted).sum())} nodes with the fitting nodes: confidence is not honest where a label was "
            "fitted. Take them out of the pool: pool & ~fitted"
        )
    shared = int((certify & pool).sum())
    if 0 < shared < int(certify.sum()):
        raise ValueError(
            f"certify and pool overlap in {shared} of {int(certify.sum())} certification nodes: certification nodes are drawn "
            "from the pool, so it holds all of them, or none where it is given as the rest"
        )
    if not (pool & ~certify).any():
        raise ValueError(
            f"the pool has no unlabelled node: all its {int(pool.sum())} nodes certify, so there is nothing left to decide. "
            "Give the nodes to decide, for example pool=data.test_mask"
        )
    return pool | certify


def check_apart(certify: Tensor, fitted: Tensor) -> None:
    shared = int((certify & fitted).sum())
    if shared:
        raise ValueError(
            f"certify shares {shared} nodes with the nodes that trained, stopped or fitted the model: the same labels may not do "
            "two jobs. Split them: decide(out, recipe, certify=0.5) fits on one half of the validation nodes and certifies "
            "with the other; cross_fit=True does both ways where labels are few"
        )


def check_enough(certify: Tensor, max_error: float, certainty: float) -> None:
    """Refuse fewer certification nodes than any certificate takes."""
    have, need = int(certify.sum()), labels_needed(max_error, certainty)
    if have < need:
        raise ValueError(
            f"{have} certification nodes cannot certify at most {100 * max_error:g} % errors with {100 * certainty:g} % "
            f"certainty: that takes at least {need} of them without a single error (59 for 5 %, 299 for 1 %, at 95 %). "
            f"Label {need - have} more nodes drawn at random, or allow more errors"
        )


def check_certify_labels(y: Tensor, certify: Tensor, num_classes: int) -> None:
    """The labels of the certification nodes are class numbers; all others are not read."""
    if not isinstance(y, Tensor) or y.is_floating_point() or y.dtype == torch.bool or y.shape != certify.shape:
        came = f"{tuple(y.shape)} of {y.dtype}" if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"y must hold {len(certify)} integer class numbers (-1: no label); got {came}")
    own = y[certify]
    wrong = (own < 0) | (own >= num_classes)
    if wrong.any():
        node = int(certify.nonzero()[int(wrong.nonzero()[0])])
        raise ValueError(
            f"certify selects {int(wrong.sum())} nodes without a label in 0..{num_classes - 1} (first: node {node} has "
            f"{int(y[node])}): certification nodes are labelled"
        )


def random_split(nodes: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random part of the ``nodes`` (N,) and the rest, as masks."""
    if not 0 < share < 1:
        raise ValueError(f"certify as a share of the validation nodes must lie between 0 and 1, got {share}")
    ids = nodes.nonzero().flatten()
    chosen = ids[torch.randperm(len(ids), generator=generator)[: max(1, round(share * len(ids)))]]
    part = torch.zeros_like(nodes)
    part[chosen] = True
    return part, nodes & ~part
