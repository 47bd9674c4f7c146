"""Decisions that hold: which nodes may be acted on alone, which need a person, and what is promised about that."""

from graphcal.decisions.budget import Looks, spend
from graphcal.decisions.curves import RiskCurve, risk_curve
from graphcal.decisions.decision import Decision, Interval, Plan
from graphcal.decisions.dispatch import decide
from graphcal.decisions.priors import PriorEstimate, estimate_prior, move_prior, undo_focal, undo_weights
from graphcal.decisions.sets import PredictionSets, prediction_sets
from graphcal.decisions.watching import Validity, watch

__all__ = [
    "Decision",
    "Interval",
    "Looks",
    "Plan",
    "PredictionSets",
    "PriorEstimate",
    "RiskCurve",
    "Validity",
    "decide",
    "estimate_prior",
    "move_prior",
    "prediction_sets",
    "risk_curve",
    "spend",
    "undo_focal",
    "undo_weights",
    "watch",
]
