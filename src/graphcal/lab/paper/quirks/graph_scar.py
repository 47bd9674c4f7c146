"""Graph-aware SCAR, the default of graphcal 0.1: scale and pull of each node depend on what its neighbourhood looks like.

Kept to compare with; `graphcal.methods.graph_scaling` succeeds it.

    z'_n = s_n z_n + w_n t_n        t = G[:, y_hat] + b, as in `graphcal.methods.scar`
    s_n = x_n . a,  w_n = x_n . c   x_n = (1, eight standardised features of the node: `node_features`)

Linear in (a, c): validation NLL is convex. A ridge holds the 16 coefficients of features to zero, that is, to SCAR with one
weight and a temperature; its strength is the one of least leave-one-out NLL. With fewer than ten fitting nodes for each parameter
the features are left out. The cap on w and the return to the identity are SCAR's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Needs, Outputs, fitted_on, fitting_nodes
from graphcal.graphs import structure
from graphcal.methods.card import Card
from graphcal.methods.scar import SMALLEST_SCALE, ScarObjective, centroid_logits, final_layer_of, guarded_pull, pull
from graphcal.methods.solvers.linear import TINY_RIDGE, LinearFit, NewtonState, fit_linear, loo_logits

ENOUGH_PER_PARAMETER = 10  # fitting nodes
RIDGES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # on mean NLL, with columns of unit size


def node_features(out: Outputs) -> Tensor:
    """Features of every node that need no label; an isolated node is its own neighbourhood.

    near_train   1 next to the training set (V_F of the SCAR paper), else 0
    agree        share of neighbours with the node's predicted class
    agree_2hop   the same over walks of length two
    log_degree   log(1 + degree)
    support      the neighbours' mean probability of the node's predicted class
    conf_gap     own confidence minus the neighbours' mean confidence
    entropy      of the neighbours' mean prediction
    logit_norm   length of the node's own logit vector
    """  # (N, 8)
    graph, classes = structure(out.graph), out.num_classes
    probs = out.logits.softmax(-1)
    conf, pred = probs.amax(-1, keepdim=True), out.pred[:, None]
    hard = torch.zeros_like(probs).scatter_(1, pred, 1.0)  # (N, C) predictions, one-hot
    one_hop = graph.neighbour_mean(hard)
    around = graph.neighbour_mean(torch.cat([one_hop, probs, conf], -1))
    two_hop, mean_probs, mean_conf = torch.split(around, [classes, classes, 1], -1)
    columns = [
        graph.next_to_training[:, None],
        one_hop.gather(1, pred),
        two_hop.gather(1, pred),
        graph.degree[:, None].to(probs).log1p(),
        mean_probs.gather(1, pred),
        conf - mean_conf,
        torch.special.entr(mean_probs).sum(-1, keepdim=True),
        out.logits.norm(dim=-1, keepdim=True),
    ]
    return torch.cat([column.double() for column in columns], -1)


@dataclass(frozen=True)
class GraphSCAR:
    """Scale and pull each node's logits by amounts that are linear in eight label-free features of its neighbourhood.

    What graphcal 0.1 did by default, kept to compare with: `graphcal.methods.GraphScaling` succeeds it. Like `SCAR` it keeps
    predictions and has nothing to set.

    >>> import graphcal
    >>> data = graphcal.lab.load("citeseer")
    >>> out = graphcal.lab.train(data, training=graphcal.lab.Training(epochs=60), seeds=[0])[0].outputs
    >>> calibrate = graphcal.CALIBRATORS["graph-scar"]().fit(out, on=data.val_mask)
    >>> bool((calibrate(out).argmax(-1) == out.pred).all())
    True
    """

    card: ClassVar[Card] = Card(
        title="Graph-aware SCAR, graphcal 0.1's default",
        formula="z' = s z + w (G[:, y_hat] + b), G = W^T W of the final layer; s and w linear in eight features of the node",
        paper="this library, after arXiv:2505.11335",
        parameters="s, w: 18 under a ridge",
        cost="fit: two sparse products and Newton steps on the fitted nodes; apply: O((E + N) C)",
        keeps_predictions=True,
        minimises_nll=True,
        graph=True,
        final_layer=True,
        departures="all of it goes beyond SCAR's paper, which has two weights and no scale",
    )

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> GraphPull:
        """The coefficients of least validation NLL under the ridge that leave-one-out chooses; ``stop`` is not used."""
        return fit_graph_pull(out, on)


class GraphPull(Calibration):
    """Calibration fitted by `GraphSCAR`."""

    scale: Tensor  # (9,) coefficients of s, the constant first
    pull: Tensor  # (9,) coefficients of w
    mean: Tensor  # (8,) of the features, on the fitted nodes
    std: Tensor  # (8,)
    gram: Tensor  # (C, C)
    bias: Tensor  # (C,)
    guarded: bool  # the cap on w is on
    note: str

    needs = Needs(edges=True, training=True, whole_graph=True)

    def forward(self, out: Outputs) -> Tensor:
        log_probs, _ = self.pulled(out.logits, out.pred, self._design(node_features(out)))
        return torch.where(structure(out.graph).train_mask[:, None], out.logits.log_softmax(-1), log_probs)

    def pulled(self, z: Tensor, pred: Tensor, design: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (n, C) of nodes with logits z, predictions pred and rows x of the design, and w after the cap."""
        w = (design @ self.pull.double()).to(z)
        s = (design @ self.scale.double()).to(z).clamp(min=SMALLEST_SCALE)
        t, z = centroid_logits(self.gram.to(z), self.bias.to(z), pred), z.T
        log_probs, w = guarded_pull(z, t, w, pred, s) if self.guarded else (pull(z, t, w, s).log_softmax(0), w)
        return log_probs.T, w

    def weights(self, out: Outputs) -> Tensor:
        """w of every node, after the cap; 0 on the training set."""  # (N,)
        _, w = self.pulled(out.logits, out.pred, self._design(node_features(out)))
        return w.masked_fill(structure(out.graph).train_mask, 0.0)

    def capped(self, out: Outputs) -> Tensor:
        """The nodes whose weight is held back, because with all of it their prediction would change."""  # (N,) bool
        wanted = (self._design(node_features(out)) @ self.pull.double()).to(out.logits)
        return (self.weights(out) != wanted) & ~structure(out.graph).train_mask

    def _design(self, features: Tensor) -> Tensor:
        return design_matrix(features, self.mean.double(), self.std.double()).nan_to_num(0.0)


