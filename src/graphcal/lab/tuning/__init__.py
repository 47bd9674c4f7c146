"""Choosing the weight decay of the final layer on validation nodes, and looking at what decay does where."""

from graphcal.lab.tuning.candidates import DecayCandidate
from graphcal.lab.tuning.search import DecaySearch, tune_decay
from graphcal.lab.tuning.sweep import PAPER_DECAYS, sweep_decay

__all__ = ["PAPER_DECAYS", "DecayCandidate", "DecaySearch", "sweep_decay", "tune_decay"]
