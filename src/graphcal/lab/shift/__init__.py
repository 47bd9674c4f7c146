"""Measure calibration under shift: wrong predictions, unknown classes, changed graphs."""

from graphcal.lab.shift.experiments import (
    out_of_distribution,
    with_mixed_features,
    with_rewired_edges,
    without_class,
    wrong_predictions,
)
from graphcal.lab.shift.new_nodes import inductive

__all__ = [
    "inductive",
    "out_of_distribution",
    "with_mixed_features",
    "with_rewired_edges",
    "without_class",
    "wrong_predictions",
]
