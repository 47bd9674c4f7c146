"""SCAR's theory (arXiv:2505.11335, Section 3), runnable: each claim as a function that can be checked on a trained model.

The final layer seen from the training nodes: Theorem 3.2 and Eq. 8.

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

Theorem 3.1: one step of training reads as a temperature.

One plain gradient step with rate eta on the loss of one node v, cross-entropy + lambda/2 ||W||^2, gives

    s'_i = exp(b_i / tau) / sum_j exp(b_j / tau) psi_ij        (psi_ii = 1)
    psi_ij = exp(eta (s_i - y_i - s_j + y_j) h^T h')    tau = 1 / (1 - eta lambda)    b_i = W[:, i]^T h'

with h' the representation after the step, taken as given. It is an identity: `theorem_3_1` is the right-hand side, `one_step`
takes the step on a real model and compares. On the mean loss of n nodes the same algebra gives, for all of them at once,

    z' = (1 - eta lambda) W^T h'_v - eta/n sum_u (s_u - y_u) h_u^T h'_v

which `stepped_logits` computes. Only a first-order step keeps lambda inside tau. Adam with coupled L2 divides the decay's
gradient by the running size of the whole gradient: `Step.shrink` measures what the decay then takes off W.

Departures: the paper has no bias. A bias is a column of W whose representation is the constant 1, decayed like the rest (as torch
does unless told otherwise), so the identity stays exact with h -> [h, 1].

Proposition 3.3 in the form that is true: a larger decay, a smaller final layer.

Let W(lambda) minimise L(W) + lambda/2 ||W||_F^2 for any fixed loss L, here the mean cross-entropy of a linear head on given
representations. Each of two minimisers is at least as good as the other under its own objective; the two inequalities add up to

    (lambda_1 - lambda_2) (||W(lambda_1)||_F^2 - ||W(lambda_2)||_F^2) <= 0

The rows of a minimiser with lambda > 0 sum to zero (s and y both sum to one), and then

    sum_{i<j} ||w_i - w_j||^2 = C ||W||_F^2

so the mean squared distance between class centroids is non-increasing in lambda as well. A single pair need not be: `head_path`
reports them all.

Departures: the paper states it for each pair, and proves it with s and h held fixed while lambda changes and without w_j.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch_geometric.data import Data

from graphcal.core import FinalLayer, Outputs
from graphcal.observation import observe


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


OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def theorem_3_1(weight: Tensor, h: Tensor, h_next: Tensor, y: int, lr: float, weight_decay: float) -> Tensor:
    """s' (C,) of one node after one gradient step; weight (C, D), h and h_next (D,)."""
    error = (weight @ h).softmax(-1)  # (C,) s - y
    error[y] -= 1
    tau = 1 / (1 - lr * weight_decay)
    b = weight @ h_next  # (C,)
    log_psi = lr * (error[:, None] - error[None, :]) * (h @ h_next)  # (C, C)
    return (b / tau - (b / tau + log_psi).logsumexp(-1)).exp()


def stepped_logits(weight: Tensor, h: Tensor, h_next: Tensor, y: Tensor, lr: float, weight_decay: float) -> Tensor:
    """z' (n, C) of n nodes after one gradient step on their mean loss; h and h_next (n, D), y (n,)."""
    error = (h @ weight.T).softmax(-1) - one_hot(y, len(weight))  # (n, C)
    return (1 - lr * weight_decay) * h_next @ weight.T - lr / len(y) * (h_next @ h.T) @ error


@dataclass(frozen=True, eq=False)
class Step:
    """One training step: the theorem's prediction, the optimiser's result, and the effect of the decay on the final weight."""

    optimizer: str
    predicted: Tensor  # (n, C) probabilities
    measured: Tensor  # (n, C)
    shrink_predicted: float  # eta lambda = 1 - 1/tau
    shrink: float  # share of W that the decay removed: (W'_0 - W'_lambda) projected on W

    @property
    def gap(self) -> float:
        """Largest difference of a probability."""
        return float((self.predicted - self.measured).abs().max())


def one_step(
    model: nn.Module,
    data: Data,
    nodes: Tensor,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    optimizer: str = "sgd",
    warmup: int = 0,
) -> Step:
    """Take one step on the mean loss of ``nodes`` (their numbers), without dropout, on a copy of ``model``.

    The arithmetic is the model's own: eta lambda is a few millionths, so give a double model to see an identity in it.
    ``warmup`` steps on the same loss come first: Adam's first step from a fresh state is the sign of the gradient.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer!r} is not one of {', '.join(OPTIMIZERS)}")
    nodes = torch.as_tensor(nodes).reshape(-1)
    model = copy.deepcopy(model).eval()
    state = None
    if warmup:
        state = _steps(model, data, nodes, OPTIMIZERS[optimizer], lr, weight_decay, warmup)
    before = observe(model, data)
    with_decay, without = copy.deepcopy(model), copy.deepcopy(model)
    _steps(with_decay, data, nodes, OPTIMIZERS[optimizer], lr, weight_decay, 1, state)
    _steps(without, data, nodes, OPTIMIZERS[optimizer], lr, 0.0, 1, state)
    after = observe(with_decay, data)
    weight, h = extended(before)
    _, h_next = extended(after)
    predicted = stepped_logits(weight, h[nodes], h_next[nodes], data.y[nodes], lr, weight_decay)
    removed = extended(observe(without, data))[0] - extended(after)[0]  # (C, D + 1)
    return Step(
        optimizer,
        predicted.softmax(-1),
        after.logits[nodes].softmax(-1),
        lr * weight_decay,
        float((removed * weight).sum() / weight.square().sum()),
    )


def _steps(
    model: nn.Module,
    data: Data,
    nodes: Tensor,
    optimizer: type[torch.optim.Optimizer],
    lr: float,
    weight_decay: float,
    count: int,
    state: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains ``model`` in place and gives the optimiser's moments, so that two copies can go on from them."""
    stepper = optimizer(model.parameters(), lr=lr, weight_decay=weight_decay)  # type: ignore[call-arg]
    if state is not None:
        moments = {"state": copy.deepcopy(state["state"]), "param_groups": stepper.state_dict()["param_groups"]}
        stepper.load_state_dict(moments)
    for _ in range(count):
        stepper.zero_grad()
        cross_entropy(model(data.x, data.edge_index)[nodes], data.y[nodes]).backward()
        stepper.step()
    return stepper.state_dict()


