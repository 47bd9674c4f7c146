"""The training loop: many replicas of one backbone, trained as one and stopped each on its own.

    for each epoch:   loss of the training nodes -> gradients -> step;   loss of the validation nodes -> keep the best, or stop

Replica k draws its initial weights and its dropout from its own seed alone, and no arithmetic mixes replicas, so it gives what
the same run trained alone gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphcal.engine.dropout import Dropout
from graphcal.engine.receptive import ReceptiveField
from graphcal.models import Replicas
from graphcal.training.early_stopping import EarlyStopping
from graphcal.training.losses import CrossEntropy, Targets, accuracy, nll, refined_nll
from graphcal.training.runs import Replica
from graphcal.training.settings import Training
from graphcal.training.stacked_adam import StackedAdam
from graphcal.training.threads import Chunk


def fit(
    model: Replicas,
    training: Training,
    replicas: Sequence[Replica],
    fields: tuple[ReceptiveField, ReceptiveField],
    targets: tuple[Targets, Targets],
    chunk: Chunk,
) -> EarlyStopping:
    """Trains the replicas in ``model`` on the first field, stops on the second; returns best states and histories."""
    train_field, val_field = fields
    train_targets, val_targets = targets
    _check_loss(model, training)
    seeds = [replica.seed for replica in replicas]
    optimizer, stopping = StackedAdam(model, training, replicas), EarlyStopping(model, training, len(replicas))
    places: dict[object, Tensor] = {}
    model.on_train_start(train_targets.y, train_targets.weights)
    for epoch in range(training.epochs):
        logits = model(train_field, Dropout(seeds, epoch, places))
        if model.has_own_loss:
            loss = model.loss(logits, train_targets.y, train_targets.weights)
        else:
            loss = training.loss(logits, train_targets, epoch)
        optimizer.step(loss.sum())
        with torch.no_grad():
            logits = model(val_field)
            val_loss = (refined_nll if training.monitor == "refinement" else nll)(logits, val_targets)
            by_loss = training.monitor in ("loss", "refinement")
            val_accuracy = None if by_loss else accuracy(logits, val_targets)
        going_on = stopping.update(epoch, model, loss, val_loss, val_accuracy)
        if not going_on.all():
            stopping.keep(going_on)
            optimizer.keep(going_on, model)
            train_field.first_products.clear()
            train_targets, val_targets = train_targets.of(going_on), val_targets.of(going_on)
            seeds = [seed for seed, goes_on in zip(seeds, going_on.tolist()) if goes_on]
        if not chunk.report(epoch + 1, len(seeds)):
            break
    return stopping


def _check_loss(model: Replicas, training: Training) -> None:
    if model.has_own_loss and not isinstance(training.loss, CrossEntropy):
        raise ValueError(f"{type(model).__name__} has a loss of its own: {training.loss!r} cannot replace it")
