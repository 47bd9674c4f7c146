"""Calibration of groups of nodes, each with its gap and an interval.

Groups: hop distance from the training set, degree, agreement of the neighbours with the prediction, predicted class, right
or wrong. A group's gap is accuracy - confidence; its interval is Clopper and Pearson's for the accuracy, moved by the mean
confidence. Groups along an order (hops, degree, agreement) with fewer than 30 nodes are merged with the next; a class
with fewer, or nodes without neighbours or out of reach, are kept apart and flagged. A class is the predicted one: within a true
class, accuracy and confidence differ even for a calibrated model. For the same reason right and wrong are shown for what they
are and never named the worst.

The worst group has the largest gap once noise is taken off (`scores`). It is named only where noise alone would hardly show
a group so far off: p = 2 Φ(-|gap| / sd), corrected for looking at all groups (Bonferroni, 5 %).

`changed_nodes` are the single nodes whose confidence a calibration moved most, with where they sit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from scipy.special import ndtr
from torch import Tensor

from graphcal.graphs import UNREACHABLE, Structure, neighbour_agreement
from graphcal.metrics.bins import BINS, bin_of, confidence, equal_width_edges, outcomes
from graphcal.metrics.diagram import clopper_pearson
from graphcal.metrics.floor import abs_deviations
from graphcal.metrics.inputs import per_seed
from graphcal.metrics.scores import SMALL, corrected_gaps, gaps_of, whole


@dataclass(frozen=True)
class Slice:
    """One group of nodes."""

    by: str
    group: str
    nodes: int
    accuracy: float
    confidence: float
    signed_gap: float  # accuracy - confidence: positive is under-confident
    signed_gap_low: float
    signed_gap_high: float
    ece: float
    ece_floor: float
    small: bool  # too few nodes to believe
    corrected_gap: float  # what is left of the signed gap once noise, and being one of many groups, is taken off
    p: float  # of a gap as far from 0, were there none

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers of five digits."""
        return {k: round(v, 5) if isinstance(v, float) else v for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Grouping:
    """A way to cut the nodes: a number for each node, names, and how many of them, from the first, form an order."""

    by: str
    group: Tensor  # (N,)
    names: Sequence[str]
    ordered: int  # only these may be merged when small


def groupings(log_probs: Tensor, y: Tensor, facts: Structure) -> list[Grouping]:
    """All ways to cut the nodes of a graph, from the log-probabilities and labels of all its nodes."""
    pred = log_probs.argmax(dim=1)
    agreement = neighbour_agreement(pred, facts)
    hops = torch.where(facts.hops == UNREACHABLE, 5, facts.hops.clamp(max=4))
    degree = torch.bucketize(facts.degree, torch.tensor([0, 1, 2, 4, 8, 16], device=pred.device))
    share = torch.bucketize(agreement, torch.tensor([0.0, 0.5, 0.99], dtype=agreement.dtype, device=pred.device))
    share = torch.where(facts.degree == 0, 4, share)
    classes = facts.class_names or range(log_probs.shape[1])
    distances = ["training node", "1 hop", "2 hops", "3 hops", "4+ hops", "unreachable"]
    return [
        *([Grouping("distance from training", hops, distances, 5)] if bool(facts.train_mask.any()) else []),
        Grouping("degree", degree, ["0", "1", "2", "3–4", "5–8", "9–16", "17+"], 7),
        Grouping("neighbours that agree", share, ["none", "up to half", "most", "all", "no neighbours"], 4),
        Grouping("predicted class", pred, [f"class {name}" for name in classes], 0),
        Grouping("outcome", (pred != y).long(), ["right", "wrong"], 0),
    ]


def merged(group: Tensor, names: Sequence[str], ordered: int, small: int) -> tuple[Tensor, list[str]]:
    """The first `ordered` groups with small ones joined to the next (the last to the one before); the others as they are."""
    count = torch.bincount(group, minlength=len(names)).tolist()
    runs: list[list[int]] = []
    for k in (k for k in range(ordered) if count[k]):
        if runs and sum(count[j] for j in runs[-1]) < small:
            runs[-1].append(k)
        else:
            runs.append([k])
    if len(runs) > 1 and sum(count[j] for j in runs[-1]) < small:
        last = runs.pop()
        runs[-1] += last
    runs += [[k] for k in range(ordered, len(names)) if count[k]]
    renumbered = torch.zeros(len(names), dtype=torch.long)
    for number, run in enumerate(runs):
        renumbered[run] = number
    labels = [names[r[0]] if len(r) == 1 else f"{names[r[0]]} to {names[r[-1]]}" for r in runs]
    return renumbered[group], labels


def merged_cut(cut: Grouping, mask: Tensor) -> Tensor:
    """The groups of the nodes in `mask`, small ones merged."""
    return merged(cut.group[mask].cpu(), cut.names, cut.ordered, SMALL)[0]


def cut_nodes(log_probs: Tensor, y: Tensor, mask: Tensor, facts: Structure) -> list[Tensor]:
    """Groups of the nodes in `mask` by distance, degree and agreement, small ones merged: the cuts that `score` takes."""
    return [merged_cut(cut, mask) for cut in groupings(log_probs, y, facts) if cut.ordered]


def measure_groups(
    by: str,
    labels: Sequence[str],
    group: Tensor,
    conf: Tensor,
    right: Tensor,
    b: Tensor,
    bins: int,
    seeds: int,
) -> list[dict[str, Any]]:
    """Every group of one cut; `b` are the nodes' bins. With several seeds pooled, the intervals count every node once."""
    G = len(labels)
    cell = group * bins + b

    def sums(values: Tensor | None) -> Tensor:
        return torch.bincount(cell, values, minlength=G * bins).double().view(G, bins)

    n, c, r = sums(None), sums(conf), sums(right)
    count, total = n.sum(1), torch.stack([c.sum(1), r.sum(1)])  # (G,), (2, G)
    low, high = map(torch.from_numpy, clopper_pearson((count / seeds).numpy(), (total[1] / seeds).numpy()))
    confidence, acc = total / count
    error, noise = (r - c).abs().sum(1) / count, abs_deviations(conf, cell, G * bins).view(G, bins).sum(1) / count
    table = {
        "accuracy": acc,
        "confidence": confidence,
        "signed_gap": acc - confidence,
        "signed_gap_low": low - confidence,
        "signed_gap_high": high - confidence,
        "ece": error,
        "ece_floor": noise * seeds**0.5,
    }
    nodes = (count / seeds).round().long().tolist()
    return [
        {"by": by, "group": labels[k], "nodes": nodes[k], "small": nodes[k] < SMALL}
        | {key: float(values[k]) for key, values in table.items()}
        for k in range(G)
        if count[k] > 0
    ]


def measure_slices(
    log_probs: Tensor | Sequence[Tensor],
    y: Tensor,
    mask: Tensor,
    facts: Structure,
    bins: int = BINS,
) -> list[Slice]:
    """Every group of the nodes in `mask`. `log_probs` (N, C) covers all nodes of the graph; one tensor, or one per seed."""
    seeds = per_seed(log_probs)
    cuts = [groupings(lp, y, facts) for lp in seeds]
    return slices_of(cuts, [outcomes(lp[mask], y[mask]) for lp in seeds], mask, bins)


def slices_of(
    cuts: Sequence[Sequence[Grouping]],
    read: Sequence[tuple[Tensor, Tensor]],
    mask: Tensor,
    bins: int = BINS,
) -> list[Slice]:
    """The same from each seed's cuts of all nodes, and confidence and rightness of those in `mask`."""
    conf, right = (torch.cat(parts) for parts in zip(*read))
    b, seeds = bin_of(conf, equal_width_edges(bins)), len(cuts)
    measured: list[dict[str, Any]] = []
    _, gap, variance = gaps_of(conf, right, whole(len(conf)), 1, seeds)
    gaps, variances = [gap], [variance]
    for same in zip(*cuts):
        cut, group = same[0], torch.cat([cut.group[mask] for cut in same]).cpu()
        group, labels = merged(group, cut.names, cut.ordered, SMALL * seeds)
        measured += measure_groups(cut.by, labels, group, conf, right, b, bins, seeds)
        nodes, gap, variance = gaps_of(conf, right, group, len(labels), seeds)
        gaps.append(gap[nodes > 0])
        variances.append(variance[nodes > 0])
    return with_noise(measured, torch.cat(gaps), torch.cat(variances))


def with_noise(measured: Sequence[dict[str, Any]], gap: Tensor, variance: Tensor) -> list[Slice]:
    """The measured groups with corrected gaps and p-values; the first gap is that of all nodes."""
    groups = sum(fair(one["by"], one["small"]) for one in measured)
    left = corrected_gaps(gap, variance, max(groups, 1))[1:].tolist()
    p = (2 * ndtr(-(gap.abs() / variance.clamp(min=1e-300).sqrt()).numpy()))[1:].tolist()
    return [Slice(**one, corrected_gap=left[k], p=p[k]) for k, one in enumerate(measured)]


def fair(by: str, small: bool) -> bool:
    """May the group be named the worst?"""
    return not small and by != "outcome"


def worst_slice(slices: Sequence[Slice], level: float = 0.05) -> Slice | None:
    """The group that is furthest off; None when no group is certainly off."""
    named = [s for s in slices if fair(s.by, s.small)]
    return max((s for s in named if s.p * len(named) <= level), key=lambda s: abs(s.corrected_gap), default=None)


@dataclass(frozen=True)
class ChangedNode:
    """One node whose confidence a calibration moved, averaged over seeds; prediction and place are those of the first seed."""

    node: int
    before: float
    after: float
    predicted: int
    label: int
    right: float  # share of the seeds
    hops: int  # from the nearest training node
    degree: int
    agreement: float  # share of the neighbours that are predicted alike

    def to_dict(self) -> dict[str, Any]:
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(self).items()}


def changed_nodes(
    after: Sequence[Tensor], before: Sequence[Tensor], y: Tensor, mask: Tensor, facts: Structure, most: int = 12
) -> list[ChangedNode]:
    """The nodes of `mask` whose confidence moved most, averaged over seeds."""
    old, new = (torch.stack([confidence(lp)[0] for lp in seeds]).mean(dim=0) for seeds in (before, after))
    right = torch.stack([lp.argmax(dim=1) == y for lp in after]).double().mean(dim=0).cpu()
    pred = after[0].argmax(dim=1)
    agreement = neighbour_agreement(pred, facts)
    moved = torch.where(mask.cpu(), (new - old).abs(), torch.zeros_like(new))
    return [
        ChangedNode(
            n, float(old[n]), float(new[n]), int(pred[n]), int(y[n]), float(right[n]),
            int(facts.hops[n]), int(facts.degree[n]), float(agreement[n]),
        )
        for n in moved.topk(min(most, int(mask.sum()))).indices.tolist()
        if float(moved[n]) > 1e-4
    ]  # fmt: skip
