"""The best state of every replica, and when it has seen enough.

loss       the state with the lowest validation cross-entropy; stop after `patience` epochs without a lower one
accuracy   the same with the highest validation accuracy
both       GAT's rule: a state is kept when neither is worse than the best of both so far; an epoch counts as progress when
           either is not worse
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcal.training.replicas import History
from graphcal.training.settings import Training


class Keeper:
    """Follows R replicas; ``alive`` are those that still train, in the order of the stack."""

    def __init__(self, model: nn.Module, training: Training, replicas: int) -> None:
        self.training = training
        self.alive = torch.arange(replicas)
        self.histories = [History() for _ in range(replicas)]
        self._names = [name for name, _ in model.named_parameters()]
        self._best = [p.detach().clone() for p in model.parameters()]
        self._loss = torch.full((replicas,), torch.inf)
        self._accuracy = torch.full((replicas,), -1.0)
        self._progress = torch.zeros(replicas, dtype=torch.long)  # the last epoch with progress

    def update(self, epoch: int, model: nn.Module, train_loss: Tensor, loss: Tensor, accuracy: Tensor | None) -> Tensor:
        """Notes an epoch of the replicas alive. Returns which of them go on."""  # (len(alive),) bool
        loss = loss.cpu()
        for r, trained, checked in zip(self.alive.tolist(), train_loss.tolist(), loss.tolist()):
            self.histories[r].train_loss.append(trained)
            self.histories[r].val_loss.append(checked)
        better, progress = self._judge(loss, None if accuracy is None else accuracy.cpu())
        self._keep(epoch, model, better)
        self._progress[self.alive[progress]] = epoch
        patience = self.training.patience
        if patience is None:
            return torch.ones_like(progress)
        return epoch - self._progress[self.alive] < patience

    def keep(self, running: Tensor) -> None:
        self.alive = self.alive[running]

    def states(self) -> list[dict[str, Tensor]]:
        """The best state of every replica, each with a replica axis of one."""
        count = len(self.histories)
        return [{name: best[r : r + 1] for name, best in zip(self._names, self._best)} for r in range(count)]

    def _judge(self, loss: Tensor, accuracy: Tensor | None) -> tuple[Tensor, Tensor]:
        """(the state is to be kept, there was progress)"""
        alive = self.alive
        if accuracy is None:
            better = loss < self._loss[alive]
            self._loss[alive[better]] = loss[better]
            return better, better
        if self.training.monitor == "accuracy":
            better = accuracy > self._accuracy[alive]
            self._accuracy[alive[better]] = accuracy[better]
            return better, better
        lower, higher = loss <= self._loss[alive], accuracy >= self._accuracy[alive]
        self._loss[alive] = torch.minimum(loss, self._loss[alive])
        self._accuracy[alive] = torch.maximum(accuracy, self._accuracy[alive])
        return lower & higher, lower | higher

    def _keep(self, epoch: int, model: nn.Module, better: Tensor) -> None:
        if not better.any():
            return
        everything = bool(better.all()) and len(self.alive) == len(self.histories)
        chosen = [(r, i) for i, r in enumerate(self.alive.tolist()) if better[i]]
        for r, _ in chosen:
            self.histories[r].best_epoch = epoch
        with torch.no_grad():
            for best, p in zip(self._best, model.parameters()):
                if everything:
                    best.copy_(p)
                else:
                    for r, i in chosen:
                        best[r].copy_(p[i])
