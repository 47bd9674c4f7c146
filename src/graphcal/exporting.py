"""A calibrated model for ``torch.export`` and ONNX: tensors in, log-probabilities out, on graphs of any size.

    program = export_program(calibrated, data)        torch.export; runs without graphcal
    export_onnx(calibrated, data, "model.onnx")       ONNX; runs in ONNX Runtime, without Python if need be

Nothing in it depends on the values: inputs are not checked and training nodes are not recognised (give ``train_mask``). What the
calibration reads off the graph is computed by its own `context`, on a graph whose sparse products are written as sums over edges.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphcal.core import Calibration
from graphcal.graphs import Structure, simple_edges
from graphcal.observation import logits_and_hidden
from graphcal.observation.calls import tensor_call


class Exportable(nn.Module):
    """``forward(x, edge_index, train_mask=None, edge_weight=None)``, the last for models that take weights of the edges."""

    def __init__(self, model: nn.Module, calibration: Calibration, pick: Any = None) -> None:
        super().__init__()
        if type(calibration).from_context is Calibration.from_context:
            raise ValueError(
                f"{type(calibration).__name__} cannot be exported: it does not say what it reads off the graph "
                "(Calibration.context and from_context)"
            )
        self.model, self.calibration, self._pick = model, calibration, pick
        self.eval()

    def forward(
        self, x: Tensor, edge_index: Tensor, train_mask: Tensor | None = None, edge_weight: Tensor | None = None
    ) -> Tensor:
        call = tensor_call(self.model, x, edge_index, edge_weight)
        logits = logits_and_hidden(self.model, call, self._pick, traced=True).logits
        if not self.calibration.reads_graph:
            return self.calibration.from_context(logits, logits[:, :0])
        if train_mask is None:
            train_mask = torch.zeros_like(logits[:, 0], dtype=torch.bool)
        edges = simple_edges(edge_index, logits.shape[0])
        graph = TracedStructure(edges, logits.shape[0], train_mask)
        return self.calibration.from_context(logits, self.calibration.context(TracedOutputs(logits, graph)))  # type: ignore[arg-type]


def example_of(data: Data) -> tuple[dict[str, Tensor], dict[str, dict[int, Any]]]:
    """The inputs that ``data`` has, and which of their sizes vary: nodes and edges."""
    from torch.export import Dim  # takes a second, and serving does not need it

    rows, edges = {0: Dim.DYNAMIC}, {1: Dim.DYNAMIC}
    sizes = {"x": rows, "edge_index": edges, "train_mask": rows, "edge_weight": rows}
    given = {name: data[name] for name in sizes if isinstance(data.get(name), Tensor)}
    return given, {name: sizes[name] for name in given}


def export_program(model: Exportable, data: Data) -> torch.export.ExportedProgram:
    """``torch.export`` of ``calibrated.exportable()``, traced on ``data``, for graphs of any size.

    Its inputs are what ``data`` has of ``x``, ``edge_index``, ``train_mask`` and ``edge_weight``.

    >>> import graphcal as gc
    >>> from torch_geometric.nn.models import GCN
    >>> data, other = gc.synthetic(500, seed=0), gc.synthetic(400, seed=1)
    >>> model = GCN(data.num_features, 16, 2, 5)
    >>> calibrated = gc.CalibratedModel(model, gc.SCAR().fit(gc.observe(model, data), on=data.val_mask))
    >>> program = export_program(calibrated.exportable(), data)
    >>> program.module()(x=other.x, edge_index=other.edge_index, train_mask=other.train_mask).shape
    torch.Size([400, 5])
    """
    inputs, sizes = example_of(data)
    return torch.export.export(model, (), kwargs=inputs, dynamic_shapes=sizes)


def export_onnx(model: Exportable, data: Data, path: str | os.PathLike[str]) -> Path:
    """The same as an ONNX file; needs the packages onnx and onnxscript (``pip install graphcal[onnx]``)."""
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise ValueError("export_onnx needs the packages onnx and onnxscript: pip install 'graphcal[onnx]'") from None
    inputs, sizes = example_of(data)
    program = torch.onnx.export(model, (), kwargs=inputs, dynamic_shapes=sizes, dynamo=True, verbose=False)
    if program is None:
        raise ValueError(f"{type(model.calibration).__name__} was not exported")
    program.save(path)
    return Path(path)


class TracedStructure(Structure):
    """The facts of a graph by sums over its edges, which every exporter knows. It stands in for the graph as well."""

    def get(self, name: str) -> Any:
        return {"edge_index": self.edge_index, "train_mask": self.train_mask}.get(name)

    @cached_property
    def degree(self) -> Tensor:
        row = self.edge_index[0]
        return torch.zeros_like(self.train_mask, dtype=torch.long).index_add(0, row, torch.ones_like(row))

    @cached_property
    def next_to_training(self) -> Tensor:
        row, col = self.edge_index
        count = torch.zeros_like(self.train_mask, dtype=torch.long).index_add(0, col, self.train_mask[row].long())
        return (count > 0) & ~self.train_mask

    @cached_property
    def returning(self) -> Tensor:
        row, col = self.edge_index
        both, _ = torch.sort(
            torch.cat([row * self.num_nodes + col, col * self.num_nodes + row])
        )  # an edge there and back: twice
        twice = torch.diff(both, prepend=both.new_full((1,), -1)) == 0
        return torch.zeros_like(self.degree).index_add(0, both // self.num_nodes, twice.long())

    def neighbour_sum(self, values: Tensor) -> Tensor:
        row, col = self.edge_index
        return torch.zeros_like(values).index_add(0, row, values[col])


@dataclass(frozen=True, eq=False)
class TracedOutputs:
    """What a calibration reads of `graphcal.core.Outputs`, unchecked."""

    logits: Tensor
    graph: TracedStructure

    @property
    def num_nodes(self) -> int:
        return self.logits.shape[0]

    @property
    def num_classes(self) -> int:
        return self.logits.shape[1]

    @property
    def pred(self) -> Tensor:
        return self.logits.argmax(-1)
