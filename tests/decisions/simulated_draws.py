"""Populations with known truth: three shapes of confidence, honest or not, and random draws of certification nodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

SHAPES = {
    "citation": lambda rng, n: 1 - 0.75 * rng.beta(0.5, 2.2, n),  # many sure nodes, a long tail
    "fraud": lambda rng, n: 1 - 0.5 * rng.beta(0.25, 4.0, n),  # nearly all sure
    "two groups": lambda rng, n: np.where(rng.random(n) < 0.6, 1 - 0.08 * rng.random(n), rng.uniform(0.35, 0.92, n)),
}
SAYS = {
    "calibrated": lambda p: p,
    "over-confident": lambda p: 1 - (1 - p) ** 1.6,
    "under-confident": lambda p: 1 - (1 - p) ** 0.6,
}


def population(shape: str, says: str, nodes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Confidence (N,) and who is wrong (N,): the shape's own probability is the truth."""
    right = SHAPES[shape](rng, nodes)
    return SAYS[says](right), rng.random(nodes) > right


def drawn(nodes: int, labels: int, rng: np.random.Generator) -> np.ndarray:
    """(N,) bool: a simple random sample."""
    mask = np.zeros(nodes, bool)
    mask[rng.permutation(nodes)[:labels]] = True
    return mask


def draws(
    shape: str, says: str, nodes: int, labels: int, times: int, seed: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(conf, wrong, certify) of ``times`` draws; a new population every ten draws."""
    rng = np.random.default_rng(seed)
    for i in range(times):
        if i % 10 == 0:
            conf, wrong = population(shape, says, nodes, rng)
        yield conf, wrong, drawn(nodes, labels, rng)


def broken_at_most(risk: float, times: int) -> float:
    """A share of broken promises that honest draws exceed with probability 0.0002 (3.5 standard errors)."""
    return risk + 3.5 * float(np.sqrt(risk * (1 - risk) / times))
