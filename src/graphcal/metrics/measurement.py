"""Everything that can be said about one method's predictions on one set of nodes, as one typed value.

    m = evaluate(log_probs, y, mask, graph=data)
    m.ece, m.ece_floor, m.true_error, m.ece_interval, m.p, m.worst

With several seeds (a list of log-probabilities on the same nodes) every score is the mean over them, intervals and comparisons
resample the nodes for all seeds together, and `by_seed` keeps each seed's own scores. Tables, pages and results.json are views
of a `Measurement`; a bare notebook cell shows it as a short table.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphcal.graphs import structure
from graphcal.metrics.bins import BINS, Reliability, outcomes
from graphcal.metrics.comparison import Comparison, compare
from graphcal.metrics.diagram import Diagram, diagram_of, rounded
from graphcal.metrics.ece_variants import degree_binned_error, ece_classwise, ece_top_label, kde_ece, mce, smooth_ece
from graphcal.metrics.floor import LabelLimit, calibration_test, floor_interval, label_limit, seeded
from graphcal.metrics.inputs import per_seed
from graphcal.metrics.intervals import block_ece_interval, error_at, gap_noise, interval_of
from graphcal.metrics.refinement import calibration_refinement
from graphcal.metrics.scores import DECIDED_ERROR, SCORES, Scores, ece, mean_scores, score
from graphcal.metrics.selective import coverage_interval
from graphcal.metrics.slices import (
    ChangedNode,
    Slice,
    changed_nodes,
    groupings,
    merged_cut,
    slices_of,
    worst_slice,
)
from graphcal.text import Summarized, plural

if TYPE_CHECKING:
    from torch_geometric.data import Data

OFFERED_BINNINGS = (
    (10, "equal-width"),
    (15, "equal-width"),
    (20, "equal-width"),
    (30, "equal-width"),
    (20, "equal-mass"),
)
PAIRED = ("ece", "nll")  # what is compared with the predictions before calibration


@dataclass(frozen=True, eq=False)
class Measurement(Summarized, Scores):
    """Calibration of one method on one set of nodes, as fractions; with several seeds, means over them.

    `evaluate` makes it. ``print(m)`` shows a summary.

    Attributes
    ----------
    nll, brier, accuracy, confidence : float
        Proper scores, accuracy and mean confidence.
    ece, ece_floor : float
        Measured ECE, and the expected ECE of a perfectly calibrated model on these nodes.
    true_error, ece_interval : float, (float, float)
        Estimate of the ECE without sampling noise, and its interval.
    slices, worst : tuple of Slice, Slice or None
        Groups of nodes, and the one that is significantly furthest off.
    by_seed : tuple of Scores
        Scores of each seed.

    Examples
    --------
    >>> import graphcal
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> m = graphcal.evaluate(out.logits.log_softmax(-1), data.y, data.test_mask, graph=data)
    >>> m.ece > m.ece_floor, m.ece_interval[0] <= m.true_error <= m.ece_interval[1]
    (True, True)
    >>> m.worst is not None, m.binning.startswith("20 equal-width"), int(m.reliability.count.sum()) == m.nodes
    (True, True, True)
    >>> [heading for heading, _ in m.summary]  # print(m) shows them
    ['Nodes', 'NLL', 'ECE', 'True error', 'Calibrated', 'Weak spot']
    >>> m.to_dict()["nll"]["mean"] == m.nll  # for results.json: mean, sd and values of the seeds
    True
    """

    level: float
    by_seed: tuple[Scores, ...] = field(repr=False)
    diagrams: tuple[Diagram, ...] = field(repr=False)  # the binning that was asked for comes first
    true_error: float  # the binned calibration error behind the noise: median-unbiased estimate
    ece_interval: tuple[float, float]  # its interval, nodes resampled
    p: float  # of "this model is calibrated"; with several seeds the median
    rejected: int  # seeds whose p is at most 0.05
    coverage_interval: tuple[float, float]  # of the oracle coverage at 5 % error; mean ends over seeds
    # With the graph
    slices: tuple[Slice, ...] = field(default=(), repr=False)
    limit: LabelLimit | None = None  # what the validation labels allow a one-parameter fit
    # With the predictions before calibration
    against: Mapping[str, Comparison] = field(default_factory=dict, repr=False)
    changed: tuple[ChangedNode, ...] = field(default=(), repr=False)
    # Only when thorough
    ece_floor_interval: tuple[float, float] | None = (
        None  # where a calibrated model's ECE lies with probability `level`
    )
    ece_interval_blocks: tuple[float, float] | None = None  # neighbourhoods resampled; needs the graph
    ece_equal_mass: float | None = None
    ece_classwise: float | None = None
    ece_top_label: float | None = None
    mce: float | None = None
    smooth_ece: float | None = None
    kde_ece: float | None = None
    degree_binned_error: float | None = None  # the "ECE" of GETS and WATS; needs the graph
    nll_calibration: float | None = None
    nll_refinement: float | None = None
    brier_calibration: float | None = None
    brier_refinement: float | None = None

    @property
    def reliability(self) -> Reliability:
        """Confidence, accuracy and number of nodes per bin."""
        return self.diagrams[0].reliability

    @property
    def binning(self) -> str:
        """Name of the bins of every binned figure."""
        return self.reliability.convention

    @property
    def worst(self) -> Slice | None:
        """The group of nodes whose confidence is certainly furthest off."""
        return worst_slice(self.slices)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON: of each score mean, sd and the values of the seeds."""
        record: dict[str, Any] = {"nodes": self.nodes, "seeds": len(self.by_seed), "level": self.level}
        record |= {key: spread([s.to_dict()[key] for s in self.by_seed]) for key in SCORES}
        record |= {"true_error": self.true_error, "ece_interval": list(self.ece_interval)}
        record |= {"p": self.p, "rejected": self.rejected}
        record["coverage_interval"] = list(self.coverage_interval)
        record |= {key: value for key in EXTRAS if (value := getattr(self, key)) is not None}
        drawn = {d.reliability.name: d for d in self.diagrams}
        record["bins"] = self.reliability.name
        record["binnings"] = {name: d.to_dict() for name, d in drawn.items()}
        record["histogram"] = histogram(drawn["20 equal-width"].reliability)
        if self.slices:
            record["slices"] = [s.to_dict() for s in self.slices]
            record["worst"] = None if self.worst is None else self.worst.to_dict()
        if self.limit is not None:
            record["limit"] = self.limit.to_dict()
        if self.against:
            record["against"] = {key: c.to_dict() for key, c in self.against.items()}
            record["changed"] = [node.to_dict() for node in self.changed]
        return record

    @property
    def summary(self) -> list[tuple[str, str]]:
        """Headings and texts, the most useful first, for a terminal or a notebook."""
        low, high = (f"{100 * end:.1f}" for end in self.ece_interval)
        gap = 100 * (self.confidence - self.accuracy)
        word = f"{'over' if gap > 0 else 'under'}-confident by {abs(gap):.1f} points"
        interval = f"{low} to {high}, {100 * self.level:.0f} % interval"
        worst = self.worst
        weak = (
            "no group is measurably off"
            if worst is None
            else f"{worst.by}: {worst.group} ({plural(worst.nodes, 'node')})"
        )
        return [
            (
                "Nodes",
                f"{self.nodes:,}; accuracy {100 * self.accuracy:.1f} %, confidence {100 * self.confidence:.1f} %, {word}",
            ),
            ("NLL", f"{self.nll:.4f}, Brier {self.brier:.4f}"),
            (
                "ECE",
                f"{100 * self.ece:.2f} %, {100 * self.ece_floor:.2f} % for a perfect model ({self.reliability.name} bins)",
            ),
            ("True error", f"{100 * self.true_error:.1f} points ({interval})"),
            ("Calibrated", f"{'not refuted' if self.p > 0.05 else 'no'}, p = {self.p:.3g}"),
            ("Weak spot", weak),
        ]


