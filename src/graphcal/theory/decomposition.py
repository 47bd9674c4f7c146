"""Eq. 8 of the SCAR paper (arXiv:2505.11335): a logit as similarity to the training nodes, class by class.

    z_ti = sum_{u: y_u = i} a_ui h_u^T h_t  -  sum_{v: y_v != i} (-a_vi) h_v^T h_t  +  b_i  +  residual_ti
           intra-class similarity              inter-class similarity

At a stationary point a = (y - s) / (n lambda). A trained model is never exactly there, and 1/lambda blows the difference up: on
an early-stopped GCN these coefficients leave more of the logits unexplained than they explain. So they are corrected, by the
smallest change that makes H^T a agree with W in the directions that training representations use:

    a = c (y - s) + pinv(H)^T (W - c H^T (y - s))^T        c = 1 / (n lambda_eff)

with singular values below CUTOFF times the largest left out of the pseudo-inverse: to correct along those would take large
coefficients for logits that nobody sees. How large the correction is (`correction`, as a share of c (y - s)) and what it leaves
unexplained (`residual`) are reported.

Departures: the paper's equation is `decompose(out, corrected=False)`, with the bias and the residual that it leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.core import Outputs
from graphcal.theory.stationarity import final_and_hidden, stationarity, training_errors

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
        """What each training node adds to each logit: its sum over n is intra + inter."""  # (t, n, C)
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
    own = one_hot(out.graph.y[out.graph.train_mask], out.num_classes).bool()  # (n, C)
    intra = similarity @ torch.where(own, coefficients, 0)
    inter = similarity @ torch.where(own, 0, coefficients)
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
