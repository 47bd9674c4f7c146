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
from graphcal.engine.receptive import Field
from graphcal.models import Replicas
from graphcal.training.chunks import Chunk
from graphcal.training.early_stopping import Keeper
from graphcal.training.losses import NEEDS_HIDDEN, Loss, Pass, Targets, accuracy, loss_of, nll
from graphcal.training.optimisers import StackedOptimiser
from graphcal.training.replicas import Replica
from graphcal.training.settings import Training


def fit(
    model: Replicas,
    training: Training,
    replicas: Sequence[Replica],
    passes: tuple[Field, Field],
    targets: tuple[Targets, Targets],
    chunk: Chunk,
) -> Keeper:
    """Trains the replicas in ``model``; the keeper holds their best states and histories."""
    learn, check = passes
    learn_targets, check_targets = targets
    seeds = [replica.seed for replica in replicas]
    criterion, optimiser = _criterion(model, training), StackedOptimiser(model, training, replicas)
    keeper = Keeper(model, training, len(replicas))
    places: dict[object, Tensor] = {}
    model.begin(learn_targets.y, learn_targets.weights)
    for epoch in range(training.epochs):
        done = _training_pass(model, learn, Dropout(seeds, epoch, places), training, epoch)
        loss = criterion(done, learn_targets, training)
        optimiser.step(loss.sum(), epoch)
        with torch.no_grad():
            logits = model(check)
            checked = nll(logits, check_targets)
            right = None if training.monitor == "loss" else accuracy(logits, check_targets)
        running = keeper.update(epoch, model, loss, checked, right)
        if not running.all():
            keeper.keep(running)
            optimiser.keep(running, model)
            learn.shared.forget()
            learn_targets, check_targets = learn_targets.of(running), check_targets.of(running)
            seeds = [seed for seed, goes_on in zip(seeds, running.tolist()) if goes_on]
        if not chunk.report(epoch + 1, len(seeds)):
            break
    return keeper


def _criterion(model: Replicas, training: Training) -> Loss:
    chosen = loss_of(training)
    if not model.has_own_loss:
        return chosen
    if training.loss != "ce":
        raise ValueError(f"{type(model).__name__} has a loss of its own: loss={training.loss!r} cannot replace it")
    return lambda done, targets, _: model.own_loss(done.logits, targets.y, targets.weights)


def _training_pass(model: Replicas, field: Field, drop: Dropout, training: Training, epoch: int) -> Pass:
    if training.loss not in NEEDS_HIDDEN:
        return Pass(model(field, drop), epoch)
    hidden, layer = model.representation(field, drop), model.centroids()
    if hidden is None or layer is None:
        raise ValueError(
            f"loss={training.loss!r} needs a backbone with a final linear layer; {type(model).__name__} has none"
        )
    return Pass(hidden @ layer[0] + layer[1], epoch, hidden, layer[0])