EXTRAS = (
    "ece_floor_interval", "ece_interval_blocks", "ece_equal_mass", "ece_classwise", "ece_top_label", "mce", "smooth_ece",
    "kde_ece", "degree_binned_error", "nll_calibration", "nll_refinement", "brier_calibration", "brier_refinement",
)  # fmt: skip


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean, standard deviation and values over seeds; null where a seed has none."""
    present = [v for v in values if v is not None]
    if len(present) < len(values):
        return {"mean": None, "sd": None, "values": list(values)}
    return {"mean": fmean(present), "sd": stdev(present) if len(present) > 1 else 0.0, "values": present}


def histogram(rel: Reliability) -> dict[str, Any]:
    """Share of all nodes by confidence, apart for right and wrong predictions."""
    total = rel.count.sum()
    right, wrong = rel.right_sum / total, (rel.count - rel.right_sum) / total
    return {"edges": rounded(rel.edges), "right": rounded(right), "wrong": rounded(wrong)}


def warn_of_training_nodes(mask: Tensor, graph: Data | None) -> None:
    """A model has seen the labels of its training nodes: measured there, it looks better than it is."""
    train = None if graph is None else graph.get("train_mask")
    shared = 0 if train is None or train.shape != mask.shape else int((train.to(mask.device) & mask).sum())
    if shared:
        warnings.warn(
            f"{shared} of the {int(mask.sum())} measured nodes are in train_mask: the model has seen their labels, so what is "
            "measured there is too good",
            stacklevel=3,
        )


def evaluate(
    log_probs: Tensor | Sequence[Tensor],
    y: Tensor,
    mask: Tensor | None = None,
    graph: Data | None = None,
    bins: int = BINS,
    level: float = 0.95,
    draws: int = 1000,
    generator: torch.Generator | None = None,
    before: Tensor | Sequence[Tensor] | None = None,
    thorough: bool = True,
) -> Measurement:
    """Measure the calibration of predictions.

    Parameters
    ----------
    log_probs : Tensor of shape (N, C), or a sequence of them
        Log-probabilities; a sequence holds one tensor per seed.
    y : Tensor of shape (N,)
        Labels, -1 for none.
    mask : Tensor of shape (N,), optional
        Nodes to measure; all without one.
    graph : Data, optional
        Graph whose nodes are the rows. Adds slices and the limit set by its validation labels.
    bins : int, default=20
        Number of equal-width bins.
    level : float, default=0.95
        Level of intervals.
    draws : int, default=1000
        Number of resamples.
    generator : torch.Generator, optional
        Source of randomness.
    before : like ``log_probs``, optional
        Predictions before calibration. Adds paired differences and the nodes that changed most.
    thorough : bool, default=True
        Add variants of ECE, the interval by neighbourhoods and the parts of the proper scores. Doubles the work.

    Returns
    -------
    Measurement
        All metrics as fractions.

    Examples
    --------
    >>> log_probs, y = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]]).log(), torch.tensor([0, 1, 1])
    >>> m = evaluate(log_probs, y)
    >>> round(m.accuracy, 2), round(m.confidence, 2), m.binning
    (0.67, 0.7, '20 equal-width bins (lo, hi], 0 and 1 included')
    """
    seeds = per_seed(log_probs)
    mask = checked_mask(mask, seeds[0], y)
    warn_of_training_nodes(mask, graph)
    rows, labels = [lp[mask] for lp in seeds], y[mask]
    facts = None if graph is None else structure(graph)
    cuts = [[] if facts is None else groupings(lp, y, facts) for lp in seeds]
    by_seed = tuple(
        score(lp, labels, bins, [merged_cut(cut, mask) for cut in seed_cuts if cut.ordered])
        for lp, seed_cuts in zip(rows, cuts)
    )
    covered = [coverage_interval(lp, labels, DECIDED_ERROR, level) for lp in rows]
    tests = sorted(calibration_test(lp, labels, draws=draws, generator=generator).p for lp in rows)
    read = [outcomes(lp, labels) for lp in rows]
    gaps = gap_noise(rows, labels, bins, draws, seeded(generator))
    options: dict[str, Any] = {"bins": bins, "level": level, "draws": draws, "generator": generator}
    fields: dict[str, Any] = {
        "level": level,
        "by_seed": by_seed,
        "diagrams": tuple(
            diagram_of(read, *binning) for binning in dict.fromkeys([(bins, "equal-width"), *OFFERED_BINNINGS])
        ),
        "true_error": error_at(*gaps, 0.5),
        "ece_interval": interval_of(*gaps, level),
        "p": tests[len(tests) // 2],
        "rejected": sum(p <= 0.05 for p in tests),
        "coverage_interval": (fmean(low for low, _ in covered), fmean(high for _, high in covered)),
    }
    if graph is not None and facts is not None:
        fields["slices"] = tuple(slices_of(cuts, read, mask, bins))
        if graph.get("val_mask") is not None:
            fields["limit"] = label_limit(rows[0], max(1, int(graph.val_mask.sum())), bins)
    if before is not None:
        old = per_seed(before)
        fields["against"] = {key: compare(rows, [lp[mask] for lp in old], labels, key, **options) for key in PAIRED}
        if facts is not None:
            fields["changed"] = tuple(changed_nodes(seeds, old, y, mask, facts))
    if thorough:
        fields |= extra_scores(rows, labels, mask, graph, options)
    return Measurement(**vars(mean_scores(by_seed)), **fields)


def extra_scores(
    rows: Sequence[Tensor], y: Tensor, mask: Tensor, graph: Data | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a `Measurement` that are only measured when thorough, means over seeds."""
    bins = int(options["bins"])
    each: list[dict[str, float]] = []
    for lp in rows:
        low, high = floor_interval(lp, **options)
        one = {
            "floor_low": low,
            "floor_high": high,
            "ece_equal_mass": ece(lp, y, bins, "equal-mass"),
            "ece_classwise": ece_classwise(lp, y, bins),
            "ece_top_label": ece_top_label(lp, y, bins),
            "mce": mce(lp, y, bins),
            "smooth_ece": smooth_ece(lp, y),
            "kde_ece": kde_ece(lp, y),
            **vars(calibration_refinement(lp, y)),
        }
        if graph is not None:
            one["degree_binned_error"] = degree_binned_error(lp, y, structure(graph).degree[mask])
        each.append(one)
    fields: dict[str, Any] = {key: fmean(one[key] for one in each) for key in each[0]}
    fields["ece_floor_interval"] = (fields.pop("floor_low"), fields.pop("floor_high"))
    if graph is not None:
        nodes = mask.nonzero()[:, 0]
        fields["ece_interval_blocks"] = block_ece_interval(rows, y, structure(graph).edge_index, nodes, **options)
    return fields


def checked_mask(mask: Tensor | None, log_probs: Tensor, y: Tensor) -> Tensor:
    if len(y) != len(log_probs):
        raise ValueError(f"y must have shape ({len(log_probs)},) to match log_probs, got {tuple(y.shape)}")
    if mask is None:
        return torch.ones(len(y), dtype=torch.bool, device=y.device)
    if mask.shape != y.shape or mask.dtype != torch.bool:
        raise ValueError(
            f"mask must be a boolean tensor of shape {tuple(y.shape)}, got {mask.dtype} {tuple(mask.shape)}"
        )
    return mask
