"""Candidate decays of the final layer: trained together as replicas, judged on validation nodes only.

A candidate's test labels are blinded before training. With a calibrator on top, each validation node is judged by a fit on the
other folds, because a calibrator that has seen a node's label says little about how it does without.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal import metrics
from graphcal.core import Outputs, Recipe, blinded
from graphcal.engine.node_order import kfold
from graphcal.models import backbone_of
from graphcal.training import Replica, Run, Training, default_training, train_replicas

Progress = Callable[[int, int, int], None]  # epoch, epochs at most, replicas still training
FOLDS = 5


@dataclass(frozen=True)
class Candidate:
    """One decay on the validation nodes: means over seeds."""

    decay: float
    nll: float
    ece: float
    accuracy: float
    conf: float
    nll_sd: float

    @property
    def gap(self) -> float:
        """Accuracy minus mean confidence, as `metrics.signed_gap`: positive is under-confident."""
        return self.accuracy - self.conf


def settled(backbone: Any, training: Training | None) -> Training:
    """The settings that `train` would use."""
    return training or default_training(backbone_of(backbone))


class Candidates:
    """The decays tried so far: trained with all seeds as replicas, judged on the validation nodes, kept with their runs."""

    def __init__(
        self,
        data: Data,
        backbone: Any,
        training: Training | None,
        seeds: list[int],
        after: Recipe | None,
        generator: torch.Generator | None,
        progress: Progress | None,
    ) -> None:
        self.data, self.backbone, self.seeds, self.after, self.progress = data, backbone, seeds, after, progress
        self.training = settled(backbone, training)
        self.blind = blinded(data)
        self.blind.num_classes = int(data.get("num_classes") or int(data.y.max()) + 1)
        self.nodes = int(data.val_mask.sum())
        generator = generator or torch.Generator().manual_seed(0)
        self.folds = kfold(self.nodes, FOLDS, generator)
        self.base = Replica(0).decays(self.training)[1]
        self.runs: dict[float, list[Run]] = {}
        self.points: dict[float, Candidate] = {}

    @property
    def curve(self) -> list[Candidate]:
        return [self.points[decay] for decay in sorted(self.points, reverse=True)]

    def add(self, decays: Sequence[float]) -> None:
        new = [d for d in dict.fromkeys(decays) if d not in self.points]
        replicas = [Replica(seed, final_weight_decay=d) for d in new for seed in self.seeds]
        runs = train_replicas(self.blind, self.backbone, self.training, replicas, self.progress)
        for k, decay in enumerate(new):
            self.runs[decay] = runs[k * len(self.seeds) : (k + 1) * len(self.seeds)]
            self.points[decay] = self._judged(decay)

    def _judged(self, decay: float) -> Candidate:
        y = self.data.y[self.data.val_mask]
        seen = [held_out(run.outputs, self.data.val_mask, self.after, self.folds) for run in self.runs[decay]]
        nlls = [metrics.nll(log_probs, y) for log_probs in seen]
        return Candidate(
            decay,
            statistics.fmean(nlls),
            statistics.fmean(metrics.ece(log_probs, y) for log_probs in seen),
            statistics.fmean(metrics.accuracy(log_probs, y) for log_probs in seen),
            statistics.fmean(float(log_probs.max(-1).values.exp().mean()) for log_probs in seen),
            statistics.stdev(nlls) if len(nlls) > 1 else 0.0,
        )


def held_out(out: Outputs, val: Tensor, after: Recipe | None, parts: list[Tensor]) -> Tensor:
    """Log-probabilities of the validation nodes, each calibrated by a fit on the other folds."""  # (n, C)
    if after is None:
        return out.logits[val].log_softmax(-1)
    nodes = val.nonzero().flatten()
    log_probs = torch.empty(len(nodes), out.num_classes, dtype=out.logits.dtype)
    for part in parts:
        on = val.clone()
        on[nodes[part]] = False
        log_probs[part] = after.fit(out, on=on)(out).detach()[nodes[part]]
    return log_probs
