"""Check the draw behind a promise: nodes whose labels certify, the population they were drawn from, nodes that fitted something.

`check_draw` reads masks in any form, keeps the three groups apart, and compares the certification nodes with the rest of the
population. Labels that were visibly not drawn as stated carry no promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcal.checks import check_mask
from graphcal.decisions.bounds import MOST_GROUPS, Array, check_inclusion, labels_needed
from graphcal.decisions.decision import Promise, score_of
from graphcal.metrics.inputs import check_log_probs
from graphcal.metrics.row_comparison import RowComparison, compare_rows, prediction_covariates


@dataclass(frozen=True, eq=False)
class Draw:
    """Predictions, the nodes whose labels certify, and the population they were drawn from; everything on the CPU."""

    log_probs: Tensor  # (N, C)
    y: Tensor  # (N,) read at ``certify`` only
    certify: Tensor  # (N,) bool
    population: Tensor  # (N,) bool: the certification nodes and the nodes to decide
    held: Tensor  # (N,) bool: never approved
    strata: Array | None = None  # (N,) the certification nodes were drawn within each
    names: tuple[str, ...] | None = None  # of the classes
    others: Tensor | None = None  # (N,) bool: labelled nodes beside a random arm; they certify nothing
    inclusion: Array | None = None  # (N,) probability with which each node was labelled

    @property
    def labelled(self) -> Tensor:
        """Nodes whose labels are read (N,)."""
        return self.certify if self.others is None else self.certify | self.others

    @property
    def open(self) -> Tensor:
        """Nodes to decide (N,)."""
        return self.population & ~self.labelled

    def scores(self, target: int | None) -> tuple[Array, Array]:
        """The score (N,) that orders the nodes, and which are wrong: the prediction, or the claim "is of class ``target``"."""
        claim = self.log_probs.argmax(dim=1) if target is None else target
        return score_of(self.log_probs, target).numpy(), (self.y != claim).numpy()


class NotARandomDraw(ValueError):
    """The certification nodes differ from the nodes to decide by more than chance allows."""


def check_draw(
    log_probs: Tensor,
    y: Tensor,
    certify: Any,
    pool: Any = None,
    fitted: Any = None,
    held: Any = None,
    strata: Any = None,
    time: Any = None,
    degree: Any = None,
    names: Sequence[str] | None = None,
    drawn_here: bool = False,
    random_arm: Any = None,
    inclusion: Any = None,
) -> Draw:
    """Check masks and labels, and compare the certification nodes with the nodes to decide (see `graphcal.decide`).

    Masks are boolean or uint8 masks or node numbers, as tensors, arrays or lists. ``pool`` may hold all certification nodes or
    none of them; without one it is every node that fitted nothing. ``drawn_here`` says that this program drew them at random.
    Beside a ``random_arm`` the other nodes of ``certify`` may have fitted the calibrator.
    """
    check_log_probs(log_probs)
    log_probs = log_probs.detach().cpu()
    N = len(log_probs)
    y = torch.as_tensor(y).cpu()
    used = _mask(fitted, N, "fitted")
    certify, others = random_part(certify, random_arm, N)
    if others is not None:
        used = used & ~others
    check_apart(certify, used)
    inside = ~used if pool is None else _mask(pool, N, "pool")
    if (inside & used).any():
        raise ValueError(
            f"pool shares {int((inside & used).sum())} nodes with the fitting nodes: confidence is not honest where a label was "
            "fitted. Take them out of the pool: pool & ~fitted"
        )
    shared = int((certify & inside).sum())
    if 0 < shared < int(certify.sum()):
        raise ValueError(
            f"certify and pool overlap in {shared} of {int(certify.sum())} certification nodes: certification nodes are drawn "
            "from the pool, so it holds all of them, or none where it is given as the rest"
        )
    labelled = certify if others is None else certify | others
    if not (inside & ~labelled).any():
        raise ValueError(
            f"the pool has no unlabelled node: all its {int(inside.sum())} nodes certify, so there is nothing left to decide. "
            "Give the nodes to decide, for example pool=data.test_mask"
        )
    check_certify_labels(y, labelled, log_probs.shape[1])
    groups = None if strata is None else _strata(strata, N)
    title = None if names is None else tuple(names)
    chance = None if inclusion is None else check_inclusion(inclusion, N)
    draw = Draw(log_probs, y, certify, inside | labelled, _mask(held, N, "held"), groups, title, others, chance)
    if chance is not None:
        draw = without_certain(draw)
    if not drawn_here:
        check_random(draw, time, degree)
    return draw


def random_part(certify: Any, random_arm: Any, nodes: int) -> tuple[Tensor, Tensor | None]:
    """The nodes that certify (N,), and the other labelled ones beside a random arm; None without one."""
    if certify is None and random_arm is None:
        raise ValueError("decide needs labels: pass certify, the labelled nodes, or random_arm, those drawn at random.")
    arm = None if random_arm is None else check_mask(random_arm, nodes, "random_arm").cpu()
    if certify is None:
        assert arm is not None
        return arm, torch.zeros_like(arm)
    labelled = check_mask(certify, nodes, "certify").cpu()
    if arm is None:
        return labelled, None
    missing = int((arm & ~labelled).sum())
    if missing:
        raise ValueError(
            f"{missing} of {int(arm.sum())} nodes of the random arm are not in certify. An arm that is labelled in part is not "
            "random: label the rest of it."
        )
    return arm, labelled & ~arm


def without_certain(draw: Draw) -> Draw:
    """Leave out nodes that were labelled for certain: they tell nothing about the others. Few distinct chances are strata."""
    chance = draw.inclusion
    assert chance is not None
    certain = torch.from_numpy(chance >= 1) & draw.population
    missing = int((certain & draw.open).sum())
    if missing:
        raise ValueError(f"{missing} nodes with inclusion probability 1 have no label. Give the chances as they were.")
    draw = replace(draw, certify=draw.certify & ~certain, population=draw.population & ~certain)
    if draw.others is not None:
        return replace(draw, others=draw.others & ~certain)
    group = np.unique(np.round(chance, 9), return_inverse=True)[1]
    few = len(np.unique(group[draw.population.numpy()])) <= MOST_GROUPS
    return replace(draw, strata=group, inclusion=None) if few else draw


def check_random(draw: Draw, time: Any = None, degree: Any = None) -> None:
    """Refuse certification nodes that differ from the nodes to decide by more than the stated draw allows.

    A random arm was drawn from all nodes, or from those that nothing else labelled: it is refused if it fits neither.
    """
    columns = prediction_covariates(draw.log_probs.double().numpy(), draw.names, degree, time)

    def compare(labelled: Array, others: Array, chance: Array | None = None) -> RowComparison:
        groups = None if draw.strata is None else (draw.strata[labelled], draw.strata[others])
        return compare_rows(
            {name: column[labelled] for name, column in columns.items()},
            {name: column[others] for name, column in columns.items()},
            groups,
            None if chance is None else (chance[labelled], chance[others]),
        )

    rest = draw.open.numpy()
    if draw.inclusion is not None:
        inside = (draw.labelled & draw.population).numpy()
        by_chance = compare(inside, rest, draw.inclusion)
        if by_chance.differ:
            raise NotARandomDraw(
                f"the labelled rows were not drawn with the stated chances: {by_chance.text(second='the rows to decide')}. "
                "Nothing can be promised from them: give the chances as they were"
            )
        if draw.others is None:
            return
    comparison = compare(draw.certify.numpy(), rest)
    if comparison.differ and draw.others is not None and draw.others.any():
        from_all = compare(draw.certify.numpy(), rest | draw.others.numpy())
        comparison = comparison if from_all.differ else from_all
    if comparison.differ:
        within = "" if draw.strata is None else " within the stated strata"
        which = "the labelled rows" if draw.others is None else "the rows of the random arm"
        raise NotARandomDraw(
            f"{which} were not drawn at random from the rows to decide{within}: "
            f"{comparison.text(which, 'the rows to decide')}. Nothing can be promised from them: label rows drawn "
            "at random from all of them, flag those that were (random_arm), or name the strata they were drawn in"
        )


def _mask(mask: Any, nodes: int, name: str) -> Tensor:
    return (
        torch.zeros(nodes, dtype=torch.bool) if mask is None else check_mask(mask, nodes, name, may_be_empty=True).cpu()
    )


def _strata(strata: Any, nodes: int) -> Array:
    values = np.asarray(strata.cpu() if isinstance(strata, Tensor) else strata)
    if values.shape != (nodes,):
        raise ValueError(f"strata must hold one value per node, {nodes} of them; got shape {values.shape}")
    if any(value is None or value != value for value in values.tolist()):
        raise ValueError("strata must hold a value for every node, got gaps: name the stratum of each")
    return np.unique(values, return_inverse=True)[1]


def check_apart(certify: Tensor, fitted: Tensor) -> None:
    shared = int((certify & fitted).sum())
    if shared:
        raise ValueError(
            f"certify shares {shared} nodes with the nodes that trained, stopped or fitted the model: the same labels may not do "
            "two jobs. Split them: decide(out, recipe, certify=0.5) fits on one half of the validation nodes and certifies "
            "with the other; cross_fit=True does both ways where labels are few"
        )


def check_enough(certify: Tensor, promise: Promise) -> None:
    """Refuse fewer certification nodes than any certificate takes; a promise on average takes any number."""
    have, need = int(certify.sum()), labels_needed(promise.max_error, promise.certainty)
    if have < need and promise.kind != "average":
        raise ValueError(
            f"{have} certification nodes cannot certify at most {100 * promise.max_error:g} % errors with "
            f"{100 * promise.certainty:g} % certainty: that takes at least {need} of them "
            "without a single error (59 for 5 %, 299 for 1 %, at 95 %). "
            f"Label {need - have} more nodes drawn at random, or allow more errors"
        )


def check_certify_labels(y: Tensor, certify: Tensor, num_classes: int) -> None:
    """The labels of the certification nodes are class numbers; all others are not read."""
    if not isinstance(y, Tensor) or y.is_floating_point() or y.dtype == torch.bool or y.shape != certify.shape:
        came = f"{tuple(y.shape)} of {y.dtype}" if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"y must hold {len(certify)} integer class numbers (-1: no label); got {came}")
    labels = y[certify]
    wrong = (labels < 0) | (labels >= num_classes)
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
    part = torch.zeros_like(nodes)
    part[ids[torch.randperm(len(ids), generator=generator)[: max(1, round(share * len(ids)))]]] = True
    return part, nodes & ~part
