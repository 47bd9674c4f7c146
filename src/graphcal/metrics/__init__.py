"""Measurement: pure functions on log-probabilities, as fractions. One definition for each quantity."""

from graphcal.metrics.bands import accuracy_interval, consistency_band
from graphcal.metrics.bins import Reliability, reliability
from graphcal.metrics.compare import Comparison, compare, compare_all, holm
from graphcal.metrics.consistency import CalibrationTest, calibration_test, floor_interval
from graphcal.metrics.decision import Gate, gate
from graphcal.metrics.degree import degree_binned_error
from graphcal.metrics.floor import ece_debiased, ece_floor
from graphcal.metrics.intervals import block_ece_interval, ece_interval
from graphcal.metrics.measurement import Measurement, evaluate
from graphcal.metrics.power import LabelLimit, advice, label_limit, nodes_needed
from graphcal.metrics.ranking import aurc, auroc
from graphcal.metrics.refinement import Split, split
from graphcal.metrics.scores import (
    accuracy,
    brier,
    classwise_ece,
    ece,
    mce,
    nll,
    overconfidence,
    signed_gap,
    top_label_ece,
    underconfidence,
)
from graphcal.metrics.seeds import mean_ece_interval
from graphcal.metrics.slices import Slice, slices, worst
from graphcal.metrics.smooth import kde_ece, smooth_ece
from graphcal.metrics.streaming import Tally

__all__ = [
    "CalibrationTest",
    "Comparison",
    "Gate",
    "LabelLimit",
    "Measurement",
    "Reliability",
    "Slice",
    "Split",
    "Tally",
    "accuracy",
    "accuracy_interval",
    "advice",
    "aurc",
    "auroc",
    "block_ece_interval",
    "brier",
    "calibration_test",
    "classwise_ece",
    "compare",
    "compare_all",
    "consistency_band",
    "degree_binned_error",
    "ece",
    "ece_debiased",
    "ece_floor",
    "ece_interval",
    "evaluate",
    "floor_interval",
    "gate",
    "holm",
    "kde_ece",
    "label_limit",
    "mce",
    "mean_ece_interval",
    "nll",
    "nodes_needed",
    "overconfidence",
    "reliability",
    "signed_gap",
    "slices",
    "smooth_ece",
    "split",
    "top_label_ece",
    "underconfidence",
    "worst",
]
