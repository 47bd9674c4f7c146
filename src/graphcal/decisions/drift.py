"""The calibration slope of labelled predictions: b in  P(right) = σ(a + b logit(conf)).

It is 1 for honest confidences and below 1 for overconfident ones; fitted by maximum likelihood, with Wald's interval.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from graphcal.decisions.bounds import Array
from graphcal.decisions.decision import Interval


def calibration_slope(conf: Array, right: Array, certainty: float = 0.95, steps: int = 50) -> Interval | None:
    """Estimate b with its interval; None where all are right or all wrong, or confidence does not vary."""
    x = np.clip(conf.astype(float), 1e-6, 1 - 1e-6)
    x = np.log(x / (1 - x))
    if right.all() or not right.any() or np.ptp(x) < 1e-9:
        return None
    design, beta = np.column_stack([np.ones(len(x)), x]), np.array([0.0, 1.0])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -30, 30)))
        weight = np.maximum(p * (1 - p), 1e-9)
        hessian = design.T @ (design * weight[:, None]) + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, design.T @ (right - p))
        beta = beta + step / max(1.0, float(np.abs(step).max()))  # at most one unit at a time
        if np.abs(step).max() < 1e-9:
            break
    width = float(norm.ppf((1 + certainty) / 2) * np.sqrt(np.linalg.inv(hessian)[1, 1]))
    return Interval(float(beta[1]), float(beta[1]) - width, float(beta[1]) + width)
