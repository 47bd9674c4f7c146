"""Selective prediction: error rate and coverage when only confident predictions are accepted.

AUROC        probability that a right prediction has more confidence than a wrong one; a tie counts one half. Calibration says
             nothing about that order, and a constant can be calibrated.

What the order is worth to a decision. Nodes are taken most confident first; R(k) is the error rate among the first k of N, the
selective error at coverage k/N.

AURC         1/N Σ_k R(k), the area under the risk-coverage curve (Geifman, Uziel & El-Yaniv 2019, arXiv:1805.08206)
E-AURC       AURC minus that of the best order of the same predictions, all right ones first: with e wrong ones
             1/N Σ_{k > N-e} (k - (N - e)) / k. It is 0 for a perfect order, whatever the accuracy.
coverage     the largest k/N with R(k) <= r. It is read off the labels of these very nodes (an oracle): `decide` certifies less

Ties. For AURC nodes of equal confidence enter in every order, on average: with m nodes before the tie, w of them wrong, and a
rate ρ of wrong ones inside it, Σ_i (w + iρ)/(m + i) = ρn + (w - ρm)(ψ(m+n+1) - ψ(m+1)), ψ the digamma function. For coverage a
tie is decided whole or not at all, because no threshold cuts it.

Interval of the coverage. A threshold is contradicted when its W wrong of k are too far from kr, |W - kr| > z √(kr(1-r)) (score
test). The last threshold that is certainly good enough is one end, the last that may be good enough the other; beyond the
crossing errors are much more frequent than r, so that looking at all thresholds costs little (the tests simulate it). Another
draw of nodes also moves the number above a threshold: Wilson's interval of k/N. Both widths are added in squares (Zou & Donner
2008).
A temperature cannot change any of these: only a calibrator that re-orders nodes does.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from graphcal.metrics.bins import outcomes


def grouped(conf: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and right predictions for each distinct confidence, most confident first."""
    ordered = np.sort(conf.numpy())
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] > ordered[:-1]]))  # of each distinct value
    value, count = ordered[first], np.diff(first, append=len(ordered))
    good = np.bincount(np.searchsorted(value, np.sort(conf[right > 0].numpy())), minlength=len(value))
    return torch.from_numpy(count[::-1].astype(np.float64)), torch.from_numpy(good[::-1].astype(np.float64))


def auroc_of(count: Tensor, good: Tensor) -> float:
    """AUROC from nodes and right predictions by confidence, most confident first; NaN when all are right or wrong."""
    bad = count - good
    above = good.cumsum(0) - good / 2  # right predictions above each wrong one, ties half
    return float((above * bad).sum() / (good.sum() * bad.sum()))


def auroc(log_probs: Tensor, y: Tensor) -> float:
    """Probability that confidence ranks a right prediction above a wrong one."""
    return auroc_of(*grouped(*outcomes(log_probs, y)))


def aurc_of(count: Tensor, good: Tensor) -> float:
    """AURC from nodes and right predictions by confidence, most confident first; counts need not be whole."""
    count, good = count[count > 1e-9], good[count > 1e-9]
    bad, before = count - good, count.cumsum(0) - count
    rate, wrong = bad / count, bad.cumsum(0) - bad  # of the tie; above it
    harmonic = 1 / (before + 1)  # Σ_i 1 / (before + i)
    tie = count != 1
    harmonic[tie] = torch.digamma((before + count + 1)[tie]) - torch.digamma((before + 1)[tie])
    return float((bad + (wrong - rate * before) * harmonic).sum() / count.sum())


def oracle_aurc(nodes: float, wrong: float) -> float:
    """AURC of predictions with so many wrong ones, all of them last."""
    right = torch.tensor(nodes - wrong, dtype=torch.float64)
    harmonic = torch.digamma(right + wrong + 1) - torch.digamma(right + 1)
    return float((wrong - right * harmonic) / nodes)


def eaurc_of(count: Tensor, good: Tensor) -> float:
    """AURC above that of the best order of the same predictions."""
    return aurc_of(count, good) - best_aurc_of(count, good)


def best_aurc_of(count: Tensor, good: Tensor) -> float:
    """AURC of the best order of the same predictions."""
    return oracle_aurc(float(count.sum()), float((count - good).sum()))


def coverage_of(count: Tensor, good: Tensor, error: float) -> float:
    """Largest share of the nodes above a threshold of which at most `error` are wrong; 0 where there is none."""
    total, wrong = count.cumsum(0), (count - good).cumsum(0)
    enough = total[wrong <= error * total + 1e-9]
    return float(enough[-1] / total[-1]) if len(enough) else 0.0


def coverage_interval_of(count: Tensor, good: Tensor, error: float, level: float) -> tuple[float, float]:
    """Interval of the coverage for ever more nodes."""
    z = float(ndtri((1 + level) / 2))
    total, wrong = count.cumsum(0), (count - good).cumsum(0)
    off = (wrong - error * total) / (total * error * (1 - error)).sqrt()  # in standard deviations
    sure, possible = (total[off <= side] for side in (-z, z))
    N, share = float(total[-1]), coverage_of(count, good, error)
    low, high = (float(ends[-1]) / N if len(ends) else 0.0 for ends in (sure, possible))
    least, most = wilson(share, N, z)
    low = share - math.hypot(share - min(low, share), share - least)
    high = share + math.hypot(max(high, share) - share, most - share)
    return max(low, 0.0), min(high, 1.0)


def wilson(share: float, nodes: float, z: float) -> tuple[float, float]:
    """Wilson's interval of a share."""
    middle = (share + z * z / (2 * nodes)) / (1 + z * z / nodes)
    half = z / (1 + z * z / nodes) * math.sqrt(share * (1 - share) / nodes + (z / (2 * nodes)) ** 2)
    return middle - half, middle + half


def check_error(error: float) -> None:
    if not 0 < error < 1:
        raise ValueError(f"error must lie between 0 and 1, got {error}")


def aurc(log_probs: Tensor, y: Tensor) -> float:
    """Area under the risk-coverage curve of the confidence."""
    return aurc_of(*grouped(*outcomes(log_probs, y)))


def eaurc(log_probs: Tensor, y: Tensor) -> float:
    """Excess AURC: what a perfect order of the same predictions would save."""
    return eaurc_of(*grouped(*outcomes(log_probs, y)))


def coverage_at(log_probs: Tensor, y: Tensor, error: float = 0.05) -> float:
    """Largest share of the nodes, most confident first, of which at most `error` are wrong.

    >>> log_probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]).log()
    >>> coverage_at(log_probs, torch.tensor([0, 0, 1, 0]), error=0.25)
    1.0
    >>> coverage_at(log_probs, torch.tensor([0, 0, 1, 0]), error=0.05)
    0.5
    """
    check_error(error)
    return coverage_of(*grouped(*outcomes(log_probs, y)), error)


def coverage_interval(log_probs: Tensor, y: Tensor, error: float = 0.05, level: float = 0.95) -> tuple[float, float]:
    """Interval of the share that ever more nodes of this kind would show."""
    check_error(error)
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    return coverage_interval_of(*grouped(*outcomes(log_probs, y)), error, level)
