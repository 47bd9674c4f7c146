"""Ensemble temperature scaling (Zhang et al. 2020, arXiv:2003.07329).

    p' = w1 softmax(z / T) + w2 softmax(z) + w3 / C        w >= 0, w1 + w2 + w3 = 1

T is that of temperature scaling; the weights minimise validation NLL, which is convex in w. Every part keeps the order of the
classes, so predictions do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes
from graphcal.methods.card import Card
from graphcal.methods.solvers.scaling import keep_top
from graphcal.methods.temperature import fit_scale
from graphcal.threads import one_thread


@dataclass(frozen=True)
class EnsembleTemperatureScaling:
    """Mix the temperature-scaled, the original and the uniform distribution.

    A little more than `TemperatureScaling` for the same price: the uniform part speaks for nodes that no confidence fits.
    """

    card: ClassVar[Card] = Card(
        title="Ensemble temperature scaling",
        formula="p' = w1 softmax(z / T) + w2 softmax(z) + w3 / C",
        paper="Zhang et al., Mix-n-Match, ICML 2020, arXiv:2003.07329",
        parameters="T, w: 3 free",
        cost="fit: TS and a three-weight convex problem; apply: O(N C)",
        keeps_predictions=True,
        minimises_nll=True,
        departures="exact TS inside; SLSQP, as in the authors' routine, from the middle of the simplex; never worse than TS on "
        "the fitted nodes",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> Mixture:
        """T, then the mixing weights, of least NLL on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        logits, y = out.logits[on].double(), out.graph.y[on]
        scale = fit_scale(logits, y)
        parts = torch.stack(mixture_parts(logits.T, scale), -1)  # (C, n, 3)
        of_label = parts[y, torch.arange(len(y))]  # (n, 3) log q_k(y_n)
        weights = mixing_weights(of_label).to(out.logits)
        return Mixture(scale=scale.to(out.logits), weights=weights, **fitted_on(out, on))


def mixture_parts(logits: Tensor, scale: Tensor) -> list[Tensor]:
    """The three log-distributions of logits (C, n)."""  # each (C, n)
    uniform = torch.full_like(logits, -float(np.log(len(logits))))
    return [(scale * logits).log_softmax(0), logits.log_softmax(0), uniform]


def mixing_weights(log_parts: Tensor) -> Tensor:
    """w (3,) on the simplex that minimises -mean log sum_k w_k q_k(y)."""
    from scipy.optimize import minimize

    top = log_parts.max(-1, keepdim=True).values
    q = (log_parts - top).exp().cpu().numpy()  # (n, 3) up to a factor per row that does not move the minimum

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = np.maximum(q @ w, 1e-300)
        return -float(np.log(mixed).mean()), -(q / mixed[:, None]).mean(0)

    solution = minimize(
        objective,
        np.full(3, 1 / 3),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * 3,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(3)},
        options={"maxiter": 200, "ftol": 1e-14},
    )
    solved = np.clip(np.nan_to_num(solution.x), 0.0, None)
    solved = solved / solved.sum() if solved.sum() > 0 else np.array([1.0, 0.0, 0.0])
    corners = [solved, *np.eye(3)]
    return torch.from_numpy(min(corners, key=lambda w: objective(w)[0]))


class Mixture(Calibration):
    """Calibration fitted by `EnsembleTemperatureScaling`."""

    scale: Tensor  # (1,) s = 1/T
    weights: Tensor  # (3,)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        parts = torch.stack(mixture_parts(logits, self.scale.to(logits)))  # (3, C, n)
        mixed = (parts + self.weights.to(parts).log()[:, None, None]).logsumexp(0)
        return keep_top(mixed.log_softmax(0), logits)
