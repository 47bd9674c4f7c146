"""SCAR, node level (arXiv:2505.11335, Eq. 9 and 10): pull every node towards the centroid of its predicted class.

Eq. 9 moves a node's last representation h towards a column of the final layer's weight W, its predicted class's centroid; Eq. 10
says by how much:

    h <- w W[:, y_hat] + (1 - w) h        w = alpha on V_F, next to the training set; beta on V_S, elsewhere; 0 on the set

The final layer is linear, z = W^T h + b. With its Gram matrix G = W^T W, and without touching a representation, this is exactly

    z' = z + w (t - z)                    t = G[:, y_hat] + b

or, with a temperature fitted jointly, z' = s z + w t.

*Fitting.* z' is linear in alpha, beta and s: validation NLL is convex, and Newton's method solves it to machine precision. A
side of the training set with fewer than 30 fitting nodes shares the other side's weight. A fit that would not lower the NLL of
unseen nodes (leave-one-out), or of the fitted ones, is dropped for the identity, and the calibration's ``note`` says so.

*Unknown training set.* A shipped calibration meets graphs whose training nodes it does not know; there every node is taken to be
elsewhere, as on a graph that has none. What knowing them is worth, in NLL of the fitting nodes, is in ``fitted_on``.

*Keeping predictions.* The paper says that predictions do not change; without diagonal dominance of G they can. The lead of the
predicted class is linear in w, so each node's w is capped, in closed form, where its lead over some class would vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, FinalLayer, Needs, Outputs, first_largest, fitted_on, fitting_nodes
from graphcal.graphs import Columns, GraphSums, graph_sums
from graphcal.methods.card import Card
from graphcal.methods.solvers.linear import fit_linear, loo_logits, platt_targets, soft_nll
from graphcal.threads import one_thread

FEW_NODES = 30  # fitting nodes: fewer cannot carry a weight of their own
SMALLEST_SCALE = 1e-3  # of s: logits are never turned over
NEAR, TRAINING = 1, 2  # where a node is; 0: elsewhere


def pull(z: Tensor, t: Tensor, w: Tensor, scale: Tensor | None = None) -> Tensor:
    """Eq. 9 in logit space, for logits z (C, n), centroid logits t (C, n) and weights w (n,); with a scale s: s z + w t."""
    return z + w * (t - z) if scale is None else scale * z + w * t


def centroid_logits(gram: Tensor, bias: Tensor, pred: Tensor) -> Tensor:
    """t = G[:, y_hat] + b: the final layer's logits of the centroid of every node's predicted class."""  # (C, n)
    return gram.index_select(1, pred) + bias[:, None]


def side_of_training(graph: GraphSums) -> Columns:
    """2 on the training set, 1 on V_F, the nodes next to it, 0 on V_S, all others; NaN if the set is unknown."""  # (N, 1)
    return graph.rows(lambda near, train: NEAR * near + TRAINING * train, graph.near, graph.train)


def pull_weights(side: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """Eq. 10: alpha on V_F, beta on V_S, 0 on the training set, for nodes on these sides of it."""  # (n,)
    weight = torch.where(side == NEAR, alpha, beta)
    return torch.where(side == TRAINING, torch.zeros_like(weight), weight)


def guarded_pull(z: Tensor, t: Tensor, w: Tensor, pred: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Log-probabilities (C, n) that keep the predictions, and the weights (n,) after the cap."""
    base, direction = (z, t - z) if scale is None else (scale * z, t)
    predicted = pred[None]
    lead = base.gather(0, predicted) - base  # (C, n) of the predicted class over every class
    lost = (direction - direction.gather(0, predicted)) * w.sign()  # for each unit of |w|
    room = torch.where(lost > 0, lead / lost.clamp(min=torch.finfo(z.dtype).tiny), torch.inf)
    cap = room.amin(0) * (1 - 1e-3)  # keep a thousandth of the lead: rounding must not decide
    w = w.sign() * torch.minimum(w.abs(), cap)  # not copysign, which ONNX lacks
    log_probs = (base + w * direction).log_softmax(0)
    same = (
        first_largest(log_probs) == pred
    )  # a lead of a few ulps can still be rounded away: such a node keeps its logits
    return torch.where(same, log_probs, z.log_softmax(0)), w


