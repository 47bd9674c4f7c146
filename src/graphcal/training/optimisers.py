"""One optimiser for a stack of replicas, with a decay of every replica's own.

    adam, sgd   g <- g + lambda w                coupled L2, what the papers call weight decay
    adamw       w <- (1 - eta lambda) w          decoupled

A decay that all replicas share goes to torch's step; the others are added here. The final layer's decay may be annealed:
lambda_K(t) runs linearly from `final_decay_from` to the replica's value.

torch's fused step rounds the numbers at the end of a tensor, fewer than a vector register holds, differently from the rest. Only
parameters whose replicas all end on a register's boundary are given to it; so no replica depends on its place in the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphcal.models import Replicas
from graphcal.training.replicas import Replica
from graphcal.training.settings import Training

REGISTER = 16  # single-precision numbers in the widest vector register in use


class StackedOptimiser:
    def __init__(self, model: Replicas, training: Training, replicas: Sequence[Replica]) -> None:
        self.training = training
        final = {id(p) for p in model.final_parameters()}
        inner = {id(p) for p in model.inner_parameters()}
        self._own: list[tuple[nn.Parameter, Tensor, float, bool]] = []  # parameter, decay (R, 1, ...), rate, annealed
        groups: list[dict[str, Any]] = []
        for p in (p for p in model.parameters() if p.requires_grad):
            kind = "final" if id(p) in final else "inner" if id(p) in inner else "other"
            decays = [_decay(replica, training, kind) for replica in replicas]
            rate = training.lr if kind != "final" or training.head_lr is None else training.head_lr
            annealed = kind == "final" and training.final_decay_from is not None
            alike = len(set(decays)) == 1 and not annealed
            groups.append({"params": [p], "lr": rate, "weight_decay": decays[0] if alike else 0.0})
            if not alike:
                self._own.append((p, p.new_tensor(decays).view(-1, *[1] * (p.dim() - 1)), rate, annealed))
        even = [g for g in groups if g["params"][0][0].numel() % REGISTER == 0]
        odd = [g for g in groups if g["params"][0][0].numel() % REGISTER != 0]
        self._torch = [_optimizer(training, _merged(some), some is even) for some in (even, odd) if some]

    def step(self, loss: Tensor, epoch: int) -> None:
        for optimizer in self._torch:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        with torch.no_grad():
            for p, decay, rate, annealed in self._own:
                decay = self._at(decay, epoch) if annealed else decay
                if self.training.optimizer == "adamw":
                    p.mul_(1 - rate * decay)
                elif p.grad is not None:
                    p.grad.addcmul_(p, decay)
        for optimizer in self._torch:
            optimizer.step()

    def keep(self, running: Tensor, model: nn.Module) -> None:
        """Go on with some of the replicas only: the model's parameters are cut, and the moments with them."""
        cut = {}
        for module in model.modules():
            for name, p in module.named_parameters(recurse=False):
                cut[p] = nn.Parameter(p.detach()[running], p.requires_grad)
                setattr(module, name, cut[p])
        for optimizer in self._torch:
            for group in optimizer.param_groups:
                for old in group["params"]:
                    state = optimizer.state.pop(old, {})
                    optimizer.state[cut[old]] = {name: _cut(value, running) for name, value in state.items()}
                group["params"] = [cut[old] for old in group["params"]]
        self._own = [(cut[p], decay[running], rate, annealed) for p, decay, rate, annealed in self._own]

    def _at(self, decay: Tensor, epoch: int) -> Tensor:
        start, part = self.training.final_decay_from, min(1.0, epoch / self.training.final_decay_epochs)
        assert start is not None
        return start + (decay - start) * part


def _cut(value: Any, running: Tensor) -> Any:
    return value[running] if isinstance(value, Tensor) and value.dim() > 0 else value


def _decay(replica: Replica, training: Training, kind: str) -> float:
    decay, final = replica.decays(training)
    if kind == "final":
        return final
    return training.inner_weight_decay if kind == "inner" and training.inner_weight_decay is not None else decay


def _merged(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups with the same rate and decay as one."""
    merged: dict[tuple[float, float], dict[str, Any]] = {}
    for group in groups:
        known = merged.setdefault((group["lr"], group["weight_decay"]), {**group, "params": []})
        known["params"] += group["params"]
    return list(merged.values())


def _optimizer(training: Training, groups: list[dict[str, Any]], even: bool) -> torch.optim.Optimizer:
    if training.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=training.lr)
    kind = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
    if even:
        try:
            return kind(groups, lr=training.lr, fused=True)
        except RuntimeError:  # not on this device
            pass
    return kind(groups, lr=training.lr, foreach=True)
