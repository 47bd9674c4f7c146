"""GETS, graph ensemble temperature scaling (Zhuang et al., ICLR 2025, arXiv:2410.09570): a sparse mixture of calibration GNNs.

Seven experts read the seven non-empty subsets of {logits z, features x, degree}; features go through a linear map,
degrees through an embedding. An expert is a two-layer GCN with one output for each class, and a noisy top-k gate
picks k experts for each node:

    e_m = A_hat relu(A_hat [inputs of m] W1_m + b1_m) W2_m + b2_m        z' = z * softplus( sum_m g_m e_m )
    g = softmax over the k largest of  q + noise softplus(r)        q = [x W_x, z] W_gate,  r = [x W_x, z] W_noise
    loss = CE + balance ( cv^2(importance) + cv^2(load) )           (Shazeer et al. 2017, arXiv:1701.06538)

importance = column sums of g. load is the expected number of rows that choose an expert, smooth in the weights: the probability
over the expert's own noise that it is among the k largest.

One scale for each class: predictions may change, although the paper speaks of temperature. Without ``stop`` the training
nodes decide when to stop, as in the paper: the fitted nodes are learnt by heart and would never say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, log
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from graphcal.core import Calibration, Needs, Outputs, fitted_on
from graphcal.graphs import structure
from graphcal.lab.engine.rows import RowSlice, feature_rows, row_slice
from graphcal.methods.card import Card
from graphcal.methods.solvers.adam import Weights, adam, dropout, uniform
from graphcal.methods.solvers.linear import mean_nll
from graphcal.methods.solvers.node_order import fitting_order, stopping_order, training_nodes
from graphcal.methods.solvers.scaling import break_ties


def noisy_top_k(
    x: Tensor, gate: Tensor, noise: Tensor, top: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Gates (n, M) with ``top`` entries per row that are not zero, and the imbalance (). No generator: no noise."""
    clean = x @ gate  # (n, M)
    if generator is None:
        return _top_softmax(clean, top), clean.new_zeros(())
    spread = softplus(x @ noise) + 0.01
    draw = torch.randn(clean.shape, generator=generator, dtype=torch.double).to(clean)
    noisy = clean + draw * spread
    gates = _top_softmax(noisy, top)
    imbalance = squared_variation(gates.sum(0))
    if top < clean.shape[1]:
        imbalance = imbalance + squared_variation(_chance(clean, noisy, spread, top).sum(0))
    return gates, imbalance


def _top_softmax(scores: Tensor, top: int) -> Tensor:
    best, which = scores.topk(top, -1)
    return torch.zeros_like(scores).scatter(-1, which, best.softmax(-1))


def _chance(clean: Tensor, noisy: Tensor, spread: Tensor, top: int) -> Tensor:
    """Probability that each expert stays among the ``top`` when only its own noise is drawn anew."""  # (n, M)
    ranked = noisy.topk(top + 1, -1).values
    inside = noisy > ranked[:, top, None]
    to_beat = torch.where(inside, ranked[:, top, None], ranked[:, top - 1, None])
    chance: Tensor = torch.special.ndtr((clean - to_beat) / spread)
    return chance


def squared_variation(values: Tensor) -> Tensor:
    """Variance over squared mean."""
    variation: Tensor = values.var() / (values.mean().square() + 1e-10)
    return variation


EXPERTS = ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1))  # logits, features, degree


