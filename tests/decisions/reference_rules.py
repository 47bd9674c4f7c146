"""What others would do with the same labels: the references of the decision tables."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import beta, binom


def sgr_threshold(conf: np.ndarray, wrong: np.ndarray, max_error: float, risk: float) -> float:
    """Selection with guaranteed risk (Geifman & El-Yaniv 2017, arXiv:1705.08500), Algorithm 2, on the labelled nodes.

    A binary search of ceil(log2 m) thresholds, each tested at risk / ceil(log2 m) with the binomial tail bound. Infinite when
    no threshold is found.
    """
    order = np.argsort(conf)
    score, off = conf[order], wrong[order]
    rounds = math.ceil(math.log2(len(score)))
    errors_above = np.cumsum(off[::-1])[::-1]
    low, high, best = 0, len(score) - 1, math.inf
    for _ in range(rounds):
        z = math.ceil((low + high) / 2)
        k, e = len(score) - z, int(errors_above[z])
        bound = 1.0 if e == k else float(beta.ppf(1 - risk / rounds, e + 1, k - e))
        if bound <= max_error:
            high, best = z, min(best, float(score[z]))
        else:
            low = z
    return best


def ltt_threshold(conf: np.ndarray, wrong: np.ndarray, max_error: float, risk: float, steps: int = 40) -> float:
    """Learn then Test (Angelopoulos et al. 2021, arXiv:2110.01052) with Bonferroni over ``steps`` equally spaced thresholds."""
    grid = np.linspace(0, 1, steps, endpoint=False)
    above = conf[:, None] >= grid
    k, e = above.sum(0), (above & wrong[:, None]).sum(0)
    passed = (k > 0) & (binom.cdf(e, np.maximum(k, 1), max_error) <= risk / steps)
    return float(grid[passed].min()) if passed.any() else math.inf


def naive_threshold(conf: np.ndarray, wrong: np.ndarray, max_error: float) -> float:
    """The lowest threshold above which the labelled nodes show at most ``max_error`` errors."""
    order = np.argsort(-conf)
    rate = np.cumsum(wrong[order]) / np.arange(1, len(conf) + 1)
    fine = np.flatnonzero(rate <= max_error)
    return float(conf[order][fine[-1]]) if len(fine) else math.inf
