"""Decisions with a stated promise: nodes that can be acted on without review, nodes for a person, prediction sets, monitoring."""

from graphcal.decisions.approval import decide
from graphcal.decisions.counts import Count, count
from graphcal.decisions.decision import Decision, Interval, Plan, Promise
from graphcal.decisions.estimates import WindowAccuracy, estimate
from graphcal.decisions.monitoring import MonitorReport, watch
from graphcal.decisions.outcomes import Backtest, ReviewQueue, backtest, review_queue
from graphcal.decisions.priors import PriorEstimate, estimate_prior, move_prior, undo_focal, undo_weights
from graphcal.decisions.sets import PredictionSets, prediction_sets
from graphcal.decisions.thresholds import RiskCurve, risk_curve

__all__ = [
    "Backtest",
    "Count",
    "Decision",
    "Interval",
    "MonitorReport",
    "Plan",
    "PredictionSets",
    "PriorEstimate",
    "Promise",
    "ReviewQueue",
    "RiskCurve",
    "WindowAccuracy",
    "backtest",
    "count",
    "decide",
    "estimate",
    "estimate_prior",
    "move_prior",
    "prediction_sets",
    "review_queue",
    "risk_curve",
    "undo_focal",
    "undo_weights",
    "watch",
]
