"""A model on one graph, to be run as often as needed: with other numbers in some parameters, weights on the edges, or dropout."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from graphcal.observation.calls import evaluating
from graphcal.observation.watching import WatchedPass, watched


@dataclass(frozen=True, eq=False)
class SeenModel:
    """``run(edge_weight)`` calls the model; ``first`` is what was seen of its first pass; ``ending`` the softmax it ends in.

    It is the `graphcal.core.ModelHandle` of an observed model.
    """

    model: nn.Module
    run: Callable[[Tensor | None], Tensor]
    first: WatchedPass
    ending: int | None
    edge_index: Tensor | None = None

    def with_parameters(self, values: Mapping[nn.Parameter, Tensor]) -> Tensor:
        """Logits with these numbers in these parameters, the model's gates held as they were."""
        with torch.no_grad(), replaced(values):
            return self._logits(self.first)

    def logits(self, edge_weight: Tensor | None = None, dropout: Generator | None = None) -> Tensor:
        """One more pass, with weights (E,) on the edges or with dropout."""
        if edge_weight is not None:
            return self._weighted(edge_weight)
        if dropout is not None:
            return self._dropped(dropout)
        with torch.no_grad(), evaluating(self.model):
            return two_columns(self._logits())

    @cached_property
    def reads_edge_weights(self) -> bool:
        """Other weights on the edges give other logits."""
        edges = self.edge_index
        if edges is None:
            return False
        weights = torch.linspace(0.1, 1.0, edges.shape[1], device=edges.device)
        with torch.no_grad(), evaluating(self.model), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a model has no use for them
            return not torch.equal(self._logits(edge_weight=weights), self._logits())

    def _weighted(self, edge_weight: Tensor) -> Tensor:
        if not self.reads_edge_weights:
            raise ValueError(
                f"{type(self.model).__name__} cannot be run with weights on its edges: its forward does not read edge_weight"
            )
        with evaluating(self.model), frozen(self.model):
            return two_columns(self._logits(edge_weight=edge_weight))

    def _dropped(self, generator: Generator) -> Tensor:
        """In training mode but for layers that keep running means, with torch's own numbers started from ``generator``."""
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.no_grad(), torch.random.fork_rng(), evaluating(self.model):
            torch.manual_seed(seed)
            self.model.train()
            for module in self.model.modules():
                if isinstance(module, _NormBase):
                    module.eval()
            drawn = self._logits()
            self.model.eval()
            if torch.equal(drawn, self._logits()):
                raise ValueError(f"{type(self.model).__name__} has no dropout: it says the same in training mode")
        return two_columns(drawn)

    def _logits(self, replay: WatchedPass | None = None, edge_weight: Tensor | None = None) -> Tensor:
        output, watch = watched(lambda: self.run(edge_weight), replay)
        return as_columns(output if self.ending is None else watch.inputs[self.ending])


def two_columns(logits: Tensor) -> Tensor:
    """One logit z as (0, z)."""
    return torch.cat([torch.zeros_like(logits), logits], 1) if logits.shape[1] == 1 else logits


def as_columns(logits: Tensor) -> Tensor:
    """(N,) as (N, 1)."""
    return logits[:, None] if logits.dim() == 1 else logits


@contextmanager
def replaced(values: Mapping[nn.Parameter, Tensor]) -> Iterator[None]:
    """Other numbers in these parameters, for a while."""
    before = {parameter: parameter.data for parameter in values}
    try:
        for parameter, value in values.items():
            parameter.data = value.to(parameter.data)
        yield
    finally:
        for parameter, data in before.items():
            parameter.data = data


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter asks for a gradient, for a while."""
    asked = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in asked:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)


def in_single_precision(model: nn.Module) -> nn.Module:
    """The model itself, or a copy in float32 where it computes in half precision."""
    halves = (torch.float16, torch.bfloat16)
    if any(tensor.dtype in halves for tensor in (*model.parameters(), *model.buffers())):
        return copy.deepcopy(model).float()
    return model
