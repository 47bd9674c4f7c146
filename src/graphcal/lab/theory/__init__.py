"""SCAR's theory (arXiv:2505.11335, Section 3), runnable: each claim as a function that can be checked on a trained model.

steps          Theorem 3.1       one step of training as a temperature
heads          Proposition 3.3   a smaller decay spreads the class centroids
decomposition  Theorem 3.2       the final weight as a weighted sum of training representations
               Eq. 8             a logit as similarity to the training nodes of its class minus that to the others
"""

from graphcal.lab.theory.decomposition import Decomposition, Stationarity, decompose, stationarity
from graphcal.lab.theory.heads import HeadPath, head_path, solve_head
from graphcal.lab.theory.steps import Step, one_step, stepped_logits, theorem_3_1

__all__ = [
    "Decomposition",
    "HeadPath",
    "Stationarity",
    "Step",
    "decompose",
    "head_path",
    "one_step",
    "solve_head",
    "stationarity",
    "stepped_logits",
    "theorem_3_1",
]
