"""A model on one graph, to be run as often as needed: recorded, with changes, weights on the edges, or dropout."""

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
from graphcal.observation.final_layer import Confirmed, confirm
from graphcal.observation.recorder import Change, Read, Recorder, as_columns, read_logits, two_columns


@dataclass(eq=False)
class ObservedModel:
    """The `graphcal.core.ModelHandle` of an observed model; ``run(edge_weight)`` calls it."""

    model: nn.Module
    run: Callable[[Tensor | None], Tensor]
    edge_index: Tensor | None = None
    ending: int | None = None  # number of the closing activation
    passes: int = 0  # so far

    def record(self, keep_gates: bool = False) -> tuple[Read, Recorder]:
        """One pass with what was seen in it."""
        with Recorder(keep_gates=keep_gates) as record:
            output = self.run(None)
        self.passes += 1
        read = read_logits(output, record, type(self.model).__name__)
        self.ending = read.ending
        return read, record

    def repeat(
        self,
        held: Recorder | None = None,
        changes: Mapping[int, Change] | None = None,
        parameters: Mapping[nn.Parameter, Tensor] | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Logits (N, C) of one more pass; `Recorder` explains ``held`` and ``changes``."""
        with Recorder(held, changes) as record, replaced(parameters or {}):
            output = self.run(edge_weight)
        self.passes += 1
        return as_columns(output if self.ending is None else record.activations[self.ending].input)

    def confirm(self, read: Read, record: Recorder) -> Confirmed | None:
        """The final layer, where it was seen in the recorded pass; at most one more pass."""
        return confirm(read, lambda changes: self.repeat(record, changes), record.ordered)

    def final_representation(self) -> Tensor | None:
        """h (N, D) with logits = h @ weight.T + bias, by 2 + D / C passes; None where the layer was not seen in a pass."""
        with torch.no_grad(), evaluating(self.model):
            read, record = self.record(keep_gates=True)
            layer = self.confirm(read, record)
            return None if layer is None else layer.representation(lambda changes: self.repeat(record, changes))

    def logits(self, edge_weight: Tensor | None = None, dropout: Generator | None = None) -> Tensor:
        """Logits (N, C) of one more pass, with weights (E,) on the edges or with dropout."""
        if edge_weight is not None:
            return self._weighted(edge_weight)
        if dropout is not None:
            return self._dropped(dropout)
        with torch.no_grad(), evaluating(self.model):
            return two_columns(self.repeat())

    @cached_property
    def reads_edge_weights(self) -> bool:
        """Return whether other weights on the edges give other logits."""
        edges = self.edge_index
        if edges is None:
            return False
        weights = torch.linspace(0.1, 1.0, edges.shape[1], device=edges.device)
        with torch.no_grad(), evaluating(self.model), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a model has no use for them
            return not torch.equal(self.repeat(edge_weight=weights), self.repeat())

    def _weighted(self, edge_weight: Tensor) -> Tensor:
        if not self.reads_edge_weights:
            raise ValueError(
                f"{type(self.model).__name__} cannot be run with weights on its edges: its forward does not read edge_weight"
            )
        with evaluating(self.model), frozen(self.model):
            return two_columns(self.repeat(edge_weight=edge_weight))

    def _dropped(self, generator: Generator) -> Tensor:
        """Set training mode except for layers with running means, and seed torch from ``generator``."""
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.no_grad(), torch.random.fork_rng(), evaluating(self.model):
            torch.manual_seed(seed)
            self.model.train()
            for module in self.model.modules():
                if isinstance(module, _NormBase):
                    module.eval()
            drawn = self.repeat()
            self.model.eval()
            if torch.equal(drawn, self.repeat()):
                raise ValueError(f"{type(self.model).__name__} has no dropout: it says the same in training mode")
        return two_columns(drawn)


@contextmanager
def replaced(values: Mapping[nn.Parameter, Tensor]) -> Iterator[None]:
    """Put other numbers in these parameters for a while."""
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
    """Let no parameter require a gradient for a while."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in learned:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)


def in_single_precision(model: nn.Module) -> nn.Module:
    """The model itself, or a copy in float32 where it computes in half precision."""
    halves = (torch.float16, torch.bfloat16)
    if any(tensor.dtype in halves for tensor in (*model.parameters(), *model.buffers())):
        return copy.deepcopy(model).float()
    return model
