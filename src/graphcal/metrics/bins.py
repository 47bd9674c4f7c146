"""Reliability: confidence against accuracy in bins. The one binning that ECE, the diagram and the report share.

Confidence is the largest probability, c = max_k p_k; a node is right when argmax_k p_k = y.
Equal-width bins are (lo, hi]: bin b of B holds b/B < c <= (b+1)/B, with c = 0 in the first bin and c = 1 in the last
(Guo et al. 2017, arXiv:1706.04599, Eq. 2-3). Equal-mass bins put the same number of nodes in each, same closed side.

A `Reliability` holds sums, not means, so two of them with the same edges add: that is the streaming version.
Departures: other libraries put c = 1 into a bin of its own or drop c = 0; here every node is in exactly one bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcal.metrics.inputs import Array, check_bins, check_log_probs, exp_top, map_chunks, map_reduce

SCHEMES = ("equal-width", "equal-mass")
SUMS = ("count", "conf_sum", "right_sum", "variance", "square")


BINS = 20  # of confidence, equal width: the default everywhere


@dataclass(frozen=True, eq=False)
class Reliability:
    """Sums by confidence bin, (lo, hi] with 0 and 1 included. `a + b` merges two with the same edges."""

    edges: Tensor  # (B + 1,)
    count: Tensor  # (B,)  nodes
    conf_sum: Tensor  # (B,)  sum of confidence
    right_sum: Tensor  # (B,)  number of right predictions
    variance: Tensor  # (B,)  sum of c (1 - c): variance of right_sum were the model calibrated
    square: Tensor  # (B,)  sum of (right - c)^2: its observed counterpart
    scheme: str = "equal-width"

    @property
    def nodes(self) -> int:
        return round(float(self.count.sum()))

    @property
    def conf(self) -> Tensor:
        """Mean confidence of each bin, NaN where it is empty."""
        return self.conf_sum / self.count

    @property
    def accuracy(self) -> Tensor:
        """Accuracy of each bin, NaN where it is empty."""
        return self.right_sum / self.count

    @property
    def gap(self) -> Tensor:
        """(B,) share of the nodes times (accuracy - confidence): ECE is the sum of its absolute values."""
        return (self.right_sum - self.conf_sum) / self.count.sum()

    @property
    def name(self) -> str:
        return f"{len(self.count)} {self.scheme}"

    @property
    def convention(self) -> str:
        return f"{self.name} bins (lo, hi], 0 and 1 included"

    def __add__(self, other: Reliability) -> Reliability:
        if self.scheme != other.scheme or not torch.equal(self.edges, other.edges):
            raise ValueError(
                f"only reliabilities with the same bins add: {self.convention} and {other.convention} differ"
            )
        return replace(self, **{k: getattr(self, k) + getattr(other, k) for k in SUMS})

    def divided(self, by: float) -> Reliability:
        """All sums divided: the mean of so many tables that were added."""
        return replace(self, **{k: getattr(self, k) / by for k in SUMS})

    def to_dict(self) -> dict[str, Any]:
        return {
            "convention": self.convention,
            "edges": self.edges.tolist(),
            "count": [int(n) for n in self.count],
            "confidence": [None if n == 0 else float(c) for n, c in zip(self.count, self.conf)],
            "accuracy": [None if n == 0 else float(a) for n, a in zip(self.count, self.accuracy)],
            "right": [int(r) for r in self.right_sum],
        }


def mean_reliability(parts: Sequence[Reliability]) -> Reliability:
    """The mean of several seeds: counts of one test set, not of R of them."""
    return sum(parts[1:], start=parts[0]).divided(len(parts))


def equal_width_edges(bins: int) -> Tensor:
    """0, 1/B, ..., 1, each correctly rounded."""
    check_bins(bins)
    return torch.arange(bins + 1, dtype=torch.float64) / bins


def equal_mass_edges(conf: Tensor, bins: int) -> Tensor:
    """Edges between the sorted confidences: N // B nodes in each bin, one more in the first N % B; ties stay together."""
    check_bins(bins)
    ordered, (each, more) = torch.from_numpy(np.sort(conf.cpu().double().numpy())), divmod(len(conf), bins)
    k = torch.arange(1, bins)
    last = k * each + k.clamp(max=more) - 1  # last node of each bin but the final one
    inner = ordered[last.clamp(min=0)]
    return torch.cat([ordered.new_zeros(1), inner, ordered.new_ones(1)])


