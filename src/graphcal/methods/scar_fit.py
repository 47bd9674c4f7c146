"""How SCAR's parameters are found: validation NLL as a function that is linear in them, and its solutions.

    z'_n = base_n + terms_n @ theta        s and w linear in the columns of a design: groups of nodes, or facts about them

Each solution comes with its leave-one-out NLL; one that would not lower the NLL of unseen nodes is dropped for the identity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphcal.core import FinalLayer, Outputs, training_set_of
from graphcal.engine.leave_one_out import leave_one_out_logits
from graphcal.engine.linear import LinearFit, fit_linear, nll_of, platt_targets, soft_nll
from graphcal.engine.node_features import node_facts_of, standardised
from graphcal.engine.ridge_path import best_ridge
from graphcal.methods.centroid_pull import CentroidPull, groups, with_constant
from graphcal.metrics import ece

if TYPE_CHECKING:
    from graphcal.methods.scar import SCAR

FEW_NODES = 30  # fitting nodes: fewer cannot carry a weight of their own
ENOUGH_PER_PARAMETER = 10  # fitting nodes: with fewer, the graph-aware form keeps to its constants
RIDGES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # of graph-aware SCAR, on mean NLL with columns of unit size
GRID = (0.0, *(m * 10.0**e for e in range(-8, -2) for m in (1.0, 2.0, 5.0)))  # to 5e-3: what the paper's tables span


def final_layer_of(out: Outputs) -> FinalLayer:
    if out.final is None:
        raise ValueError(
            "SCAR needs the final layer, but only logits are known: use observe(model, data), or "
            "Outputs.from_logits(logits, data, weight, bias) with the last layer's weight (C, D)"
        )
    return out.final


def centroid_logits(out: Outputs, centroids: str = "weights") -> Tensor:
    """t of each class: what the final layer says of that class's centroid."""  # (C, C), one row for each class
    final = final_layer_of(out)
    if centroids == "weights":
        return final.gram.T + final.bias
    if out.hidden is None or final.weight is None or out.graph.get("train_mask") is None:
        raise ValueError("centroids='means' needs the training nodes' representations: use observe(model, data)")
    train, y = out.graph.train_mask, out.graph.y
    means = torch.stack([out.hidden[train & (y == c)].mean(0) for c in range(out.num_classes)])  # (C, D)
    if not torch.isfinite(means).all():
        missing = [c for c in range(out.num_classes) if not (train & (y == c)).any()]
        raise ValueError(f"centroids='means' needs a training node of every class; classes {missing} have none")
    return means @ final.weight.T + final.bias


@dataclass(frozen=True)
class Solution:
    scale: Tensor  # coefficients of s
    pull: Tensor  # coefficients of w
    unseen_nll: float  # leave-one-out NLL on the fitting nodes


