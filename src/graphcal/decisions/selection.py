"""Selection with false-discovery control: on average at most a share q of the selected nodes is wrong.

Conformal selection (Jin & Candès 2023, arXiv:2210.01408). With n labelled and m unlabelled nodes of a random draw,
    p_j = (1 + #{i labelled : wrong_i, conf_i >= conf_j}) / (n + 1)
and Benjamini & Hochberg's step at level q over the m unlabelled nodes. That is the lowest threshold t with
    (m / (n + 1)) (1 + W(t)) / S(t) <= q,          W wrong labelled nodes, S unlabelled nodes with conf >= t.
The mean over draws of the share of wrong nodes is at most q. A single draw exceeds q in about half of the cases: this is the
weaker promise, for those who decide often.
"""

from __future__ import annotations

import numpy as np

from graphcal.decisions.bounds import Array


def conformal_p_values(conf: Array, wrong: Array, certify: Array, candidates: Array) -> Array:
    """p of "this node is wrong" for each candidate node, in the order of the nodes."""
    bad = np.sort(conf[certify & wrong])
    above = len(bad) - np.searchsorted(bad, conf[candidates], side="left")  # wrong labelled nodes at least as confident
    return np.asarray((1 + above) / (certify.sum() + 1))


def benjamini_hochberg(p: Array, rate: float) -> Array:
    """(m,) bool: the hypotheses rejected at false discovery rate ``rate``."""
    if len(p) == 0:
        return np.zeros(0, bool)
    ordered = np.sort(p)
    below = np.flatnonzero(ordered <= rate * np.arange(1, len(p) + 1) / len(p))
    return np.asarray(p <= ordered[below[-1]]) if len(below) else np.zeros(len(p), bool)


def select_on_average(conf: Array, wrong: Array, certify: Array, candidates: Array, rate: float) -> Array:
    """(N,) bool: the candidates selected such that on average at most a share ``rate`` of them is wrong."""
    chosen = np.zeros(len(conf), bool)
    chosen[candidates] = benjamini_hochberg(conformal_p_values(conf, wrong, certify, candidates), rate)
    return chosen
