"""The best state of every replica, and when it has seen enough.

loss       the state with the lowest validation cross-entropy; stop after `patience` epochs without a lower one
refinement the same after the best temperature of the epoch: what calibration could not repair (arXiv:2501.19195)
accuracy   the same with the highest validation accuracy
both       GAT's rule: a state is kept when neither is worse than the best of both so far; an epoch counts as progress when
           either is not worse
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphcal.training.runs import History
from graphcal.training.settings import Training


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