class Problem:
    """One fit: the NLL of the fitting nodes as a function of theta, z' = base + terms @ theta, and its solutions."""

    def __init__(self, recipe: SCAR, out: Outputs, on: Tensor) -> None:
        self.recipe, self.out, self.on = recipe, out, on
        self.form = "graph" if recipe.graph else recipe.per
        self.blend = not (recipe.temperature or recipe.graph)
        self.targets = centroid_logits(out, recipe.centroids)
        self.y = out.graph.y[on]
        self.z = out.logits[on].double()  # (n, C)
        self.t = self.targets.double()[out.pred[on]]  # (n, C)
        self.target = platt_targets(self.y, self.z, self.z[:, :, None])  # (n, C) the labels, smoothed if all are right
        self.centre, self.spread = torch.zeros(0), torch.ones(0)
        if self.form == "graph":
            facts = node_facts_of(out, on.nonzero().flatten())
            self.centre, self.spread = facts.mean(0), facts.std(0, correction=0)
            self.spread = torch.where(self.spread > 1e-6, self.spread, torch.ones_like(self.spread))
            self.design = with_constant(standardised(facts, self.centre, self.spread))  # (n, K)
        else:
            self.design = groups(out, self.form)[on]

    def terms(self, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(base, terms, start) when w is linear in ``columns`` (n, K): s comes first where it is free."""
        push = self.t - self.z if self.blend else self.t
        pulls = columns[:, None, :] * push[:, :, None]
        start = self.z.new_zeros(columns.shape[1])
        if self.blend:
            return self.z, pulls, start
        return (
            torch.zeros_like(self.z),
            torch.cat([self.z[:, :, None], pulls], -1),
            torch.cat([start.new_ones(1), start]),
        )

    def solution(self, base: Tensor, terms: Tensor, theta: Tensor, ridge: Tensor | None = None) -> Solution:
        ridge = torch.zeros_like(theta) if ridge is None else ridge
        unseen = soft_nll(leave_one_out_logits(base, terms, self.target, theta, ridge), self.target)
        split = 0 if self.blend else len(theta) // 2 if self.form == "graph" else 1
        scale = theta[:split] if split else theta.new_ones(1)
        return Solution(scale, theta[split:], float(unseen))

    def exact(self) -> Solution:
        form = {"graph": self._graph_aware, "hop": self._per_hop}.get(self.form, self._plain)
        with torch.inference_mode():  # hundreds of small operations: nothing of them is recorded for a gradient
            solved = form()
        return replace(solved, scale=solved.scale.clone(), pull=solved.pull.clone())

    def _plain(self) -> Solution:
        """One weight, or one on each side of the training set; a side with few fitting nodes shares the other's."""
        given = [self.recipe.alpha, self.recipe.beta][: self.design.shape[1]] if self.form == "side" else [None]
        free = [k for k, value in enumerate(given) if value is None]
        fixed = self.z.new_tensor([value or 0.0 for value in given])
        shared = len(free) > 1 and bool(self.design.sum(0).min() < FEW_NODES)
        columns = self.design.sum(1, keepdim=True) if shared else self.design[:, free]
        base, terms, start = self.terms(columns)
        base = base + (self.design @ fixed)[:, None] * (self.t - self.z if self.blend else self.t)
        solved = self.solution(base, terms, fit_linear(base, terms, self.y, start=start))
        pull = fixed.clone()
        pull[list(range(len(given))) if shared else free] = solved.pull
        return replace(solved, pull=pull)

    def _per_hop(self) -> Solution:
        """One weight for each distance, shrunk to the pooled one as if FEW_NODES more nodes had spoken for it."""
        base, terms, start = self.terms(self.design.sum(1, keepdim=True))
        pooled = fit_linear(base, terms, self.y, start=start)
        p, push = (base + terms @ pooled).softmax(-1), terms[:, :, -1]
        curvature = ((p * push.square()).sum(-1) - (p * push).sum(-1).square()).mean()
        base, terms, start = self.terms(self.design)
        hops = self.design.shape[1]
        start = torch.cat([pooled[:-1], pooled[-1:].repeat(hops)])
        ridge = torch.cat([torch.zeros_like(pooled[:-1]), (curvature * FEW_NODES / len(self.y)).repeat(hops)])
        return self.solution(base, terms, fit_linear(base, terms, self.y, ridge, start), ridge)

    def _graph_aware(self) -> Solution:
        """s and w linear in the facts; the ridge towards constants is the one with the least leave-one-out NLL."""
        k = self.design.shape[1]
        base = torch.zeros_like(self.z)
        terms = torch.cat([self.design[:, None, :] * v[:, :, None] for v in (self.z, self.t)], -1)  # (n, C, 2K)
        size = (terms - terms.mean(1, keepdim=True)).square().mean((0, 1)).sqrt().clamp(min=1e-12)
        terms = terms / size
        constants = [0, k]
        centre = torch.zeros_like(size)
        centre[0] = size[0]
        plain = LinearFit(base, terms[:, :, constants], self.y, centre[constants])
        centre[constants] = plain.minimiser(precision=1e-8)  # what the ridge draws to: no digit of it matters
        shrunk = torch.ones_like(size)
        shrunk[constants] = 0.0
        if len(self.y) < ENOUGH_PER_PARAMETER * 2 * k:
            solved = self.solution(base, terms[:, :, constants], centre[constants])
            return Solution(centre[:k] / size[:k], centre[k:] / size[k:], solved.unseen_nll)
        chosen = best_ridge(terms, self.y, self.target, centre, shrunk, RIDGES)
        theta = chosen.theta / size
        return Solution(theta[:k], theta[k:], chosen.unseen_nll)

    def on_grid(self) -> Solution:
        """The paper's search: every alpha < beta of the grid, the best on the validation nodes."""
        pairs = torch.tensor([(a, b) for a in GRID for b in GRID if a < b], dtype=torch.double)
        losses = []
        for w in (self.design @ pairs.T).T:
            log_probs = (self.z + w[:, None] * (self.t - self.z)).log_softmax(-1)
            losses.append(
                float(nll_of(log_probs, self.y)) if self.recipe.criterion == "nll" else ece(log_probs, self.y)
            )
        return Solution(torch.ones(1), pairs[min(range(len(pairs)), key=losses.__getitem__)], float("-inf"))

    def calibration(self, solved: Solution, note: str = "") -> tuple[CentroidPull, float]:
        """The fitted map, and its NLL on the fitting nodes with the cap included."""
        like = self.out.logits
        fitted = CentroidPull(
            scale=solved.scale.to(like),
            pull=solved.pull.to(like),
            targets=self.targets.to(like),
            centre=self.centre.to(like),
            spread=self.spread.to(like),
            form=self.form,
            blend=self.blend,
            keep_predictions=self.recipe.keep_predictions,
            note=note,
            **training_set_of(self.out),
        )
        log_probs, _ = fitted.moved(like[self.on], self.out.pred[self.on], self.design)
        return fitted, float(soft_nll(log_probs.double(), self.target))

    def unless_worse(self, solved: Solution) -> CentroidPull:
        """The fit, or the identity where the fit is not better than the model itself, on unseen nodes or on these."""
        own = float(soft_nll(self.z, self.target))
        fitted, after = self.calibration(solved)
        if solved.unseen_nll < own and after <= own:
            return fitted
        nothing = Solution(torch.zeros_like(solved.scale), torch.zeros_like(solved.pull), own)
        nothing.scale[0] = 1.0
        would = max(solved.unseen_nll, after)
        return self.calibration(nothing, f"left as it was: NLL on unseen nodes would go from {own:.4f} to {would:.4f}")[
            0
        ]