def bin_of(conf: Tensor, edges: Tensor) -> Tensor:
    """Number of the bin (lo, hi] each confidence falls in; what lies on an outer edge is inside."""
    return torch.bucketize(conf, edges[1:-1].contiguous(), right=False)


def equal_width_bin(conf: Array, edges: Tensor) -> Array:
    """`bin_of` for equal-width edges: floor(B c) except within rounding of an edge; those are looked up."""
    B = len(edges) - 1
    close = max(1e-11, 4 * B * float(np.finfo(conf.dtype).eps))  # single precision has fewer digits
    scaled = conf * conf.dtype.type(B)
    b: Array = scaled.astype(np.int64)  # floor: the bin unless conf lies on an edge, where (lo, hi] means one less
    scaled -= b
    if scaled.size and (scaled.min() < close or scaled.max() > 1 - close):
        near = (scaled < close) | (scaled > 1 - close)
        b[near] = bin_of(torch.from_numpy(conf[near]).double(), edges).numpy()
    return b


def confidence(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Confidence (float64, on the CPU) and predicted class of each node."""
    top, pred = log_probs.max(dim=1)
    return torch.from_numpy(exp_top(top.detach().cpu().double().numpy())), pred


def checked_confidence(log_probs: Tensor) -> Tensor:
    """Confidence of each node, checked; float64, on the CPU."""
    check_log_probs(log_probs[:1])
    any_class = torch.zeros(1, dtype=torch.long).expand(len(log_probs))
    return torch.from_numpy(np.concatenate(list(map_chunks(log_probs, any_class, lambda rows: rows.conf))))


def outcomes(log_probs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Confidence and rightness (0 or 1) of each node, checked; float64, on the CPU."""
    parts = list(map_chunks(log_probs, y, lambda rows: (rows.conf, rows.right)))
    conf, right = (torch.from_numpy(np.concatenate(part)) for part in zip(*parts))
    return conf, right.double()


def cell_sums(conf: Array, right: Array, edges: Tensor, scheme: str) -> Array:
    """(3, B, 2) number, sum of c and sum of c² by bin, wrong and right predictions apart."""
    bins = len(edges) - 1
    b = equal_width_bin(conf, edges) if scheme == "equal-width" else bin_of(torch.from_numpy(conf), edges).numpy()
    cell = 2 * b + right.astype(np.int64)
    each = [np.bincount(cell, weights, minlength=2 * bins) for weights in (None, conf, conf * conf)]
    return np.stack(each).astype(np.float64).reshape(3, bins, 2)


def tally_rows(conf: Array, right: Array, edges: Tensor, scheme: str = "equal-width") -> Reliability:
    """The reliability of these confidences; `right` is 0/1."""
    n, c, cc = torch.from_numpy(cell_sums(conf, right, edges, scheme))  # (B, 2) each
    return Reliability(
        edges,
        count=n.sum(1),
        conf_sum=c.sum(1),
        right_sum=n[:, 1],
        variance=c.sum(1) - cc.sum(1),
        square=n[:, 1] - 2 * c[:, 1] + cc.sum(1),  # (right - c)² = right - 2 right c + c²
        scheme=scheme,
    )


def tally(conf: Tensor, right: Tensor, edges: Tensor, scheme: str = "equal-width") -> Reliability:
    """`tally_rows` of tensors."""
    return tally_rows(conf.cpu().double().numpy(), right.cpu().numpy(), edges, scheme)


def reliability(log_probs: Tensor, y: Tensor, bins: int = BINS, scheme: str = "equal-width") -> Reliability:
    """Confidence against accuracy of the predicted class, in `bins` equal-width or equal-mass bins."""
    if scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}")
    if scheme == "equal-width":
        edges = equal_width_edges(bins)
        return map_reduce(log_probs, y, lambda rows: tally_rows(rows.conf, rows.right, edges))
    conf, right = outcomes(log_probs, y)
    return tally(conf, right, equal_mass_edges(conf, bins), scheme)