def extended(out: Outputs) -> tuple[Tensor, Tensor]:
    """(weight (C, D + 1), hidden (N, D + 1)) with the bias as one more column, seen by the constant 1."""
    final, hidden = final_and_hidden(out)
    return torch.cat([final.weight, final.bias[:, None]], -1), torch.cat([hidden, torch.ones_like(hidden[:, :1])], -1)


@dataclass(frozen=True, eq=False)
class Collapse:
    """Neural collapse of the last layer on some nodes."""

    angles: Tensor  # (C,) degrees between each class weight and its class mean, both centred over classes; 0: self-dual
    spread: float  # variance of representations inside classes over that between class means; 0: collapsed


def neural_collapse(out: Outputs, nodes: Tensor) -> Collapse:
    """Measure whether class weights point along class means, and how far representations scatter around these.

    With h the representations of the nodes and m_c their mean in class c,

        angle_c = arccos cos(w_c - mean(w), m_c - mean(m))        spread = mean |h_u - m_(y_u)|^2 / mean_c |m_c - mean(m)|^2
    """
    final, hidden = final_and_hidden(out)
    h, y = hidden[nodes].double(), out.graph.y[nodes]
    weight = final.weight.double()  # (C, D)
    classes = y.unique()
    means = torch.stack([h[y == c].mean(0) for c in classes])
    centred = means - means.mean(0)
    along = torch.cosine_similarity(weight[classes] - weight.mean(0), centred)
    inside = torch.stack([(h[y == c] - m).square().sum(1).mean() for c, m in zip(classes, means)]).mean()
    return Collapse(along.clamp(-1, 1).arccos().rad2deg(), float(inside / centred.square().sum(1).mean()))


@dataclass(frozen=True, eq=False)
class HeadPath:
    """Heads solved to convergence on the same representations, one for each decay."""

    decays: list[float]
    heads: list[FinalLayer]

    @property
    def norms(self) -> list[float]:
        """||W||_F for each decay."""
        return [float(head.weight.norm()) for head in self.heads]

    @property
    def distances(self) -> Tensor:
        """||w_i - w_j|| for each decay."""  # (L, C, C)
        return torch.stack([torch.cdist(head.weight, head.weight) for head in self.heads])

    @property
    def rising_pairs(self) -> list[tuple[int, int]]:
        """Pairs of classes that somewhere on the path move apart although the decay grows."""
        order = sorted(range(len(self.decays)), key=self.decays.__getitem__)
        grows = (self.distances[order].diff(dim=0) > 1e-6).any(0)  # (C, C)
        return [(i, j) for i, j in grows.nonzero().tolist() if i < j]


def head_path(out: Outputs, decays: Sequence[float]) -> HeadPath:
    """Fit the final layer anew on ``out``'s training representations, once for each decay."""
    if not decays or min(decays) <= 0:
        raise ValueError(
            f"decays must be positive numbers (a head without decay has no finite minimum); got {list(decays)}"
        )
    h, _ = training_errors(out)
    y = out.graph.y[out.graph.train_mask]
    return HeadPath(list(decays), [solve_head(h, y, out.num_classes, decay) for decay in decays])


def solve_head(hidden: Tensor, y: Tensor, classes: int, weight_decay: float) -> FinalLayer:
    """The linear head that minimises mean cross-entropy + weight_decay/2 ||W||_F^2; the bias is free.

    A trust-region Newton method in double precision, to a gradient of 1e-9.
    """
    h = torch.cat([hidden.double(), hidden.new_ones(len(hidden), 1, dtype=torch.double)], -1)  # (n, D + 1)
    target = one_hot(y, classes).double()
    decay = torch.full((classes, h.shape[1]), float(weight_decay), dtype=torch.double)
    decay[:, -1] = 0
    shape = decay.shape

    def matrix(flat: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(flat)).view(shape)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight = matrix(flat)
        log_probs = (h @ weight.T).log_softmax(-1)
        value = -(log_probs * target).sum() / len(h) + 0.5 * (decay * weight.square()).sum()
        gradient = (log_probs.exp() - target).T @ h / len(h) + decay * weight
        return float(value), gradient.numpy().ravel()

    def curvature(flat: np.ndarray, direction: np.ndarray) -> np.ndarray:
        s, d = (h @ matrix(flat).T).softmax(-1), matrix(direction)
        change = h @ d.T  # (n, C)
        change = s * (change - (s * change).sum(-1, keepdim=True))
        return (change.T @ h / len(h) + decay * d).numpy().ravel()

    start = np.zeros(decay.numel())
    options = {"gtol": 1e-9, "maxiter": 1000}
    solution = minimize(objective, start, jac=True, hessp=curvature, method="trust-ncg", options=options)
    weight = matrix(solution.x)
    return FinalLayer.from_weight(weight[:, :-1].clone(), weight[:, -1].clone())
