"""Decisions that hold: which nodes may be acted on alone, which need a person, and what is promised about that."""

from graphcal.decisions.decision import Decision, Interval, Plan
from graphcal.decisions.dispatch import decide

__all__ = ["Decision", "Interval", "Plan", "decide"]