@dataclass(frozen=True)
class SCAR:
    """Move each node towards the centroid of its predicted class: alpha next to the training set, beta elsewhere.

        z' = z + w (t - z),   t = G[:, y_hat] + b,   G = W^T W of the final layer,   w = alpha or beta

    It needs the final layer and keeps predictions. `GraphScaling` lets the scale depend on a node's neighbourhood and has a
    lower NLL on most graphs.

    Parameters
    ----------
    alpha, beta : float, optional
        Weights; fitted exactly if not given.
    temperature : bool, default=False
        Also fit a scale of the logits.
    shared : bool, default=False
        Fit one weight for all nodes outside the training set, as in Eq. 9 of the paper, in place of alpha and beta.

    Examples
    --------
    >>> import graphcal
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> calibrate = graphcal.SCAR().fit(out, on=data.val_mask)
    >>> float(calibrate.beta) > 0  # the model was under-confident
    True
    >>> log_probs = calibrate(out)
    >>> bool((log_probs.argmax(-1) == out.pred).all())
    True
    """

    alpha: float | None = None  # None: fitted
    beta: float | None = None
    temperature: bool = False
    shared: bool = False

    card: ClassVar[Card] = Card(
        title="SCAR, node level",
        formula="z' = z + w (G[:, y_hat] + b - z), G = W^T W of the final layer; w = alpha or beta",
        paper="The Final Layer Holds the Key: A Unified and Efficient GNN Calibration Framework, arXiv:2505.11335",
        parameters="alpha, beta: 2; shared: 1; with temperature s: one more",
        cost="fit: a few Newton steps on the fitted nodes; apply: O(N C)",
        keeps_predictions=True,
        minimises_nll=True,
        graph=True,
        final_layer=True,
        departures="fitted exactly instead of on a grid; fitted weights may be negative (an over-confident model needs one), and "
        "are capped where a prediction would change",
    )

    @one_thread()
    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> CentroidPull:
        """The weights (and the scale) of least validation NLL on the nodes ``on``; ``stop`` is not used."""
        if self.shared and (self.alpha is not None or self.beta is not None):
            raise ValueError("shared=True fits one weight: leave alpha and beta out.")
        return fit_pull(out, on, self.alpha, self.beta, self.temperature, shared=self.shared)


