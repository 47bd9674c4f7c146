"""A calibrated model for ``torch.export`` and ONNX: tensors in, log-probabilities out, on graphs of any size.

    program = export_program(calibrated, data)        torch.export; runs without graphcal
    export_onnx(calibrated, data, "model.onnx")       ONNX; runs in ONNX Runtime, without Python if need be

Nothing in it depends on the values: inputs are not checked, and without ``train_mask`` no node is a training node. The context is
that of `Calibration.context`, with sums over neighbours written as sums over edges.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphcal.core import Calibration
from graphcal.graphs import TracedSums, isolated_nodes, simple_edges
from graphcal.observation import logits_and_hidden
from graphcal.observation.calls import tensor_call


class Exportable(nn.Module):
    """``forward(x, edge_index, train_mask=None, edge_weight=None)``, the last for models that take weights of the edges."""

    def __init__(self, model: nn.Module, calibration: Calibration, pick: Any = None) -> None:
        super().__init__()
        needs = calibration.needs
        if needs.whole_graph or needs.same_graph:
            raise ValueError(
                f"{type(calibration).__name__} cannot be exported: it needs the whole graph, or the graph of the fit. Choose a "
                "calibrator that reads logits and neighbours."
            )
        self.model, self.calibration, self._pick = model, calibration, pick
        self.eval()

    def forward(
        self, x: Tensor, edge_index: Tensor, train_mask: Tensor | None = None, edge_weight: Tensor | None = None
    ) -> Tensor:
        call = tensor_call(self.model, x, edge_index, edge_weight)
        seen = logits_and_hidden(self.model, call, self._pick, traced=True)
        logits, needs = seen.logits, self.calibration.needs
        if needs.hidden and seen.hidden is None:
            warnings.warn(
                f"{type(self.calibration).__name__} was fitted with the hidden representation, which the traced model does not "
                f"show: {seen.why_not}. The level without it is exported.",
                stacklevel=2,
            )
        graph = isolated_nodes(logits.shape[0], logits)
        if needs.edges:
            train = torch.zeros_like(logits[:, 0], dtype=torch.bool) if train_mask is None else train_mask
            graph = TracedSums(simple_edges(edge_index, logits.shape[0]), train)
        context = self.calibration.context(
            logits, graph, hidden=seen.hidden if needs.hidden else None, inputs=x if needs.inputs else None
        )
        return self.calibration.kernel(logits.T, context.T).T.to(logits.dtype)


def example_of(data: Data) -> tuple[dict[str, Tensor], dict[str, dict[int, Any]]]:
    """The inputs that ``data`` has, and which of their sizes vary: nodes and edges."""
    from torch.export import Dim  # takes a second, and serving does not need it

    if not isinstance(data, Data):
        raise ValueError(f"export takes a Data with x and edge_index, got {type(data).__name__}.")

    rows, edges = {0: Dim.DYNAMIC}, {1: Dim.DYNAMIC}
    sizes = {"x": rows, "edge_index": edges, "train_mask": rows, "edge_weight": rows}
    given = {name: data[name] for name in sizes if isinstance(data.get(name), Tensor)}
    return given, {name: sizes[name] for name in given}


def exportable_of(model: nn.Module) -> Exportable:
    """The exportable form of a `CalibratedModel`, or the module itself if it has that form."""
    if isinstance(model, Exportable):
        return model
    make: Callable[[], Exportable] | None = getattr(model, "exportable", None)
    if make is None:
        raise ValueError(f"Only a CalibratedModel can be exported, got {type(model).__name__}.")
    return make()


def export_program(model: nn.Module, data: Data) -> torch.export.ExportedProgram:
    """``torch.export`` of a `CalibratedModel`, traced on ``data``, for graphs of any size.

    Its inputs are what ``data`` has of ``x``, ``edge_index``, ``train_mask`` and ``edge_weight``.

    >>> import graphcal
    >>> from torch_geometric.nn.models import GCN
    >>> data, other = graphcal.example().graph, graphcal.example(400, seed=1).graph
    >>> model = GCN(data.num_features, 16, 2, 5)
    >>> calibrated = graphcal.CalibratedModel(model, graphcal.SCAR().fit(graphcal.observe(model, data), on=data.val_mask))
    >>> program = export_program(calibrated, data)
    >>> program.module()(x=other.x, edge_index=other.edge_index, train_mask=other.train_mask).shape
    torch.Size([400, 5])
    """
    inputs, sizes = example_of(data)
    return torch.export.export(exportable_of(model), (), kwargs=inputs, dynamic_shapes=sizes)


def export_onnx(model: nn.Module, data: Data, path: str | os.PathLike[str]) -> Path:
    """The same as an ONNX file; needs the packages onnx and onnxscript (``pip install graphcal[onnx]``)."""
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise ValueError("export_onnx needs the packages onnx and onnxscript: pip install 'graphcal[onnx]'") from None
    inputs, sizes = example_of(data)
    model = exportable_of(model)
    with quiet_exporter():
        program = torch.onnx.export(model, (), kwargs=inputs, dynamic_shapes=sizes, dynamo=True, verbose=False)
    if program is None:
        raise ValueError(f"{type(model.calibration).__name__} was not exported")
    program.save(path)
    return Path(path)


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence what the exporter reports about packages and functions that are not ours: torchvision, deprecated trees."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript", "onnx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning):
                warnings.simplefilter("ignore", category)
            for module in ("torch", "onnx_ir", "onnxscript"):
                warnings.filterwarnings("ignore", module=rf"{module}\.")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)
