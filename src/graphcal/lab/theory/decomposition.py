"""The final layer seen from the training nodes (SCAR, arXiv:2505.11335): Theorem 3.2 and Eq. 8.

*Theorem 3.2*, as what it is: a condition that holds where training stands still.

    lambda W[:, i] = 1/n sum_u (y_ui - s_ui) h_u
    lambda b_i     = 1/n sum_u (y_ui - s_ui)            for a bias that is decayed too

The sum runs over the n training nodes. `stationarity` gives the difference of the two sides, a diagnostic of convergence, and
the *effective decay*, the one number in place of lambda that brings them closest:

    lambda_eff = argmin_l || W - M / l ||        M = 1/n sum_u (y_u - s_u) h_u^T

*Eq. 8*: a logit as similarity to the training nodes, class by class.

    z_ti = sum_{u: y_u = i} a_ui h_u^T h_t  -  sum_{v: y_v != i} (-a_vi) h_v^T h_t  +  b_i  +  residual_ti
           intra-class similarity              inter-class similarity

At a stationary point a = (y - s) / (n lambda). A trained model is never exactly there, and 1/lambda blows the difference up: on
an early-stopped GCN these coefficients leave more of the logits unexplained than they explain. So they are corrected, by the
smallest change that makes H^T a agree with W in the directions that training representations use:

    a = c (y - s) + pinv(H)^T (W - c H^T (y - s))^T        c = 1 / (n lambda_eff)

with singular values below CUTOFF times the largest left out of the pseudo-inverse: to correct along those would take large
coefficients for logits that nobody sees. How large the correction is (`correction`, as a share of c (y - s)) and what it leaves
unexplained (`residual`) are reported.

Departures: the paper calls Theorem 3.2 a closed form, but s depends on W. It writes the sum of the losses; torch trains on the
mean, hence 1/n. It has no bias and no dropout: with dropout the condition holds for the expected gradient only, and early
stopping ends before it holds at all. Averaged output heads (GAT) are stacked into one weight, on which lambda acts as H lambda.
The paper's Eq. 8 is `decompose(out, corrected=False)`, with the bias and the residual that it leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.core import FinalLayer, Outputs


@dataclass(frozen=True, eq=False)
class Stationarity:
    """Distance of a final layer from the balance of cross-entropy and decay."""

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
    """The final layer and h with logits = h @ weight.T + bias; refused where either is unknown."""
    h = out.final_representation
    if out.final is None or h is None:
        missing = "final layer" if out.final is None else "representation h with logits = h @ weight.T + bias"
        raise ValueError(f"Outputs has no {missing}. Use observe(model, data) or train(...).")
    return out.final, h


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


CUTOFF = 0.1


@dataclass(frozen=True, eq=False)
class Decomposition:
    """intra + inter + bias + residual = logits, for t nodes; all in double precision."""

    nodes: Tensor  # (t,)
    train_nodes: Tensor  # (n,)
    coefficients: Tensor  # (n, C) a
    similarity: Tensor  # (t, n) h_t^T h_u
    intra: Tensor  # (t, C)
    inter: Tensor  # (t, C) with its minus sign
    bias: Tensor  # (C,)
    residual: Tensor  # (t, C)
    effective_decay: float
    correction: float  # ||a - c (y - s)|| / ||c (y - s)||
    unexplained: float  # spread of the residual over the classes, as a share of the spread of the logits

    @property
    def logits(self) -> Tensor:  # (t, C)
        return self.intra + self.inter + self.bias + self.residual

    def contributions(self) -> Tensor:
        """Contribution of each training node to each logit: the sum over n is intra + inter."""  # (t, n, C)
        return self.similarity[:, :, None] * self.coefficients


def decompose(
    out: Outputs, nodes: Tensor | None = None, weight_decay: float | None = None, corrected: bool = True
) -> Decomposition:
    """Decompose the logits of ``nodes`` (their numbers; None: all) into what the training nodes say.

    ``weight_decay=None`` takes the effective decay in place of lambda.
    """
    final, hidden = final_and_hidden(out)
    nodes = torch.arange(out.num_nodes) if nodes is None else torch.as_tensor(nodes).reshape(-1)
    weight, bias, h_t = final.weight.double(), final.bias.double(), hidden[nodes].double()
    h, error = training_errors(out)  # (n, D), (n, C)
    decay = stationarity(out, 0.0).effective_decay if weight_decay is None else weight_decay
    if decay == 0:
        raise ValueError(
            "Eq. 8 divides by the decay, which is 0 here: leave weight_decay=None to use the effective decay"
        )
    coefficients = plain = error / (len(h) * decay)
    if corrected:
        coefficients = plain + smallest_correction(h, weight - plain.T @ h)
    similarity = h_t @ h.T  # (t, n)
    is_label = one_hot(out.graph.y[out.graph.train_mask], out.num_classes).bool()  # (n, C)
    intra = similarity @ torch.where(is_label, coefficients, 0)
    inter = similarity @ torch.where(is_label, 0, coefficients)
    residual = h_t @ (weight - coefficients.T @ h).T
    linear = h_t @ weight.T
    return Decomposition(
        nodes,
        out.graph.train_mask.nonzero().flatten(),
        coefficients,
        similarity,
        intra,
        inter,
        bias,
        residual,
        decay,
        float((coefficients - plain).norm() / plain.norm().clamp(min=1e-300)),
        float(_spread(residual) / _spread(linear).clamp(min=1e-300)),
    )


def smallest_correction(h: Tensor, gap: Tensor) -> Tensor:
    """The smallest d (n, C) whose d^T h equals gap (C, D) along the well-used directions of h (n, D)."""
    inverse: Tensor = torch.linalg.pinv(h, rtol=CUTOFF)
    return (gap @ inverse).T


def _spread(values: Tensor) -> Tensor:
    """Softmax does not see what is common to all classes."""
    centred = values - values.mean(-1, keepdim=True)
    return centred.square().sum().sqrt()