def design_matrix(features: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """A constant, and features in units of their spread, at most three: a node unlike any fitted one is not extrapolated to."""
    standardised = ((features - mean) / std).clamp(-3, 3)
    return torch.cat([torch.ones_like(standardised[:, :1]), standardised], 1)  # (n, 9)


def fit_graph_pull(out: Outputs, on: Tensor, guarded: bool = True) -> GraphPull:
    on = fitting_nodes(out, on)
    objective = ScarObjective(out, on, temperature=True)
    features = node_features(out)[on]
    mean, std = features.mean(0), features.std(0, correction=0)
    std = torch.where(std > 1e-6, std, torch.ones_like(std))
    design = design_matrix(features, mean, std)  # (n, K)
    theta, loo_nll = coefficients(objective, design)
    final, like = final_layer_of(out), out.logits

    def graph_pull(theta: Tensor, note: str = "") -> GraphPull:
        scale, pull = theta.to(like).chunk(2)
        return GraphPull(
            scale=scale, pull=pull, mean=mean.to(like), std=std.to(like), gram=final.gram.to(like), bias=final.bias.to(like),
            guarded=guarded, note=note, **fitted_on(out, on),
        )  # fmt: skip

    fitted = graph_pull(theta)
    note = objective.rejection(loo_nll, fitted.pulled(like[on], out.pred[on], design)[0])
    return graph_pull(identity_coefficients(theta), note) if note else fitted


def coefficients(objective: ScarObjective, design: Tensor) -> tuple[Tensor, float]:
    """(a, c) (2K,), and its leave-one-out NLL."""
    base, size = torch.zeros_like(objective.z), design.shape[1]
    terms = torch.cat(
        [design[:, None, :] * v[:, :, None] for v in (objective.z, objective.direction)], -1
    )  # (n, C, 2K)
    constants = [0, size]  # one scale and one weight for all nodes
    start = identity_coefficients(terms[0, 0])
    # no digit of what the ridge draws to matters
    start[constants] = fit_linear(
        base, terms[:, :, constants], objective.target, start=start[constants], precision=1e-8
    )
    if len(base) < ENOUGH_PER_PARAMETER * 2 * size:
        unseen = loo_logits(base, terms[:, :, constants], objective.target, start[constants])
        return start, objective.nll(unseen)
    held = torch.ones_like(start)
    held[constants] = 0.0
    best = best_ridge(base, terms, objective.target, start, held, RIDGES)
    return best.theta, best.loo_nll


def identity_coefficients(like: Tensor) -> Tensor:
    """s = 1, w = 0 for every node."""
    return torch.eye(len(like), dtype=like.dtype, device=like.device)[0]


@dataclass(frozen=True, eq=False)
class RidgeFit:
    theta: Tensor  # (K,)
    ridge: float
    loo_nll: float


def best_ridge(
    base: Tensor, terms: Tensor, target: Tensor, start: Tensor, held: Tensor, ridges: Sequence[float]
) -> RidgeFit:
    """The ridge of least leave-one-out NLL. It acts where ``held`` (K,) is 1, on coefficients of columns of unit size."""
    with torch.inference_mode():
        fit = LinearFit(base, terms, target, start)
        ridges = sorted(ridges, reverse=True)

        def step(index: int, state: NewtonState) -> tuple[NewtonState, float]:
            there = fit.solve(ridges[index] * held, state, steps=1)
            return there, there.loo_nll(ridges[index] * held + TINY_RIDGE)

        index = middle = len(ridges) // 3
        state, least = step(index, fit.at(fit.start))
        for direction in (-1, 1):
            while 0 <= index + direction < len(ridges):
                there, loss = step(index + direction, state)
                if loss >= least:
                    break
                state, least, index = there, loss, index + direction
            if index != middle:
                break  # it gained in this direction: it would lose in the other
        ridge = ridges[index] * held
        solved = fit.solve(ridge, state, precision=1e-16)
        theta, loss = fit.theta(solved), solved.loo_nll(ridge + TINY_RIDGE)
    return RidgeFit(theta.clone(), ridges[index], loss)
