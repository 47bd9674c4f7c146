"""Spend validation labels on training: `retrain`, for a model that may be trained again.

replica k   trained on the training nodes and all validation nodes but those of fold k, which stop it and fit its temperature
p           1/K sum_k softmax(z_k / T_k)
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import Calibration, Needs, Outputs, fitted_on, fitting_nodes
from graphcal.lab.models import BACKBONES, Backbone
from graphcal.lab.training.cross_fitting import log_mean, stratified_folds
from graphcal.lab.training.settings import Replica, Training
from graphcal.lab.training.trainer import train_replicas
from graphcal.methods.temperature import TemperatureScaling


def retrain(
    data: Data, backbone: str | Backbone = "gcn", training: Training | None = None, folds: int = 5, seed: int = 0
) -> Outputs:
    """Train one replica per fold of the validation nodes on all labels but that fold, and average their probabilities.

    Each replica has a temperature, fitted on the fold that it was not trained on. The logits of the result are log p.

    >>> import graphcal
    >>> data = graphcal.lab.synthetic(600, seed=0)
    >>> graphcal.lab.retrain(data, training=graphcal.lab.Training(epochs=20), folds=3)
    Outputs(600 nodes, 5 classes)
    """
    nodes = data.val_mask.nonzero().flatten()
    if not 2 <= folds <= len(nodes):
        raise ValueError(f"folds must be from 2 to the number of validation nodes, {len(nodes)}; got {folds}.")
    fold = stratified_folds(data.y, data.train_mask, nodes, folds, seed)
    replicas = []
    for k in range(folds):
        left_out = torch.zeros_like(data.val_mask)
        left_out[nodes[fold == k]] = True
        replicas.append(Replica(seed + k, train_mask=data.train_mask | data.val_mask & ~left_out, val_mask=left_out))
    outputs = [run.outputs for run in train_replicas(data, backbone, training, replicas)]
    tempered = [TemperatureScaling().fit(out, on=out.graph.val_mask)(out) for out in outputs]
    return Outputs(log_mean(torch.stack(tempered)), data)


@dataclass(frozen=True)
class Retraining:
    """`retrain` as a row of the bench, beside calibrators: ``on`` takes the place of the validation nodes."""

    backbone: str = "gcn"
    architecture: Mapping[str, Any] = field(default_factory=dict)  # fields of the backbone
    training: Mapping[str, Any] = field(default_factory=dict)  # fields of `Training`
    folds: int = 5
    seed: int = 0

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> Retrained:
        """Train anew on the training nodes and on ``on``; ``stop`` is not used."""
        data = copy.copy(out.graph)
        data.val_mask = fitting_nodes(out, on)
        backbone = BACKBONES[self.backbone](**self.architecture)
        again = retrain(data, backbone, Training.from_dict(self.training), self.folds, self.seed)
        return Retrained(predictions=again.logits, **fitted_on(out, on))


class Retrained(Calibration):
    """Log-probabilities of other models, for the graph that they were trained on."""

    needs = Needs(same_graph=True, whole_graph=True)
    predictions: Tensor  # (N, C)

    def forward(self, out: Outputs) -> Tensor:
        return self.predictions
