"""The map SCAR fits: every node's logits scaled and pulled towards what the model says of its predicted centroid.

    z'_n = s_n z_n + w_n t_n        t_n = targets[y_hat_n],   s_n = design_n . scale,   w_n = design_n . pull

with s_n = 1 - w_n in the paper's form (`blend`). Training nodes are left alone. With `keep_predictions` each w_n is capped
where the lead of the predicted class over some other class would vanish.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphcal.core import Calibration, Outputs
from graphcal.engine.node_features import node_facts, standardised
from graphcal.graphs import UNREACHABLE, structure

HOPS = 4  # distances 1, 2, 3 and more, unreachable
SMALLEST_SCALE = 1e-3  # of s: logits are never turned over


def groups(out: Outputs, form: str) -> Tensor:
    """Which weight a node takes, one-hot: all one, V_F or V_S, or by distance from the training set."""  # (N, K)
    facts = structure(out.graph)
    if form == "shared":
        return torch.ones(out.num_nodes, 1, dtype=torch.double, device=out.logits.device)
    if form == "side":
        return torch.stack([facts.next_to_training, ~facts.next_to_training], -1).double()
    hop = torch.where(facts.hops == UNREACHABLE, HOPS, facts.hops.clamp(1, HOPS - 1)) - 1
    return one_hot(hop, HOPS).double()


def with_constant(facts: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(facts[:, :1]), facts], 1)


def design(out: Outputs, form: str, centre: Tensor, spread: Tensor) -> Tensor:
    """What s and w are linear in: the groups, or a constant and the standardised node facts."""  # (N, K)
    if form != "graph":
        return groups(out, form)
    return with_constant(standardised(node_facts(out), centre.double(), spread.double()))


def largest_safe_weight(weight: Tensor, margin: Tensor, change: Tensor) -> Tensor:
    """The weight nearest to ``weight`` (N,) that keeps margin + weight * change > 0 for every other class.

    margin (N, C) >= 0: lead of the predicted class over each class; change (N, C): what one unit of weight adds to it.
    """
    loss = -change * weight.sign()[:, None]  # lead lost for each unit of |weight|
    room = torch.where(loss > 0, margin / loss.clamp(min=torch.finfo(loss.dtype).tiny), torch.inf)
    cap = room.min(-1).values * (1 - 1e-3)  # keep a thousandth of the lead: rounding must not decide
    return torch.where(weight.abs() > cap, weight.sign() * cap, weight)


class CentroidPull(Calibration):
    scale: Tensor  # (K,) or (1,): coefficients of s
    pull: Tensor  # (K,): coefficients of w
    targets: Tensor  # (C, C): t of each class, one a row
    centre: Tensor  # (8,) or (0,): standardisation of the node facts
    spread: Tensor
    train_nodes: Tensor
    form: str  # side, shared, hop, graph
    blend: bool
    keep_predictions: bool
    note: str
    graph_nodes: int

    @property
    def alpha(self) -> float:
        """w next to the training set, where the form has one."""
        return float(self.pull[0])

    @property
    def beta(self) -> float:
        """w away from the training set (the second hop, where weights go by hop)."""
        return float(self.pull[min(1, len(self.pull) - 1)])

    def forward(self, out: Outputs) -> Tensor:
        log_probs, _ = self.moved(out.logits, out.pred, self._design(out))
        train = structure(out.graph).train_mask
        return torch.where(train[:, None], out.logits.log_softmax(-1), log_probs)

    def weights(self, out: Outputs) -> Tensor:
        """w of every node, after the cap; 0 on the training set."""  # (N,)
        _, w = self.moved(out.logits, out.pred, self._design(out))
        return torch.where(structure(out.graph).train_mask, torch.zeros_like(w), w)

    def capped(self, out: Outputs) -> Tensor:
        """The nodes whose weight is held back, because with all of it their prediction would change."""  # (N,) bool
        wanted = (self._design(out) @ self.pull.double()).to(out.logits)
        return (self.weights(out) != wanted) & ~structure(out.graph).train_mask

    def moved(self, z: Tensor, pred: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (n, C) and weights w (n,) of nodes with logits z, predictions pred and these rows of the design."""
        w = (columns @ self.pull.double()).to(z)
        s = columns @ self.scale.double() if self.form == "graph" else self.scale.expand(len(z))
        s = s.to(z).clamp(min=SMALLEST_SCALE)[:, None]
        push = self.targets.to(z)[pred]
        push = push - z if self.blend else push
        if not self.keep_predictions:
            return (s * z + w[:, None] * push).log_softmax(-1), w
        own = pred[:, None]
        w = largest_safe_weight(w, s * (z.gather(-1, own) - z), push.gather(-1, own) - push)
        log_probs = (s * z + w[:, None] * push).log_softmax(-1)
        same = (
            log_probs.argmax(-1) == pred
        )  # a lead of a few ulps can still be rounded away: such a node keeps its logits
        return torch.where(same[:, None], log_probs, z.log_softmax(-1)), w

    def _design(self, out: Outputs) -> Tensor:
        return design(out, self.form, self.centre, self.spread)
