"""A model with its repair, to be shipped: the model's own forward signature, calibrated log-probabilities out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphcal.core import Calibration, Outputs


class CalibratedModel(nn.Module):
    """A model and its calibration in one module: the model's own forward signature, calibrated log-probabilities out.

    The graph is read off the call: arguments named ``x``, ``edge_index`` or a PyG ``Data``; another signature is served by
    ``as_graph(*args, **kwargs) -> Data``. On the graph the calibration was fitted on, it remembers the training nodes.

    >>> import graphcal as gc
    >>> data = gc.synthetic(500, seed=0)
    >>> run = gc.train(data, training=gc.Training(epochs=5), seeds=1)[0]
    >>> calibrate = gc.TemperatureScaling().fit(run.outputs, on=data.val_mask)
    >>> gc.CalibratedModel(run.model, calibrate)(data.x, data.edge_index).shape
    torch.Size([500, 5])
    """

    def __init__(self, model: nn.Module, calibration: Calibration, as_graph: Callable[..., Data] | None = None) -> None:
        super().__init__()
        self.model = model
        self.calibration = calibration
        self._as_graph = as_graph

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        logits = self.model(*args, **kwargs)
        graph = self._as_graph(*args, **kwargs) if self._as_graph else self._graph_of_call(len(logits), args, kwargs)
        if graph.get("train_mask") is None:
            graph.train_mask = self._remembered_training_nodes(len(logits), logits.device)
        log_probs: Tensor = self.calibration(Outputs(logits, graph))
        return log_probs

    def _graph_of_call(self, nodes: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Data:
        bound = inspect.signature(self.model.forward).bind(*args, **kwargs).arguments
        given: dict[str, Any] = {}
        for name, value in bound.items():
            given.update(value if isinstance(value, dict) else {name: value})
            if isinstance(value, Data):
                return Data(**{k: v for k, v in value.to_dict().items() if k != "y"}, num_nodes=nodes)
        if "edge_index" not in given:
            raise ValueError(
                f"CalibratedModel found no edge_index among the arguments {sorted(given)} of "
                f"{type(self.model).__name__}.forward; pass as_graph=lambda *args: Data(x=..., edge_index=...)"
            )
        return Data(x=given.get("x"), edge_index=given["edge_index"], num_nodes=nodes)

    def _remembered_training_nodes(self, nodes: int, device: torch.device) -> Tensor:
        mask = torch.zeros(nodes, dtype=torch.bool, device=device)
        if getattr(self.calibration, "graph_nodes", None) == nodes:
            mask[self.calibration.get_buffer("train_nodes")] = True
        return mask
