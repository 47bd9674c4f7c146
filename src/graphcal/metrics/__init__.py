"""Measurement: pure functions on log-probabilities, as fractions. One definition per quantity, one table of their names."""

from graphcal.metrics.bins import Reliability, reliability
from graphcal.metrics.comparison import Comparison, compare, compare_all, holm
from graphcal.metrics.diagram import Diagram, accuracy_interval, consistency_band
from graphcal.metrics.ece_variants import degree_binned_error, ece_classwise, ece_top_label, kde_ece, mce, smooth_ece
from graphcal.metrics.floor import (
    CalibrationTest,
    LabelLimit,
    calibration_test,
    ece_debiased,
    ece_floor,
    floor_interval,
    label_limit,
    nodes_needed,
)
from graphcal.metrics.gate import Judgement, judge
from graphcal.metrics.intervals import block_ece_interval, ece_interval, true_error
from graphcal.metrics.measurement import Measurement, evaluate
from graphcal.metrics.names import METRICS, Metric
from graphcal.metrics.references import reference_summary
from graphcal.metrics.refinement import CalibrationRefinement, calibration_refinement
from graphcal.metrics.scores import (
    Scores,
    accuracy,
    brier,
    ece,
    mean_scores,
    nll,
    overconfidence,
    score,
    signed_gap,
    underconfidence,
)
from graphcal.metrics.selective import aurc, auroc, coverage_at, coverage_interval, eaurc
from graphcal.metrics.slices import ChangedNode, Slice, changed_nodes, measure_slices, worst_slice

__all__ = [
    "METRICS", "CalibrationRefinement", "CalibrationTest", "ChangedNode", "Comparison", "Diagram", "Judgement",
    "LabelLimit", "Measurement", "Metric", "Reliability", "Scores", "Slice", "accuracy", "accuracy_interval",
    "aurc", "auroc", "block_ece_interval", "brier", "calibration_refinement", "calibration_test",
    "changed_nodes", "compare", "compare_all", "consistency_band", "coverage_at", "coverage_interval",
    "degree_binned_error", "eaurc", "ece", "ece_classwise", "ece_debiased", "ece_floor", "ece_interval",
    "ece_top_label", "evaluate", "floor_interval", "holm", "judge", "kde_ece", "label_limit", "mce",
    "mean_scores", "measure_slices", "nll", "nodes_needed", "overconfidence", "reference_summary",
    "reliability", "score", "signed_gap", "smooth_ece", "true_error", "underconfidence", "worst_slice",
]  # fmt: skip
