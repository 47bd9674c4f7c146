"""How a calibration behaves where its validation nodes do not reach: wrong predictions, unknown classes, changed graphs."""

from graphcal.shift.graphs import with_mixed_features, with_rewired_edges, without_class
from graphcal.shift.scores import confidence_split
from graphcal.shift.tables import out_of_distribution, weights_table, wrong_predictions, zero_decay

__all__ = [
    "confidence_split",
    "out_of_distribution",
    "weights_table",
    "with_mixed_features",
    "with_rewired_edges",
    "without_class",
    "wrong_predictions",
    "zero_decay",
]