@dataclass(frozen=True)
class GETS:
    """A gate picks, for each node, among seven GNNs that read logits, features and degrees.

    For large graphs with informative features and thousands of validation nodes. ``per_class=False`` gives one scale per node,
    which keeps predictions.
    """

    hidden: int = 16
    embedding: int = 16  # of features and of degrees
    top: int = 2  # experts a node listens to
    balance: float = 1.0
    dropout: float = 0.5
    lr: float = 0.001
    weight_decay: float = 0.0
    epochs: int = 1000
    patience: int = 50
    per_class: bool = True
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="GETS",
        formula="z' = z * softplus(sum_m g_m e_m), e_m a GCN on a subset of {logits, features, degree}",
        paper="Zhuang et al., GETS: Ensemble Temperature Scaling for Calibration in Graph Neural Networks, ICLR 2025, "
        "arXiv:2410.09570",
        parameters="7 GCNs, a feature map and a degree embedding: about 16 F + 16 max-degree + 7 (16 (C + 32) + 17 C)",
        cost="fit: up to 1,000 full-batch Adam steps on the two-hop neighbourhood; apply: a few sparse products",
        keeps_predictions=False,
        graph=True,
        features=True,
        labels="the nodes it is fitted on; the training nodes decide when to stop",
        departures="the official code makes the degree embedding inside forward, after the optimiser, so it is never trained; "
        "here it is. Gate losses are taken over the fitted nodes; gates start at zero, the scale at 1",
    )

    def __post_init__(self) -> None:
        if not 1 <= self.top <= len(EXPERTS):
            raise ValueError(f"top must be 1..{len(EXPERTS)} experts; got {self.top}")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> ExpertMixture:
        """The weights of least NLL on the nodes ``stop`` (or training nodes) along Adam's way down the loss of ``on``."""
        nodes = fitting_order(out, on)
        watched = stopping_order(out, training_nodes(out) if stop is None else stop, nodes)
        generator = torch.Generator().manual_seed(self.seed)
        fitting = View.of(out, nodes)
        watching = fitting if watched is nodes else View.of(out, watched)
        y, y_watched = out.graph.y[nodes], out.graph.y[watched]

        def loss(w: Weights) -> Tensor:
            outputs, gate_inputs = experts(fitting, w, lambda hidden: dropout(hidden, self.dropout, generator))
            gates, imbalance = noisy_top_k(gate_inputs, w["gate"], w["noise"], self.top, generator)
            return mean_nll(scales(outputs, gates) * fitting.logits, y) + self.balance * imbalance

        def watch(w: Weights) -> Tensor:
            outputs, gate_inputs = experts(watching, w)
            gates, _ = noisy_top_k(gate_inputs, w["gate"], w["noise"], self.top)
            return mean_nll(scales(outputs, gates) * watching.logits, y_watched)

        fitted = adam(
            self._start(out, generator),
            loss,
            watch,
            lr=self.lr,
            epochs=self.epochs,
            patience=self.patience,
            weight_decay=self.weight_decay,
        )
        return ExpertMixture(**fitted, top=self.top, per_class=self.per_class, **fitted_on(out, on))

    def _start(self, out: Outputs, generator: torch.Generator) -> Weights:
        features = features_of(out).shape[1]
        c, e, m = out.num_classes, self.embedding, len(EXPERTS)
        outputs, wide = c if self.per_class else 1, c + 2 * self.embedding
        degrees = int(structure(out.graph).degree.max()) + 1
        like = out.logits
        return {
            "project": uniform((features, e), features**-0.5, generator, like),
            "embed": uniform((degrees, e), 1.0, generator, like),
            "gate": like.new_zeros(c + e, m),
            "noise": like.new_zeros(c + e, m),
            "w1": uniform((m, wide, self.hidden), wide**-0.5, generator, like),
            "b1": like.new_zeros(m, self.hidden),
            "w2": uniform((m, self.hidden, outputs), self.hidden**-0.5, generator, like),
            "b2": like.new_full((m, outputs), log(expm1(1.0))),
        }


def features_of(out: Outputs) -> Tensor:
    if out.graph.get("x") is None:
        raise ValueError("GETS reads node features, but the graph has no x: give features (N, F), or use gats or wats")
    x: Tensor = out.graph.x
    values = x.values() if x.layout == torch.sparse_csr else x
    if not torch.isfinite(values).all():
        raise ValueError(
            "GETS reads the features x, but some of them are not finite: mend them, or choose another calibrator"
        )
    return x


