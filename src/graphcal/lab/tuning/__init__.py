"""Choosing the weight decay of the final layer on validation nodes, and looking at what decay does where."""

from graphcal.lab.tuning.search import PAPER_DECAYS, DecayCandidate, DecaySearch, sweep_decay, tune_decay

__all__ = ["PAPER_DECAYS", "DecayCandidate", "DecaySearch", "sweep_decay", "tune_decay"]
