"""Everything that can be said about one set of predictions, as one typed value.

    m = evaluate(log_probs, y, mask, graph=data)
    m.ece, m.ece_floor, m.ece_interval, m.p, m.worst

A bare notebook cell shows it as a short table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.graphs import structure
from graphcal.metrics import scores
from graphcal.metrics.bins import Reliability, confidence, reliability
from graphcal.metrics.consistency import calibration_test, floor_interval
from graphcal.metrics.degree import degree_binned_error
from graphcal.metrics.floor import debiased_of, floor_of
from graphcal.metrics.intervals import block_ece_interval, ece_interval, seeded
from graphcal.metrics.ranking import aurc, auroc
from graphcal.metrics.refinement import split
from graphcal.metrics.slices import Slice, slices, worst
from graphcal.metrics.smooth import kde_ece, smooth_ece


@dataclass(frozen=True, eq=False)
class Measurement:
    """Calibration of one set of predictions, as fractions. `binning` says how every binned figure was binned."""

    nodes: int
    binning: str
    accuracy: float
    mean_confidence: float
    ece: float
    ece_floor: float  # a perfectly calibrated model's expected ECE on this many nodes
    ece_floor_interval: tuple[float, float]  # where its ECE lies with probability `level`
    ece_debiased: float
    ece_interval: tuple[float, float]  # true binned calibration error, nodes resampled
    ece_equal_mass: float
    ece_classwise: float
    ece_top_label: float
    mce: float
    smooth_ece: float
    kde_ece: float
    overconfidence: float
    underconfidence: float
    nll: float
    nll_calibration: float
    nll_refinement: float
    brier: float
    brier_calibration: float
    brier_refinement: float
    auroc: float
    aurc: float
    p: float  # of "this model is calibrated"
    level: float
    reliability: Reliability = field(repr=False)
    degree_binned_error: float | None = None  # the "ECE" of GETS and WATS; needs the graph
    ece_interval_blocks: tuple[float, float] | None = None  # neighbourhoods resampled; needs the graph
    slices: tuple[Slice, ...] = field(default=(), repr=False)

    @property
    def ece_excess(self) -> float:
        """ECE above its floor: what calibration could repair."""
        return self.ece - self.ece_floor

    @property
    def signed_gap(self) -> float:
        """Accuracy minus confidence: positive is under-confident."""
        return self.accuracy - self.mean_confidence

    @property
    def worst(self) -> Slice | None:
        """The group of nodes whose confidence is certainly furthest off."""
        return worst(self.slices)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("reliability", "slices")}
        named = None if self.worst is None else f"{self.worst.by}: {self.worst.group}"
        return {
            **{k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()},
            "ece_excess": self.ece_excess,
            "signed_gap": self.signed_gap,
            "reliability": self.reliability.to_dict(),
            "slices": [asdict(s) for s in self.slices],
            "worst": named,
        }

    def _repr_html_(self) -> str:
        low, high = self.ece_interval
        rows = {
            "nodes": f"{self.nodes:,}",
            "accuracy": f"{100 * self.accuracy:.1f} %, says {100 * self.mean_confidence:.1f} %",
            "ECE": f"{100 * self.ece:.2f} % (a perfect model would show {100 * self.ece_floor:.2f} %)",
            "true error": f"{100 * low:.1f} to {100 * high:.1f} points ({100 * self.level:.0f} % interval)",
            "is it calibrated?": f"p = {self.p:.3g}",
            "NLL, Brier": f"{self.nll:.4f}, {self.brier:.4f}",
            "worst group": "none is certainly off" if self.worst is None else f"{self.worst.by}: {self.worst.group}",
            "binning": self.binning,
        }
        cells = "".join(f"<tr><th style='text-align:left'>{k}</th><td>{v}</td></tr>" for k, v in rows.items())
        return f"<table>{cells}</table>"


def evaluate(
    log_probs: Tensor,
    y: Tensor,
    mask: Tensor | None = None,
    graph: Data | None = None,
    bins: int = 20,
    level: float = 0.95,
    draws: int = 1000,
    generator: torch.Generator | None = None,
) -> Measurement:
    """Measure predictions on the nodes in `mask` (all without one).

    With the `graph`, whose nodes are the rows of `log_probs`, also by slice, by blocks of neighbours and by degree.
    """
    if len(y) != len(log_probs):
        raise ValueError(f"y must have shape ({len(log_probs)},) to match log_probs, got {tuple(y.shape)}")
    mask = torch.ones(len(y), dtype=torch.bool, device=y.device) if mask is None else mask
    if mask.shape != y.shape or mask.dtype != torch.bool:
        raise ValueError(
            f"mask must be a boolean tensor of shape {tuple(y.shape)}, got {mask.dtype} {tuple(mask.shape)}"
        )
    lp, labels, generator = log_probs[mask], y[mask], seeded(generator)
    rel = reliability(lp, labels, bins)
    conf = confidence(lp)[0].cpu()
    parts = split(lp, labels)
    block = by_degree = None
    groups: list[Slice] = []
    if graph is not None:
        facts, nodes = structure(graph), mask.nonzero()[:, 0]
        block = block_ece_interval(lp, labels, facts.edge_index, nodes, bins, level, draws, generator)
        by_degree = degree_binned_error(lp, labels, facts.degree[mask])
        groups = slices(log_probs, y, mask, facts, bins)
    return Measurement(
        nodes=len(labels),
        binning=rel.convention,
        accuracy=scores.accuracy(lp, labels),
        mean_confidence=float(conf.mean()),
        ece=scores.ece_of(rel),
        ece_floor=floor_of(conf, rel.edges),
        ece_floor_interval=floor_interval(lp, bins, level, draws, generator),
        ece_debiased=debiased_of(rel),
        ece_interval=ece_interval(lp, labels, bins, level, draws, generator),
        ece_equal_mass=scores.ece(lp, labels, bins, "equal-mass"),
        ece_classwise=scores.classwise_ece(lp, labels, bins),
        ece_top_label=scores.top_label_ece(lp, labels, bins),
        mce=scores.mce_of(rel),
        smooth_ece=smooth_ece(lp, labels),
        kde_ece=kde_ece(lp, labels),
        overconfidence=scores.over_of(rel),
        underconfidence=scores.under_of(rel),
        nll=scores.nll(lp, labels),
        nll_calibration=parts.nll_calibration,
        nll_refinement=parts.nll_refinement,
        brier=scores.brier(lp, labels),
        brier_calibration=parts.brier_calibration,
        brier_refinement=parts.brier_refinement,
        auroc=auroc(lp, labels),
        aurc=aurc(lp, labels),
        p=calibration_test(lp, labels, draws=draws, generator=generator).p,
        level=level,
        reliability=rel,
        degree_binned_error=by_degree,
        ece_interval_blocks=block,
        slices=tuple(groups),
    )
