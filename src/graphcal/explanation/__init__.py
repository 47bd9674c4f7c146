"""Why does this node have this confidence? One node with `explain`, many at the cost of one pass with `explain_many`."""

from graphcal.explanation.nodes import explain, explain_many
from graphcal.explanation.terms import ClassTerms, Explanation, Push

__all__ = ["ClassTerms", "Explanation", "Push", "explain", "explain_many"]
