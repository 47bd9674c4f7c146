"""Five ways in which people choose rows to label, a random arm beside them, and how often a certificate breaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphcal.decisions.thresholds import certified_set, nested_sets


@dataclass(frozen=True)
class Rows:
    """Rows with a truth: confidence, errors, degree and region (N,)."""

    conf: np.ndarray
    wrong: np.ndarray
    degree: np.ndarray
    region: np.ndarray


def _rank(values: np.ndarray) -> np.ndarray:
    """Ranks as shares in 0..1, ties at random but fixed."""
    order = np.lexsort((np.random.default_rng(0).random(len(values)), values))
    rank = np.empty(len(values))
    rank[order] = np.arange(len(values)) / max(len(values) - 1, 1)
    return rank


# How eagerly a row is labelled, 0..1
POLICIES = {
    "uncertain first": lambda rows: 1 - _rank(rows.conf),
    "hubs first": lambda rows: _rank(rows.degree),
    "regions": lambda rows: _rank(np.random.default_rng(1).permutation(rows.region.max() + 1)[rows.region]),
    "easy first": lambda rows: _rank(rows.conf),
    "by score": lambda rows: (rows.conf > np.quantile(rows.conf, 0.4)) * 0.8 + 0.1,
}


def simulated(name: str, nodes: int = 3000, seed: int = 0) -> Rows:
    """One of four kinds of graph; errors go together within regions and differ by degree."""
    rng = np.random.default_rng([seed, len(name)])
    degree = np.floor(rng.pareto(1.5, nodes) * 3).astype(int) + 1
    region = rng.integers(0, 40, nodes)
    right = {
        "citation": lambda: 1 - 0.75 * rng.beta(0.5, 2.2, nodes),
        "fraud": lambda: 1 - 0.5 * rng.beta(0.25, 4.0, nodes),
        "over-confident": lambda: 1 - 0.75 * rng.beta(0.5, 2.2, nodes),
        "hard hubs": lambda: 1 - 0.6 * rng.beta(0.4, 2.5, nodes),
    }[name]()
    odds = np.log((1 - right + 1e-4) / (right + 1e-4)) + rng.normal(0, 0.8, 40)[region]
    if name == "hard hubs":
        odds += 0.6 * (np.log(degree) - np.log(degree).mean())
    conf = 1 - (1 - right) ** 1.6 if name == "over-confident" else right
    return Rows(conf, rng.random(nodes) < 1 / (1 + np.exp(-odds)), degree, region)


KINDS = ("citation", "fraud", "over-confident", "hard hubs")


def flagged(rows: Rows, policy: str, labels: int, arm: int, rng: np.random.Generator, from_all: bool):
    """Masks of the random arm and of the other labels (N,): the policy labels its first rows, with some noise."""
    eager = POLICIES[policy](rows) + 0.1 * rng.random(len(rows.conf))
    eager_rows = np.zeros(len(rows.conf), bool)
    eager_rows[np.argsort(-eager)[:labels]] = True
    frame = np.arange(len(eager_rows)) if from_all else np.flatnonzero(~eager_rows)
    drawn = np.zeros(len(eager_rows), bool)
    drawn[rng.choice(frame, arm, replace=False)] = True
    return drawn, eager_rows & ~drawn


def chances(rows: Rows, policy: str, least: float = 0.08, most: float = 0.5) -> np.ndarray:
    """Inclusion probabilities (N,) that follow the policy."""
    return least + (most - least) * POLICIES[policy](rows) ** 2


def broken(rows: Rows, max_error: float, risk: float, certify, others=None, inclusion=None) -> tuple[bool, int]:
    """Whether the largest certified set breaks its promise, and how many unlabelled rows it holds."""
    every = np.ones(len(rows.conf), bool)
    sets = nested_sets(rows.conf, rows.wrong, certify, every, others=others, inclusion=inclusion)
    last = certified_set(sets, max_error, risk)
    if last is None:
        return False, 0
    labelled = certify if others is None else certify | others
    approved = (rows.conf >= sets.threshold[last]) & ~labelled
    return bool(rows.wrong[approved].sum() > max_error * approved.sum() + 1e-9), int(approved.sum())


def arm_breaks(rows: Rows, policy: str, draws: int, max_error: float = 0.1, labels: int = 600, arm: int = 300):
    """Share of the draws in which the certificate of a flagged arm breaks, and the mean share decided.

    Even draws take the arm from all rows, odd ones from the rows that the policy left.
    """
    outcomes = []
    for i in range(draws):
        rng = np.random.default_rng([7, i])
        certify, others = flagged(rows, policy, labels, arm, rng, from_all=i % 2 == 0)
        outcomes.append(broken(rows, max_error, 0.05, certify, others))
    return np.mean([off for off, _ in outcomes]), np.mean([n for _, n in outcomes]) / len(rows.conf)


def weighted_breaks(rows: Rows, policy: str, draws: int, max_error: float = 0.1, arm: float = 0.0):
    """The same for known inclusion probabilities; with a flagged arm of a share ``arm`` beside them."""
    chance, outcomes = chances(rows, policy), []
    for i in range(draws):
        rng = np.random.default_rng([8, i])
        labelled = rng.random(len(chance)) < chance
        drawn = rng.random(len(chance)) < arm
        if arm:
            total = 1 - (1 - chance) * (1 - arm)
            outcomes.append(broken(rows, max_error, 0.05, drawn, labelled & ~drawn, total))
        else:
            outcomes.append(broken(rows, max_error, 0.05, labelled, None, chance))
    return np.mean([off for off, _ in outcomes]), np.mean([n for _, n in outcomes]) / len(rows.conf)
