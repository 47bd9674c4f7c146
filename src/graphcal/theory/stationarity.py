"""Theorem 3.2 of the SCAR paper (arXiv:2505.11335) as what it is: a condition that holds where training stands still.

    lambda W[:, i] = 1/n sum_u (y_ui - s_ui) h_u
    lambda b_i     = 1/n sum_u (y_ui - s_ui)            for a bias that is decayed too

The sum runs over the n training nodes. `stationarity` gives the difference of the two sides, a diagnostic of convergence, and
the *effective decay*, the one number in place of lambda that brings them closest:

    lambda_eff = argmin_l || W - M / l ||        M = 1/n sum_u (y_u - s_u) h_u^T

Departures: the paper calls this a closed form, but s depends on W. It writes the sum of the losses; torch trains on the mean,
hence 1/n. It has no bias and no dropout: with dropout the condition holds for the expected gradient only, and early stopping ends
before it holds at all. Averaged output heads (GAT) are stacked into one weight, on which lambda acts as H lambda.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.core import FinalLayer, Outputs


@dataclass(frozen=True, eq=False)
class Stationarity:
    """How far a final layer is from where cross-entropy and its decay balance."""

    weight_decay: float
    pull: Tensor  # (C, D) M: what the training nodes ask for
    gradient: Tensor  # (C, D) lambda W - M
    bias_gradient: Tensor  # (C,)
    relative: float  # ||lambda W - M|| / max(||lambda W||, ||M||): 0 at a stationary point, 1 or more far from one
    bias_relative: float
    cosine: float  # of W and M
    effective_decay: float  # inf when W and M are orthogonal or opposed

    @property
    def norm(self) -> float:
        """Length of the whole final layer's gradient."""
        return float(torch.cat([self.gradient, self.bias_gradient[:, None]], -1).norm())


def stationarity(out: Outputs, weight_decay: float) -> Stationarity:
    """The stationarity of ``out``'s final layer under ``weight_decay``, in double precision, without dropout."""
    final, _ = final_and_hidden(out)
    weight, bias = final.weight.double(), final.bias.double()
    h, error = training_errors(out)
    pull, bias_pull = error.T @ h / len(h), error.mean(0)  # (C, D), (C,)
    alignment = float((weight * pull).sum())
    return Stationarity(
        weight_decay,
        pull,
        weight_decay * weight - pull,
        weight_decay * bias - bias_pull,
        _relative(weight_decay * weight, pull),
        _relative(weight_decay * bias, bias_pull),
        alignment / float((weight.norm() * pull.norm()).clamp(min=1e-300)),
        float(pull.square().sum()) / alignment if alignment > 0 else float("inf"),
    )


def final_and_hidden(out: Outputs) -> tuple[FinalLayer, Tensor]:
    """The final layer and the representation it reads; refused where either is missing."""
    if out.final is None or out.hidden is None:
        missing = [name for name, value in (("final.weight", out.final), ("hidden", out.hidden)) if value is None]
        raise ValueError(
            f"this needs the final layer's weight and the representation it reads, but Outputs has no "
            f"{' and no '.join(missing)}: use observe(model, data) or train(...), which see both"
        )
    return out.final, out.hidden


def training_errors(out: Outputs) -> tuple[Tensor, Tensor]:
    """(h (n, D), y - s (n, C)) of the training nodes, in double precision."""
    _, hidden = final_and_hidden(out)
    train = out.graph.get("train_mask")
    if train is None or not train.any() or out.graph.get("y") is None:
        raise ValueError("this needs the training nodes and their labels: the graph has no train_mask, or no y")
    s = out.logits[train].double().softmax(-1)
    return hidden[train].double(), one_hot(out.graph.y[train], out.num_classes) - s


def _relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / torch.maximum(a.norm(), b.norm()).clamp(min=1e-300))