@dataclass(frozen=True, eq=False)
class View:
    """Inputs of the experts for some nodes: the two hops around them."""

    logits: Tensor  # (n, C) of the nodes themselves
    far_index: Tensor  # (n,) their places among the far nodes
    near: RowSlice  # nodes <- one hop
    far: RowSlice  # one hop <- two hops
    far_logits: Tensor  # (q, C)
    far_degree: Tensor  # (q,)
    far_features: RowSlice | Tensor  # (q, F)

    @classmethod
    def of(cls, out: Outputs, nodes: Tensor) -> View:
        graph = structure(out.graph)
        adjacency = graph.adjacency.to(out.logits.dtype)
        near = row_slice(adjacency, nodes, out.logits)
        far = row_slice(adjacency, near.cols, out.logits)
        position = torch.zeros(out.num_nodes, dtype=torch.long, device=nodes.device)
        position[far.cols] = torch.arange(len(far.cols), device=nodes.device)
        features = feature_rows(features_of(out), far.cols, out.logits)
        seen = out.logits[far.cols], graph.degree[far.cols], features
        return cls(out.logits[nodes], position[nodes], near, far, *seen)


def experts(view: View, w: Weights, noise: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Outputs of each expert (n, M, C or 1) and inputs of the gate (n, C + embedding)."""
    projected = view.far_features @ w["project"]  # (q, e)
    degree = w["embed"][view.far_degree.clamp(max=len(w["embed"]) - 1)]  # (q, e)
    inputs = view.far @ torch.cat([view.far_logits, projected, degree], -1)  # (r, I)
    hidden = torch.einsum("ri,mih->rmh", inputs, w["w1"] * reads(w).to(inputs)) + w["b1"]
    hidden = hidden.relu() if noise is None else noise(hidden.relu())
    gathered = (view.near @ hidden.flatten(1)).view(-1, *hidden.shape[1:])  # (n, M, h)
    outputs = torch.einsum("nmh,mhc->nmc", gathered, w["w2"]) + w["b2"]
    return outputs, torch.cat([view.logits, projected[view.far_index]], -1)


def reads(w: Weights) -> Tensor:
    """1 where an expert reads an input column, else 0."""  # (M, I, 1)
    width = w["project"].shape[1]
    columns = torch.tensor([w["w1"].shape[1] - 2 * width, width, width])
    return torch.tensor(EXPERTS).repeat_interleave(columns, 1)[:, :, None]


def scales(outputs: Tensor, gates: Tensor) -> Tensor:
    """softplus of the gated experts."""  # (n, C) or (n, 1)
    return softplus(torch.einsum("nm,nmc->nc", gates, outputs)).clamp(min=1e-3)


class ExpertMixture(Calibration):
    """Calibration fitted by `GETS`."""

    needs = Needs(edges=True, inputs=True, whole_graph=True)

    project: Tensor  # (F, e)
    embed: Tensor  # (max degree + 1, e)
    gate: Tensor  # (C + e, M)
    noise: Tensor  # (C + e, M)
    w1: Tensor  # (M, C + 2 e, h)
    b1: Tensor  # (M, h)
    w2: Tensor  # (M, h, C or 1)
    b2: Tensor  # (M, C or 1)
    top: int
    per_class: bool

    def forward(self, out: Outputs) -> Tensor:
        weights = {name: w.to(out.logits) for name, w in self.named_buffers()}
        everyone = torch.arange(out.num_nodes, device=out.logits.device)
        outputs, gate_inputs = experts(View.of(out, everyone), weights)
        gates, _ = noisy_top_k(gate_inputs, weights["gate"], weights["noise"], self.top)
        log_probs = (scales(outputs, gates) * out.logits).log_softmax(-1)
        return log_probs if self.per_class else break_ties(log_probs, out.pred)
