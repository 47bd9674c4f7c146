"""Does the promised risk still hold? A test that may be looked at after every label (anytime-valid).

A gambler who does not believe "at most a share r is wrong" bets on each label as it comes. With x_t = 1 for an error,
    E_n = ∫_r^1 Π_t (q / r)^{x_t} ((1 - q) / (1 - r))^{1 - x_t} dq / (1 - r)
is his capital, spread evenly over alternatives q > r (each factor is a fair bet at risk r, and a losing one below). For
independent labels and a promise that holds E is a non-negative supermartingale of mean at most 1, so by Ville's inequality it
ever reaches 1/α with probability at most α, however often one looks (Ramdas et al. 2023, arXiv:2210.01948). With k errors in
n labels
    E_n = B(k+1, n-k+1) (1 - I_r(k+1, n-k+1)) / ((1 - r) r^k (1 - r)^{n-k}),          I the regularised incomplete beta function.
Labels must come from a random draw of the approved nodes, in any order. Drawn without replacement from a finite set they are not
independent; by simulation the test then refutes a true promise less often still.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, betaln

from graphcal.decisions.bounds import Array


def log_capital(wrong: Array, max_error: float) -> Array:
    """log E_n after each of the labels (n,), in the order they came."""
    k, n = np.cumsum(wrong.astype(np.int64)), np.arange(1, len(wrong) + 1)
    tail = betainc(n - k + 1.0, k + 1.0, 1 - max_error)  # 1 - I_r(k+1, n-k+1)
    with np.errstate(divide="ignore"):
        mixed = betaln(k + 1.0, n - k + 1.0) + np.log(tail)
    return np.asarray(mixed - np.log1p(-max_error) - k * np.log(max_error) - (n - k) * np.log1p(-max_error))


def labels_until_broken(wrong: Array, max_error: float, alpha: float) -> int | None:
    """After how many labels the promise is refuted at level ``alpha``; None when it is not."""
    reached = np.flatnonzero(log_capital(wrong, max_error) >= -np.log(alpha))
    return int(reached[0]) + 1 if len(reached) else None
