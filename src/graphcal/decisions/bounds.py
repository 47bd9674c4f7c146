"""Bounds on the errors of a set of nodes from the labels of a few of them. Exact, one-sided, no assumption on the nodes.

Realised errors.  K nodes, E of them wrong; k drawn at random without replacement, e of those wrong. Whatever the nodes are,
    e ~ Hypergeometric(K, E, k),        U = max{E : P(Hyp(K, E, k) <= e) > δ}
holds E <= U with certainty 1 - δ. The only randomness is the draw: graph, model and labels are fixed.

Random arm.  Of the K nodes, o more were labelled for other reasons, w of those wrong: U - e - w bounds the rest of the errors.

Future nodes.  The k nodes are independent draws from a source in which a share ρ is wrong (Clopper & Pearson 1934):
    ρ <= Beta⁻¹(1 - δ; e + 1, k - e)   with certainty 1 - δ.

Known inclusion probabilities.  Rows were drawn independently of each other, row i with probability π_i. Over the E errors of a
set that was fixed without these labels, for any κ < min π of the set,
    Π_i E[exp(-λ_i I_i)] = (1 - κ)^E,        λ_i = -ln(1 - κ / π_i)
so M(E) = exp(-T) / (1 - κ)^E, T = Σ λ_i over labelled errors, has mean 1 at the true E: E is at most the largest number with
M < 1/δ (Markov). With κ < 0 the same inequality bounds E from below. Each E is tested with a κ of its own, which no label
chooses.

Sequential test.  "At most a share r is wrong" against labels that come one by one; it may be looked at after every label
(anytime-valid). With x_t = 1 for an error, the e-value after n labels averages likelihood ratios over alternatives q > r,
    E_n = ∫_r^1 Π_t (q / r)^{x_t} ((1 - q) / (1 - r))^{1 - x_t} dq / (1 - r).
For independent labels and a promise that holds, E is a non-negative supermartingale of mean at most 1, so by Ville's inequality
it ever reaches 1/α with probability at most α (Ramdas et al. 2023, arXiv:2210.01948). With k errors in n labels
    E_n = B(k+1, n-k+1) (1 - I_r(k+1, n-k+1)) / ((1 - r) r^k (1 - r)^{n-k}),          I the regularised incomplete beta function.
Labels must be a random draw of the approved nodes, in any order. Drawn without replacement from a finite set they are not
independent; by simulation the test then refutes a true promise less often still.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrik, betainc, betaln, gammaln

from graphcal.metrics.diagram import clopper_pearson

Array = NDArray[Any]
TINY = 1e-12  # slack for sums of logarithms
LEAST_INCLUSION = 0.05  # below a weighted bound says nothing
MOST_GROUPS = 4  # of equal inclusion probability that are bounded one by one


def log_choose(n: Array, k: Array) -> Array:
    """log C(n, k); minus infinity where there is no such choice."""
    possible = (k >= 0) & (k <= n)
    safe_n, safe_k = np.where(possible, n, 0), np.where(possible, k, 0)
    value = gammaln(safe_n + 1) - gammaln(safe_k + 1) - gammaln(safe_n - safe_k + 1)
    return np.asarray(np.where(possible, value, -np.inf))


def hypergeometric_cdf(e: Array, K: Array, E: Array, k: Array) -> Array:
    """P(at most e wrong among k drawn from K nodes of which E are wrong), elementwise."""
    e, K, E, k = np.broadcast_arrays(*(np.asarray(v, dtype=np.int64) for v in (e, K, E, k)))
    cdf = np.ones(e.shape)
    most = np.minimum(E, k)
    open_ = e < most  # elsewhere it is certain
    i = np.arange(int(e[open_].max()) + 1 if open_.any() else 1)  # (I,)
    e, K, E, k = (v[open_][:, None] for v in (e, K, E, k))
    with np.errstate(under="ignore"):
        terms = np.exp(log_choose(E, i) + log_choose(K - E, k - i) - log_choose(K, k))  # (n, I)
    cdf[open_] = np.where(i <= e, terms, 0.0).sum(axis=1)
    return np.minimum(cdf, 1.0)


def most_errors(e: Array, K: Array, k: Array, risk: float) -> Array:
    """U: the largest number of wrong nodes among K that e wrong of k drawn ones do not contradict at level ``risk``."""
    e, K, k = np.broadcast_arrays(*(np.asarray(v, dtype=np.int64) for v in (e, K, k)))
    low, high = e.copy(), K - (k - e)  # possible numbers: e .. K - (k - e); the cdf falls with E
    while (low < high).any():
        middle = (low + high + 1) // 2
        plausible = hypergeometric_cdf(e, K, middle, k) > risk
        low, high = np.where(plausible, middle, low), np.where(plausible, high, middle - 1)
    return np.asarray(low)


def fewest_errors(e: Array, K: Array, k: Array, risk: float) -> Array:
    """The smallest number of wrong nodes among K that e wrong of k drawn ones do not contradict at level ``risk``."""
    e, K, k = np.broadcast_arrays(*(np.asarray(v, dtype=np.int64) for v in (e, K, k)))
    low, high = e.copy(), K - (k - e)
    while (low < high).any():
        middle = (low + high) // 2
        plausible = (e == 0) | (1 - hypergeometric_cdf(np.maximum(e - 1, 0), K, middle, k) > risk)
        low, high = np.where(plausible, low, middle + 1), np.where(plausible, middle, high)
    return np.asarray(low)


def error_count_interval(e: int, K: int, k: int, certainty: float) -> tuple[int, int]:
    """Two-sided interval of the number of wrong nodes among K of which k were drawn, e of them wrong."""
    risk = (1 - certainty) / 2
    high = int(most_errors(np.array([e]), np.array([K]), np.array([k]), risk)[0])
    right = int(most_errors(np.array([k - e]), np.array([K]), np.array([k]), risk)[0])
    return K - right, high


def share_interval(hits: int, trials: int, certainty: float) -> tuple[float, float]:
    """Clopper and Pearson's two-sided interval of a share."""
    low, high = clopper_pearson(np.array(trials), np.array(hits), certainty)
    return float(low), float(high)


