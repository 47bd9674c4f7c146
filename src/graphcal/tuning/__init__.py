"""Choosing the weight decay of the final layer on validation nodes, and looking at what decay does where."""

from graphcal.tuning.search import Candidate, DecaySearch, tune_decay
from graphcal.tuning.sweep import sweep_decay

__all__ = ["Candidate", "DecaySearch", "sweep_decay", "tune_decay"]
