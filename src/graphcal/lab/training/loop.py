"""The training loop: many replicas of one backbone, trained as one and stopped each on its own.

    for each epoch:   loss of the training nodes -> gradients -> step;   loss of the validation nodes -> keep the best, or stop

Replica k draws its initial weights and its dropout from its own seed alone, and no arithmetic mixes replicas, so it gives what
the same run trained alone gives. `EarlyStopping` holds the best state of every replica, and knows when it has seen enough:

loss       the state with the lowest validation cross-entropy; stop after `patience` epochs without a lower one
refinement the same after the best temperature of the epoch: what calibration could not repair (arXiv:2501.19195)
accuracy   the same with the highest validation accuracy
both       GAT's rule: a state is kept when neither is worse than the best of both so far; an epoch counts as progress when
           either is not worse
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from graphcal.lab.engine.dropout import Dropout
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.models import Replicas
from graphcal.lab.training.losses import CrossEntropy, Targets, accuracy, nll, refined_nll
from graphcal.lab.training.settings import Replica, Training
from graphcal.lab.training.stacked_adam import StackedAdam
from graphcal.lab.training.threads import Chunk


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


@dataclass
class History:
    """What happened, epoch by epoch, until the replica stopped."""

    train_loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    best_epoch: int = -1  # counted from 0; the state after this epoch is the one returned

    @property
    def epochs(self) -> int:
        return len(self.val_loss)


class EarlyStopping:
    """Follows R replicas; ``running`` are the numbers of those that still train, in the order of the stack."""

    def __init__(self, model: nn.Module, training: Training, replicas: int) -> None:
        self.patience, self.monitor = training.patience, training.monitor
        self.running = torch.arange(replicas)
        self.histories = [History() for _ in range(replicas)]
        self._names = [name for name, _ in model.named_parameters()]
        self._best = [p.detach().clone() for p in model.parameters()]
        self._loss = torch.full((replicas,), torch.inf)
        self._accuracy = torch.full((replicas,), -1.0)
        self._last_progress = torch.zeros(replicas, dtype=torch.long)  # epoch

    def update(
        self, epoch: int, model: nn.Module, train_loss: Tensor, val_loss: Tensor, val_accuracy: Tensor | None
    ) -> Tensor:
        """Notes an epoch of the running replicas. Returns which of them go on."""  # (len(running),) bool
        val_loss = val_loss.cpu()
        for r, trained, validated in zip(self.running.tolist(), train_loss.tolist(), val_loss.tolist()):
            self.histories[r].train_loss.append(trained)
            self.histories[r].val_loss.append(validated)
        better, progress = self._compare(val_loss, None if val_accuracy is None else val_accuracy.cpu())
        self._store(epoch, model, better)
        self._last_progress[self.running[progress]] = epoch
        if self.patience is None:
            return torch.ones_like(progress)
        return epoch - self._last_progress[self.running] < self.patience

    def keep(self, going_on: Tensor) -> None:
        """Go on with some of the running replicas only; ``going_on`` (len(running),) bool."""
        self.running = self.running[going_on]

    def best_states(self) -> list[dict[str, Tensor]]:
        """The best state of every replica, each with a replica axis of one."""
        count = len(self.histories)
        return [{name: best[r : r + 1] for name, best in zip(self._names, self._best)} for r in range(count)]

    def _compare(self, loss: Tensor, accuracy: Tensor | None) -> tuple[Tensor, Tensor]:
        """(the state is the best so far, there was progress)"""
        running = self.running
        if accuracy is None:
            better = loss < self._loss[running]
            self._loss[running[better]] = loss[better]
            return better, better
        if self.monitor == "accuracy":
            better = accuracy > self._accuracy[running]
            self._accuracy[running[better]] = accuracy[better]
            return better, better
        lower, higher = loss <= self._loss[running], accuracy >= self._accuracy[running]
        self._loss[running] = torch.minimum(loss, self._loss[running])
        self._accuracy[running] = torch.maximum(accuracy, self._accuracy[running])
        return lower & higher, lower | higher

    def _store(self, epoch: int, model: nn.Module, better: Tensor) -> None:
        """Keep the state of the replicas that are better than ever."""
        if not better.any():
            return
        all_of_them = bool(better.all()) and len(self.running) == len(self.histories)
        places = [(r, i) for i, r in enumerate(self.running.tolist()) if better[i]]
        for r, _ in places:
            self.histories[r].best_epoch = epoch
        with torch.no_grad():
            for best, p in zip(self._best, model.parameters()):
                if all_of_them:
                    best.copy_(p)
                else:
                    for r, i in places:
                        best[r].copy_(p[i])
