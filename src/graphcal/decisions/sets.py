"""Prediction sets: the classes a node may have, so that the true one is among them with probability 1 - α.

Split conformal prediction (Vovk et al. 2005). A score s(node, class) is large where the class is implausible; with n labelled
nodes exchangeable with the others, and q̂ the ⌈(n + 1)(1 - α)⌉-th smallest score of their true classes,
    set = {c : s(node, c) <= q̂}            covers with probability at least 1 - α, on average over draws.
Scores:
    thr     1 - p_c                                                             smallest sets (Sadinle et al. 2019)
    aps     Σ_{c' : p_c' > p_c} p_c' + u p_c,  u ~ Uniform(0, 1) per node       adapts to hard nodes (Romano et al. 2020)
    daps    (1 - λ) aps + λ · mean of the neighbours' aps                       diffused along edges (Zargarbashi et al. 2023)
For nodes of a random draw the scores of all nodes are fixed before the draw, so diffusion keeps exchangeability. New nodes
change neighbourhoods: compute all scores again on the current graph (arXiv:2407.09173). By class: a quantile per true class gives
every class its own 1 - α. Given the labels, coverage varies as Beta(k, n + 1 - k), k = ⌈(n + 1)(1 - α)⌉: the band.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from scipy.special import betaincinv
from torch import Tensor

from graphcal.decisions.masks import Draw, check_draw
from graphcal.metrics.references import degrees

if TYPE_CHECKING:
    from torch_geometric.data import Data

Score = Literal["thr", "aps", "daps"]


def scores(
    log_probs: Tensor, kind: Score = "thr", graph: Data | None = None, diffusion: float = 0.5, seed: int = 0
) -> Tensor:
    """(N, C) scores; ``graph`` and ``diffusion`` (λ, fixed beforehand) are for daps, ``seed`` draws the u of aps."""
    probs = log_probs.double().exp()
    if kind == "thr":
        return 1 - probs
    if kind not in ("aps", "daps"):
        raise ValueError(f"unknown score {kind!r}; choose thr, aps or daps")
    ordered, rank = probs.sort(dim=1, descending=True)
    before = (ordered.cumsum(dim=1) - ordered).gather(1, rank.argsort(dim=1))  # mass of more probable classes
    u = torch.rand(len(probs), 1, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    aps = before + u * probs
    if kind == "aps":
        return aps
    if graph is None or graph.get("edge_index") is None:
        raise ValueError("daps diffuses scores along edges: give the graph, or choose aps")
    from graphcal.graphs import structure

    return (1 - diffusion) * aps + diffusion * structure(graph).neighbour_mean(aps)


def conformal_quantile(values: Tensor, coverage: float) -> float:
    """The ⌈(n + 1) coverage⌉-th smallest value; infinite when there are too few."""
    rank = math.ceil((len(values) + 1) * coverage - 1e-9)
    return math.inf if rank > len(values) else float(values.sort().values[rank - 1])


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """A set of classes for every node."""

    members: Tensor = field(repr=False)  # (N, C) bool
    coverage: float  # that is promised, on average over draws
    band: tuple[float, float]  # where the coverage of these very sets lies with 90 % probability
    score: str
    by_class: bool
    labels: int

    @property
    def sizes(self) -> Tensor:  # (N,)
        return self.members.sum(dim=1)

    def covered(self, y: Tensor, nodes: Tensor | None = None) -> float:
        """Share of nodes with a label whose set holds it."""
        labelled = y >= 0 if nodes is None else (y >= 0) & nodes
        return float(self.members[labelled].gather(1, y[labelled, None]).double().mean())

    def covered_by(self, y: Tensor, slices: Mapping[str, Tensor]) -> dict[str, float]:
        """Coverage per slice: masks (N,) by name."""
        return {name: self.covered(y, mask) for name, mask in slices.items()}

    @property
    def sentence(self) -> str:
        sizes, (low, high) = self.sizes, (f"{100 * end:.1f}" for end in self.band)
        return (
            f"The true class is in the set with probability {100 * self.coverage:g} % over draws ({low} to {high} % for these "
            f"labels, 90 % band). Sets hold {float(sizes.double().mean()):.2f} classes on average, "
            f"{100 * float((sizes == 1).double().mean()):.0f} % hold one."
        )

    def to_dict(self) -> dict[str, Any]:
        sizes = self.sizes
        return {
            "coverage": self.coverage,
            "band": list(self.band),
            "score": self.score,
            "by_class": self.by_class,
            "labels": self.labels,
            "mean_size": float(sizes.double().mean()),
            "single": float((sizes == 1).double().mean()),
            "empty": float((sizes == 0).double().mean()),
        }


def prediction_sets(
    log_probs: Tensor,
    y: Tensor,
    certify: Any,
    coverage: float = 0.9,
    score: Score = "thr",
    by_class: bool = False,
    graph: Data | None = None,
    diffusion: float = 0.5,
    fitted: Any = None,
    seed: int = 0,
) -> PredictionSets:
    """Make sets for all nodes from the labels of the certification nodes; masks as in `graphcal.decide`.

    >>> g = torch.Generator().manual_seed(0)
    >>> z = 2 * torch.randn(3000, 5, generator=g)
    >>> y = torch.multinomial(z.softmax(1), 1, generator=g)[:, 0]
    >>> sets = prediction_sets(z.log_softmax(1), y, torch.arange(3000) < 500, coverage=0.9)
    >>> round(sets.covered(y), 2), round(sets.to_dict()["mean_size"], 1)
    (0.91, 2.2)
    """
    degree = None if graph is None or graph.get("edge_index") is None else degrees(graph)
    draw = check_draw(log_probs, y, certify, fitted=fitted, degree=degree)
    return sets_of(draw, coverage, score, by_class, graph, diffusion, seed)


def sets_of(
    draw: Draw,
    coverage: float = 0.9,
    score: Score = "thr",
    by_class: bool = False,
    graph: Data | None = None,
    diffusion: float = 0.5,
    seed: int = 0,
) -> PredictionSets:
    """Make sets from a draw that was checked."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage}; 0.9 means 90 %")
    log_probs, y, certify = draw.log_probs, draw.y, draw.certify
    values = scores(log_probs, score, graph, diffusion, seed)  # (N, C)
    truth = values[certify].gather(1, y[certify, None])[:, 0]  # (n,)
    if by_class:
        quantiles = [conformal_quantile(truth[y[certify] == c], coverage) for c in range(log_probs.shape[1])]
        limit = torch.tensor(quantiles, dtype=torch.double)
    else:
        limit = torch.tensor(conformal_quantile(truth, coverage), dtype=torch.double)
    return PredictionSets(values <= limit, coverage, coverage_band(len(truth), coverage), score, by_class, len(truth))


def coverage_band(labels: int, coverage: float, level: float = 0.9) -> tuple[float, float]:
    """Interval that holds the coverage of one draw's sets with probability ``level``."""
    rank = math.ceil((labels + 1) * coverage - 1e-9)
    if rank > labels:
        return 1.0, 1.0  # every class is in every set
    ends = betaincinv(rank, labels + 1 - rank, [(1 - level) / 2, (1 + level) / 2])
    return float(ends[0]), float(ends[1])
