"""Message passing by parts: every PyG layer of a model works through its target nodes chunk by chunk, exactly.

    out[a:b] = layer(edges into a..b-1, their sources)        a, b such that a chunk has at most so many edges

A layer's output at a node depends on the edges into that node alone, so the parts are the whole. What is held at once are the
nodes' values (N, H) of a layer and the messages of one chunk of edges, instead of the messages of all edges (E, H).

The claim is tested on the first chunk of every layer: cut in two it must give the same. A layer for which it does not hold (a
softmax over all edges, say) is refused. Layers that form no messages (sparse matrices), run against the edges
(``flow="target_to_source"``), or hand a node's values to ``update`` run as they always do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

EDGES = 2**19  # in a chunk


def message_passing_layers(model: nn.Module) -> list[MessagePassing]:
    return [module for module in model.modules() if isinstance(module, MessagePassing)]


@contextmanager
def by_target_chunks(model: nn.Module, edges: int | None = None) -> Iterator[None]:
    """While it lasts, every message-passing layer of ``model`` computes its target nodes in chunks of so many edges (EDGES)."""
    layers, edges = message_passing_layers(model), EDGES if edges is None else edges
    for layer in layers:
        layer.propagate = MethodType(_chunked("propagate", edges), layer)
        layer.edge_updater = MethodType(_chunked("edge_updater", edges), layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["propagate"], layer.__dict__["edge_updater"]


def _chunked(step: str, edges: int) -> Callable[..., Any]:
    def run(layer: MessagePassing, edge_index: Any, size: Any = None, **given: Any) -> Any:
        whole = getattr(type(layer), step)
        parts = _Parts.of(layer, step, edge_index, size, given)
        if parts is None or edge_index.shape[1] <= edges:
            return whole(layer, edge_index, size=size, **given)
        return _together(layer, step, parts, parts.ranges(edges))

    return run


def _together(layer: MessagePassing, step: str, parts: _Parts, ranges: list[tuple[int, int]]) -> Any:
    def run(begin: int, end: int) -> Tensor:
        edge_index, size, given = parts.part(begin, end)
        made: Tensor = getattr(type(layer), step)(layer, edge_index, size=size, **given)
        return made

    by_node = step == "propagate"
    out = torch.empty(0)
    for number, (begin, end) in enumerate(ranges):
        made = run(begin, end)
        dim = layer.node_dim % made.dim() if by_node else 0
        if number == 0:
            _prove(layer, made, run, begin, end, dim)
            shape = list(made.shape)
            shape[dim] = parts.targets if by_node else len(parts.order)
            out = made.new_empty(shape)
        if by_node:
            out.narrow(dim, begin, end - begin).copy_(made)
        else:
            out[parts.edges_into(begin, end)] = made
    return out


def _prove(
    layer: MessagePassing, made: Tensor, run: Callable[[int, int], Tensor], begin: int, end: int, dim: int
) -> None:
    if end - begin < 2:
        return
    middle = (begin + end) // 2
    halves = torch.cat([run(begin, middle), run(middle, end)], dim)
    scale = max(1.0, float(made.abs().max())) if made.numel() else 1.0
    if halves.shape != made.shape or not torch.allclose(halves, made, rtol=1e-4, atol=1e-5 * scale, equal_nan=True):
        raise ValueError(
            f"{type(layer).__name__} does not compute its target nodes one by one: half of them give other values than all. It "
            "cannot run by parts; observe the model without layerwise=True, or batch by batch with loader="
        )


class _Parts:
    """Arguments of one layer call, and the part of them that concerns some of the target nodes."""

    def __init__(
        self, edge_index: Tensor, size: tuple[int, int], node_dim: int, lifted: set[str], given: dict[str, Any]
    ) -> None:
        self.edge_index, self.node_dim = edge_index, node_dim
        self.lifted, self.given = lifted, given  # names of values per node, all arguments
        self.sources, self.targets = size
        self.order = torch.argsort(edge_index[1], stable=True)  # (E,) edges by target
        counts = torch.bincount(edge_index[1], minlength=self.targets)
        self.offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])  # (targets + 1,)

    @classmethod
    def of(cls, layer: MessagePassing, step: str, edge_index: Any, size: Any, given: dict[str, Any]) -> _Parts | None:
        """None where the call cannot be cut."""
        if type(edge_index) is not Tensor or edge_index.layout != torch.strided or layer.flow != "source_to_target":
            return None
        args = set(layer._user_args if step == "propagate" else layer._edge_user_args)
        lifted = {name[:-2] for name in args if name.endswith(("_i", "_j"))}
        if lifted & args:  # the layer reads all nodes' values as well
            return None
        sizes = [_sizes(given[name], layer.node_dim) for name in lifted & given.keys()] + [size or (None, None)]
        sources = next((int(pair[0]) for pair in sizes if pair[0] is not None), None)
        targets = next((int(pair[1]) for pair in sizes if pair[1] is not None), None)
        if sources is None or targets is None:
            return None
        edges = edge_index.shape[1]
        rest = [
            value for name, value in given.items() if name not in lifted and isinstance(value, Tensor) and value.dim()
        ]
        if any(len(value) not in (1, edges) for value in rest):  # neither of the edges nor one for all
            return None
        return cls(edge_index, (sources, targets), layer.node_dim, lifted, given)

    def ranges(self, edges: int) -> list[tuple[int, int]]:
        """Consecutive target nodes (begin, end) with at most so many edges, one node at least."""
        ranges, begin = [], 0
        while begin < self.targets:
            limit = self.offsets[begin] + edges
            end = int(torch.searchsorted(self.offsets, limit, right=True)) - 1
            ranges.append((begin, max(end, begin + 1)))
            begin = ranges[-1][1]
        return ranges

    def edges_into(self, begin: int, end: int) -> Tensor:
        return self.order[int(self.offsets[begin]) : int(self.offsets[end])]

    def part(self, begin: int, end: int) -> tuple[Tensor, tuple[int, int], dict[str, Any]]:
        """(edges, size, arguments) of the target nodes begin..end-1, numbered from 0."""
        edges = self.edges_into(begin, end)
        source, target = self.edge_index[:, edges]
        given: dict[str, Any] = {}
        for name, value in self.given.items():
            if name in self.lifted and value is not None:
                given[name] = self._sides(value, begin, end)
            elif isinstance(value, Tensor) and value.dim() and len(value) == len(self.order):
                given[name] = value[edges]
            else:
                given[name] = value
        return torch.stack([source, target - begin]), (self.sources, end - begin), given

    def _sides(self, value: Any, begin: int, end: int) -> tuple[Any, Any]:
        """A value per node, for the sources (all of them) and for the target nodes."""
        source, target = value if isinstance(value, tuple | list) else (value, value)
        return source, target.narrow(self.node_dim, begin, end - begin) if isinstance(target, Tensor) else target


def _sizes(value: Any, node_dim: int) -> tuple[int | None, int | None]:
    """(source nodes, target nodes) of a value per node."""
    if isinstance(value, Tensor):
        return value.shape[node_dim], value.shape[node_dim]
    if isinstance(value, tuple | list):
        pair = [v.shape[node_dim] if isinstance(v, Tensor) else None for v in value]
        return pair[0], pair[1]
    return None, None