def realised_certified(
    e: Array, K: Array, k: Array, max_error: float, risk: float, others: Array | int = 0, others_wrong: Array | int = 0
) -> Array:
    """Test U - e <= r (K - k): at most a share r of the K - k nodes that were not drawn is wrong, at level ``risk``.

    U - e is above the limit exactly when e + floor(r (K - k)) + 1 wrong nodes are plausible: one cdf, no search. ``others`` of
    the K nodes were labelled, but not drawn at random; they and their errors are taken off.
    """
    rest = K - k - others
    E = e + others_wrong + np.floor(max_error * rest + 1e-9).astype(np.int64) + 1
    possible = rest >= E - e - others_wrong  # else even all of the rest being wrong is allowed
    hopeless = e * K >= E * k  # more errors seen than such a set would show on average: not evidence against it
    test = possible & ~hopeless & (k > 0)
    certified = ~possible
    if test.any():
        certified[test] = hypergeometric_cdf(e[test], K[test], E[test], k[test]) <= risk + TINY
    return np.asarray(certified & (rest > 0))


def future_certified(e: Array, k: Array, max_error: float, risk: float) -> Array:
    """Test whether Clopper and Pearson's bound is at most r: P(Binomial(k, r) <= e) <= risk."""
    return np.asarray(bdtr(e.astype(float), np.maximum(k, 1), max_error) <= risk + TINY) & (k > 0)


def labels_needed(max_error: float, certainty: float) -> int:
    """Labelled nodes above the threshold, none of them wrong, without which nothing can be certified: ln δ / ln(1 - r).

    >>> labels_needed(0.05, 0.95), labels_needed(0.02, 0.95), labels_needed(0.01, 0.95)
    (59, 149, 299)
    """
    return math.ceil(math.log(1 - certainty) / math.log(1 - max_error) - 1e-9)


def labels_for_power(max_error: float, certainty: float = 0.95, true_share: float = 0.5, power: float = 0.8) -> int:
    """Random labels inside a set that certify "at most a share r is wrong" with this power.

    ``true_share`` is the true error rate as a share of r. The smallest n for which a number of errors c exists with
    P(Bin(n, r) <= c) <= 1 - certainty and P(Bin(n, true_share r) <= c) >= power.

    >>> labels_for_power(0.05, true_share=0.0), labels_for_power(0.05, true_share=0.25)
    (59, 153)
    """
    n = labels_needed(max_error, certainty)
    while True:
        c = math.floor(float(bdtrik(1 - certainty, n, max_error)) + 1e-9)
        c -= c >= 0 and bdtr(c, n, max_error) > 1 - certainty + 1e-12
        if c >= 0 and bdtr(c, n, true_share * max_error) >= power:
            return n
        n += 1