class CentroidPull(Calibration):
    """Calibration fitted by `SCAR`."""

    alpha: Tensor  # () w on V_F
    beta: Tensor  # () w on V_S
    scale: Tensor  # () s, where there is a temperature
    gram: Tensor  # (C, C)
    bias: Tensor  # (C,)
    temperature: bool
    guarded: bool  # the cap on w is on
    note: str

    needs = Needs(edges=True, training=True)

    def context(
        self, logits: Columns, graph: GraphSums, hidden: Columns | None = None, inputs: Columns | None = None
    ) -> Columns:
        """Side of the training set: 0 elsewhere, 1 next to it, 2 in it."""  # (N, 1)
        return side_of_training(graph)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        """Eq. 10, then Eq. 9; a node whose side is unknown (NaN) is taken to be elsewhere."""
        side = context[0]
        log_probs, _ = self.pulled(logits, first_largest(logits), self._wanted(side))
        if not self.temperature:  # w = 0 has left the training nodes alone
            return log_probs
        return torch.where(side == TRAINING, logits.log_softmax(0), log_probs)

    def pulled(self, z: Tensor, pred: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (C, n) of nodes with logits z (C, n), predictions and weights w (n,), and w after the cap."""
        t, w = centroid_logits(self.gram.to(z), self.bias.to(z), pred), w.to(z)
        scale = self.scale.to(z) if self.temperature else None
        return guarded_pull(z, t, w, pred, scale) if self.guarded else (pull(z, t, w, scale).log_softmax(0), w)

    def weights(self, out: Outputs) -> Tensor:
        """w of every node, after the cap; 0 on the training set."""  # (N,)
        return self.pulled(out.logits.T, out.pred, self.wanted(out))[1]

    def capped(self, out: Outputs) -> Tensor:
        """The nodes whose weight is held back, because with all of it their prediction would change."""  # (N,) bool
        return self.weights(out) != self.wanted(out)

    def wanted(self, out: Outputs) -> Tensor:
        """w of every node, before the cap."""  # (N,)
        return self._wanted(self.context_of(out)[:, 0]).to(out.logits)

    def _wanted(self, side: Tensor) -> Tensor:
        return pull_weights(side, self.alpha, self.beta)


# --------------------------------------------------------------------------------------------------------------- fitting


class ScarObjective:
    """Mean NLL of the fitting nodes as a function of the weights: w = columns @ theta, and s where there is a temperature."""

    def __init__(self, out: Outputs, on: Tensor, temperature: bool = False) -> None:
        final = final_layer_of(out)
        self.temperature, self.y = temperature, out.graph.y[on]
        self.z = out.logits[on].double()  # (n, C)
        t = centroid_logits(final.gram, final.bias, out.pred[on]).T.double()  # (n, C)
        self.direction = t if temperature else t - self.z  # of the logits, as w grows
        self.target = platt_targets(self.y, self.z)  # (n, C) the labels, smoothed if the model has them all right
        self.own_nll = self.nll(self.z)

    def nll(self, logits: Tensor) -> float:
        return float(soft_nll(logits.double(), self.target))

    def rejection(self, loo_nll: float, log_probs: Tensor) -> str:
        """Reason to replace a fit by the identity, from its leave-one-out NLL and its effect on the fitting nodes; else ''."""
        after = self.nll(log_probs)
        if loo_nll < self.own_nll and after <= self.own_nll:
            return ""
        return f"left as it was: NLL on unseen nodes would go from {self.own_nll:.4f} to {max(loo_nll, after):.4f}"

    def minimise(
        self, columns: Tensor, given: Tensor | float = 0.0, ridge: Tensor | float = 0.0, start: Tensor | None = None
    ) -> tuple[Tensor, float]:
        """theta (K,) for columns (n, K), led by s where that is fitted, and its leave-one-out NLL; ``given`` (n, 1) adds to w."""
        base, terms = self.z + given * self.direction, columns[:, None, :] * self.direction[:, :, None]
        if self.temperature:
            base, terms = given * self.direction, torch.cat([self.z[:, :, None], terms], -1)
            start = torch.eye(terms.shape[2], dtype=torch.double, device=terms.device)[0]  # s = 1, w = 0
        theta = fit_linear(base, terms, self.y, ridge, start)
        return theta, self.nll(loo_logits(base, terms, self.target, theta, ridge))


def final_layer_of(out: Outputs) -> FinalLayer:
    if out.final is None:
        raise ValueError(
            "SCAR needs the final layer, but only logits are known: use observe(model, data), or "
            "Outputs.from_logits(logits, data, weight, bias) with the last layer's weight (C, D)"
        )
    return out.final


def fit_pull(
    out: Outputs,
    on: Tensor,
    alpha: float | None = None,
    beta: float | None = None,
    temperature: bool = False,
    guarded: bool = True,
    shared: bool = False,
) -> CentroidPull:
    """Eq. 10 with the weights that are given; the others, and the scale, are those of least NLL on the nodes ``on``.

    One weight for both sides if ``shared``, or if one side has few of the nodes.
    """
    on = fitting_nodes(out, on)
    objective = ScarObjective(out, on, temperature)
    graph = graph_sums(out.graph)
    near = torch.zeros_like(on[on]) if graph is None else graph.near[on, 0] == 1
    sides = torch.stack([near, ~near], -1).double()  # (n, 2) V_F, V_S
    weights, free = sides.new_tensor([alpha or 0.0, beta or 0.0]), torch.tensor([alpha is None, beta is None])
    theta, loo_nll = sides.new_ones(1), torch.nan
    if free.any() or temperature:
        one = shared or bool(free.all() and sides.sum(0).min() < FEW_NODES)
        columns = torch.ones_like(sides[:, :1]) if one else sides[:, free]
        theta, loo_nll = objective.minimise(columns, given=sides @ weights[:, None])
        weights[free] = theta[1:] if temperature else theta
    scale = theta[0] if temperature else None
    fitted = centroid_pull(out, on, weights, scale, guarded)
    if not free.all():
        return fitted  # a weight that is given is used, whatever it does
    log_probs = fitted.pulled(out.logits[on].T, out.pred[on], fitted.wanted(out)[on])[0].T
    elsewhere = fitted.pulled(out.logits[on].T, out.pred[on], fitted.beta.expand(len(log_probs)))[0].T
    fitted.fitted_on["worth_of_training_set"] = objective.nll(elsewhere) - objective.nll(log_probs)
    note = objective.rejection(loo_nll, log_probs)
    return centroid_pull(out, on, torch.zeros(2), None, guarded, note) if note else fitted


def centroid_pull(
    out: Outputs, on: Tensor, weights: Tensor, scale: Tensor | None = None, guarded: bool = True, note: str = ""
) -> CentroidPull:
    """The calibration with weights alpha, beta (2,) and, where there is a temperature, a scale."""
    final, like = final_layer_of(out), out.logits
    return CentroidPull(
        alpha=weights[0].to(like),
        beta=weights[1].to(like),
        scale=like.new_ones(()) if scale is None else scale.clamp(min=SMALLEST_SCALE).to(like),
        gram=final.gram.to(like),
        bias=final.bias.to(like),
        temperature=scale is not None,
        guarded=guarded,
        note=note,
        **fitted_on(out, on),
    )
