"""Adam for a stack of replicas, with a weight decay of every replica's own.

    g <- g + lambda w        coupled L2, what the papers call weight decay

A decay that all replicas share goes to torch's step; the others are added to the gradient here.

torch's fused step rounds the numbers at the end of a tensor, fewer than a vector register holds, differently from the rest. Only
parameters whose replicas all end on a register's boundary are given to it; so no replica depends on its place in the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphcal.lab.models import Replicas
from graphcal.lab.training.settings import Replica, Training

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
