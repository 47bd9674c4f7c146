"""Several processes that train one model together (torchrun, gloo): who takes what, and the sums over all.

A process group is the caller's (``torch.distributed.init_process_group``); without one there is one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn


@dataclass(frozen=True)
class ProcessGroup:
    """``size`` processes, of which this is number ``rank``."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> ProcessGroup:
        """Those of torch's process group, if there is one."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls()

    def share(self, nodes: Tensor) -> Tensor:
        """This process's part; the parts of all processes are disjoint and together all of it."""
        return nodes[self.rank :: self.size]

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, the same number on each."""
        if self.size > 1:
            distributed.all_reduce(values)
        return values

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Every gradient becomes its sum over all processes, sent as one message."""
        if self.size == 1:
            return
        for p in parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.sum(torch.cat([g.flatten() for g in gradients]))
        for g, summed in zip(gradients, torch.split(flat, [g.numel() for g in gradients])):
            g.copy_(summed.view_as(g))
