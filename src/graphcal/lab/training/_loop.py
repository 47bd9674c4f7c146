"""The training loop: many replicas of one backbone, trained as one and stopped each on its own.

    for each epoch:   loss of the training nodes -> gradients -> step;   loss of the validation nodes -> keep the best, or stop

Replica k draws its initial weights and its dropout from its own seed alone, and no arithmetic mixes replicas, so it gives what
the same run trained alone gives. `EarlyStopping` holds the best state of every replica, and knows when it has seen enough:

loss       the state with the lowest validation cross-entropy; stop after `patience` epochs without a lower one
refinement the same after the best temperature of the epoch: what calibration could not repair (arXiv:2501.19195)
accuracy   the same with the highest validation accuracy
both       GAT's rule: a state is kept when neither is worse than the best of both so far; an epoch counts as progress when
           either is not worse

Adam for a stack of replicas, with a weight decay of every replica's own.

    g <- g + lambda w        coupled L2, what the papers call weight decay

A decay that all replicas share goes to torch's step; the others are added to the gradient here.

torch's fused step rounds the numbers at the end of a tensor, fewer than a vector register holds, differently from the rest. Only
parameters whose replicas all end on a register's boundary are given to it; so no replica depends on its place in the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphcal.lab.engine.layers import Dropout
from graphcal.lab.engine.receptive import ReceptiveField
from graphcal.lab.models import Replicas
from graphcal.lab.training.losses import CrossEntropy, Targets, accuracy, nll, refined_nll
from graphcal.lab.training.settings import Replica, Training

if TYPE_CHECKING:
    from graphcal.lab.training.trainer import Chunk

REGISTER = 16  # single-precision numbers in the widest vector register in use


class StackedAdam:
    def __init__(self, model: Replicas, training: Training, replicas: Sequence[Replica]) -> None:
        final, own_decay = {id(p) for p in model.final_parameters()}, model.own_weight_decay()
        final_lr = training.lr if training.final_lr is None else training.final_lr
        self._differing: list[tuple[nn.Parameter, Tensor]] = []  # parameter, decay of each replica (R, 1, ...)
        groups: list[dict[str, Any]] = []
        for p in (p for p in model.parameters() if p.requires_grad):
            is_final = id(p) in final
            pairs = [replica.weight_decays(training) for replica in replicas]
            decays = [own_decay.get(p, final_decay if is_final else decay) for decay, final_decay in pairs]
            alike = len(set(decays)) == 1
            lr = final_lr if is_final else training.lr
            groups.append({"params": [p], "lr": lr, "weight_decay": decays[0] if alike else 0.0})
            if not alike:
                self._differing.append((p, p.new_tensor(decays).view(-1, *[1] * (p.dim() - 1))))
        aligned = [g for g in groups if g["params"][0][0].numel() % REGISTER == 0]
        unaligned = [g for g in groups if g["params"][0][0].numel() % REGISTER != 0]
        self._optimizers = [_adam(_merged(some), fused=some is aligned) for some in (aligned, unaligned) if some]

    def step(self, loss: Tensor) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        with torch.no_grad():
            for p, decay in self._differing:
                if p.grad is not None:
                    p.grad.addcmul_(p, decay)
        for optimizer in self._optimizers:
            optimizer.step()

    def keep(self, going_on: Tensor, model: nn.Module) -> None:
        """Go on with some of the replicas only: the model's parameters are cut, and the moments with them."""
        cut: dict[Tensor, nn.Parameter] = {}
        for module in model.modules():
            for name, p in module.named_parameters(recurse=False):
                cut[p] = nn.Parameter(p.detach()[going_on], p.requires_grad)
                setattr(module, name, cut[p])
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for old in group["params"]:
                    state = optimizer.state.pop(old, {})
                    optimizer.state[cut[old]] = {name: _cut(value, going_on) for name, value in state.items()}
                group["params"] = [cut[old] for old in group["params"]]
        self._differing = [(cut[p], decay[going_on]) for p, decay in self._differing]


def _cut(value: Any, going_on: Tensor) -> Any:
    return value[going_on] if isinstance(value, Tensor) and value.dim() > 0 else value


def _merged(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups with the same rate and decay as one."""
    merged: dict[tuple[float, float], dict[str, Any]] = {}
    for group in groups:
        same = merged.setdefault((group["lr"], group["weight_decay"]), {**group, "params": []})
        same["params"] += group["params"]
    return list(merged.values())


def _adam(groups: list[dict[str, Any]], fused: bool) -> torch.optim.Adam:
    if fused:
        try:
            return torch.optim.Adam(groups, fused=True)
        except RuntimeError:  # not on this device
            pass
    return torch.optim.Adam(groups, foreach=True)


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
    """Losses and accuracies by epoch, until the replica stopped."""

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
