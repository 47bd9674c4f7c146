"""Candidate decays of the final layer: trained together as replicas, judged on validation nodes only.

A candidate's test labels are blinded before training. With a calibrator on top, each validation node is judged by a fit on the
other folds (`graphcal.study.held_out`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import stdev
from typing import Any

import torch
from torch_geometric.data import Data

from graphcal.core import Recipe, blinded
from graphcal.engine.node_order import kfold
from graphcal.lab.models import backbone_of
from graphcal.lab.training import Replica, Run, Training, default_training, train_replicas
from graphcal.lab.training.trainer import Progress
from graphcal.methods import Uncalibrated
from graphcal.metrics import Scores, mean_scores, score
from graphcal.study import held_out

FOLDS = 5


@dataclass(frozen=True)
class DecayCandidate:
    """One decay on the validation nodes, with the scores of every seed."""

    decay: float
    by_seed: tuple[Scores, ...]

    @cached_property
    def scores(self) -> Scores:
        """Means over seeds."""
        return mean_scores(self.by_seed)

    @property
    def nll_sd(self) -> float:
        return stdev(s.nll for s in self.by_seed) if len(self.by_seed) > 1 else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {"decay": self.decay, **self.scores.to_dict(), "nll_sd": self.nll_sd}


def training_or_default(backbone: Any, training: Training | None) -> Training:
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
        self.data, self.backbone, self.seeds, self.progress = data, backbone, seeds, progress
        self.after = after or Uncalibrated()
        self.training = training_or_default(backbone, training)
        self.blind = blinded(data)
        self.blind.num_classes = int(data.get("num_classes") or int(data.y.max()) + 1)
        self.nodes = int(data.val_mask.sum())
        generator = generator or torch.Generator().manual_seed(0)
        self.folds = kfold(self.nodes, FOLDS, generator)
        self.base = Replica(0).weight_decays(self.training)[1]
        self.runs: dict[float, list[Run]] = {}
        self.points: dict[float, DecayCandidate] = {}

    @property
    def curve(self) -> list[DecayCandidate]:
        """By falling decay."""
        return [self.points[decay] for decay in sorted(self.points, reverse=True)]

    def add(self, decays: Sequence[float]) -> None:
        """Train and judge the decays that are new."""
        new = [d for d in dict.fromkeys(decays) if d not in self.points]
        replicas = [Replica(seed, final_weight_decay=d) for d in new for seed in self.seeds]
        runs = train_replicas(self.blind, self.backbone, self.training, replicas, self.progress)
        val, y = self.data.val_mask, self.data.y[self.data.val_mask]
        for k, decay in enumerate(new):
            own = self.runs[decay] = runs[k * len(self.seeds) : (k + 1) * len(self.seeds)]
            seen = [held_out(run.outputs, self.after, val, self.folds) for run in own]
            self.points[decay] = DecayCandidate(decay, tuple(score(log_probs, y) for log_probs in seen))