def check_inclusion(inclusion: Any, rows: int) -> Array:
    """Inclusion probabilities (rows,), each above 0 and at most 1."""
    chance = np.asarray(inclusion, dtype=np.float64).reshape(-1)
    if chance.shape != (rows,) or not ((chance > 0) & (chance <= 1)).all():
        raise ValueError("Inclusion probabilities must be one number above 0 and at most 1 for each row.")
    return chance


def most_weighted(drawn: Array, least: float, rows: int, risk: float, typical: float | None = None) -> int:
    """Upper bound of the errors among ``rows`` rows, from the inclusion probabilities of the labelled errors (n,).

    ``least`` is the smallest inclusion probability of the rows, ``typical`` an average one, which sharpens the bound.
    """
    first, last, middle, pi = _tested(rows, least if typical is None else typical)
    drawn_there = np.maximum(middle * pi - np.sqrt(-2 * math.log(risk) * middle * pi * (1 - pi)), 0)
    kappa = np.clip((middle * pi - drawn_there) / (middle - drawn_there), 1e-9, 0.95 * least)
    log_m = np.log1p(-kappa[:, None] / drawn).sum(axis=1)  # -T
    most = np.floor((-log_m - math.log(risk)) / -np.log1p(-kappa) + 1e-9)
    some = np.flatnonzero(most >= first)[-1]  # E = 0 is never refuted
    return max(int(min(most[some], last[some])), len(drawn))


def fewest_weighted(drawn: Array, least: float, rows: int, risk: float, typical: float | None = None) -> int:
    """Lower bound of the errors among ``rows`` rows."""
    first, last, middle, pi = _tested(rows, least if typical is None else typical)
    drawn_there = middle * pi + np.sqrt(-2 * math.log(risk) * middle * pi * (1 - pi)) - math.log(risk) / 3
    drawn_there = np.minimum(drawn_there, 0.99 * middle)
    kappa = np.maximum((drawn_there - middle * pi) / (middle - drawn_there), 1e-9)
    log_m = np.log1p(kappa[:, None] / drawn).sum(axis=1)
    fewest = np.maximum(np.floor((log_m + math.log(risk)) / np.log1p(kappa) + 1e-9) + 1, first)
    return int(max(fewest[fewest <= last].min(initial=rows), len(drawn)))


def _tested(rows: int, pi: float) -> tuple[Array, Array, Array, float]:
    """Numbers 0..rows of errors in ranges that are tested with the same κ: first, last and middle of each; and π below 1.

    κ is best for the number of labelled errors that just refutes the middle one.
    """
    first = np.unique(np.ceil(2 ** np.arange(0, math.log2(rows + 1), 0.5)).astype(np.int64))
    first = np.concatenate([[0], first[first <= rows]])
    last = np.append(first[1:] - 1, rows)
    return first, last, np.sqrt(np.maximum(first, 1) * np.maximum(last, 1)), min(pi, 0.98)


def log_e_value(wrong: Array, max_error: float) -> Array:
    """log E_n after each of the labels (n,), in the order they came."""
    k, n = np.cumsum(wrong.astype(np.int64)), np.arange(1, len(wrong) + 1)
    tail = betainc(n - k + 1.0, k + 1.0, 1 - max_error)  # 1 - I_r(k+1, n-k+1)
    with np.errstate(divide="ignore"):
        mixed = betaln(k + 1.0, n - k + 1.0) + np.log(tail)
    return np.asarray(mixed - np.log1p(-max_error) - k * np.log(max_error) - (n - k) * np.log1p(-max_error))


def labels_until_refuted(wrong: Array, max_error: float, alpha: float) -> int | None:
    """Number of labels after which the promise is refuted at level ``alpha``; None when it is not."""
    reached = np.flatnonzero(log_e_value(wrong, max_error) >= -np.log(alpha))
    return int(reached[0]) + 1 if len(reached) else None
