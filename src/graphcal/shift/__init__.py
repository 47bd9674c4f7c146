"""How a calibration behaves where its validation nodes do not reach: wrong predictions, unknown classes, changed graphs."""

from graphcal.shift.changes import with_mixed_features, with_rewired_edges, without_class
from graphcal.shift.experiments import out_of_distribution, wrong_predictions
from graphcal.shift.new_nodes import inductive

__all__ = [
    "inductive",
    "out_of_distribution",
    "with_mixed_features",
    "with_rewired_edges",
    "without_class",
    "wrong_predictions",
]
