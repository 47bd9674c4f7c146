"""Explain the confidence of nodes. One node with `explain`, many at the cost of one pass with `explain_many`."""

from graphcal.lab.explanation.nodes import ClassTerms, Explanation, Push, explain, explain_many

__all__ = ["ClassTerms", "Explanation", "Push", "explain", "explain_many"]
