"""Observe a model on a graph that is too large for one pass: layer by layer, or batch by batch.

by_layers    the logits of the whole graph, exactly: each message-passing layer works through its target nodes in chunks
by_batches   the logits of each batch's seeds, put together for all nodes: what a model says where it is served by batches

The final layer is read off a small part of the graph (it is the model's, not the graph's). The representation that enters it
comes from the same passes as the logits.

*Chunks.*  out[a:b] = layer(edges into a..b-1, their sources), with a, b such that a chunk has at most so many edges. A layer's
output at a node depends on the edges into that node alone, so the parts are the whole. What is held at once are the nodes'
values (N, H) of a layer and the messages of one chunk of edges, instead of the messages of all edges (E, H). The claim is tested
on the first chunk of every layer: cut in two it must give the same. A layer for which it does not hold (a softmax over all edges,
say) is refused. Layers that form no messages (sparse matrices), run against the edges (``flow="target_to_source"``), or hand a
node's values to ``update`` run as they always do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import MethodType
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import MessagePassing

from graphcal.core import Outputs
from graphcal.observation.recorder import Read, two_columns

SMALL = 200  # edges of the part on which the final layer is read
See = Callable[[Data], Outputs]
Record = Callable[[Data], Read]


def by_layers(model: nn.Module, data: Any, see: See, record: Record) -> Outputs:
    """``see`` observes a small graph, ``record`` runs the model once on any graph."""
    if not isinstance(data, Data):
        raise ValueError(f"layerwise=True is for a graph with one kind of nodes, a Data; got {type(data).__name__}")
    if hasattr(model, "on"):  # graphcal's models form no messages
        return see(data)
    if not message_passing_layers(model):
        raise ValueError(
            f"{type(model).__name__} has no message-passing layer of PyG, so there is nothing to run by parts: observe it "
            "without layerwise=True, or batch by batch with loader=NeighborSampler(data, fanouts)"
        )
    final = see(small_part(data)).final
    with by_target_chunks(model):
        read = record(data)
    hidden = read.hidden()
    return Outputs(two_columns(read.logits), data, final, hidden if isinstance(hidden, Tensor) else None)


def small_part(data: Data) -> Data:
    """The ends of a few edges, with all their attributes."""
    nodes = torch.arange(min(SMALL, int(data.num_nodes)), device=data.edge_index.device)
    return GraphParts(data).among(torch.cat([nodes, data.edge_index[:, :SMALL].flatten()]).unique())


def by_batches(model: nn.Module, loader: Iterable[Data], data: Any, see: See, record: Record) -> Outputs:
    """``see`` and ``record`` as in `by_layers`; the graph is the loader's unless ``data`` is given."""
    graph = getattr(loader, "data", None) if data is None else data
    if isinstance(graph, HeteroData):
        raise ValueError(
            "loader= is for a graph with one kind of nodes, a Data; got HeteroData: observe it in one pass"
        )
    if not isinstance(graph, Data):
        raise ValueError(
            f"the loader {type(loader).__name__} does not hold its graph: give it too, observe(model, data, loader=loader)"
        )
    num_nodes, final = int(graph.num_nodes), None
    logits, hidden = torch.empty(0), None
    done = torch.zeros(num_nodes, dtype=torch.bool)
    for number, batch in enumerate(loader):
        seeds, size = seeds_of(batch), int(batch.num_nodes)
        if number == 0:
            final = see(_all_seeds(batch)).final
        read = record(batch)
        rows, entering = two_columns(read.logits).detach(), read.hidden(size)
        if len(rows) not in (len(seeds), size):
            raise ValueError(
                f"{type(model).__name__} gave {len(rows)} rows for a batch of {size} nodes with {len(seeds)} seeds: "
                "logits of all nodes of a batch, or of its seeds, are expected"
            )
        if number == 0:
            logits = rows.new_zeros(num_nodes, rows.shape[1])
            hidden = None if isinstance(entering, str) else rows.new_zeros(num_nodes, entering.shape[1])
        logits[seeds] = rows[: len(seeds)]
        if hidden is not None:
            hidden = (
                None if isinstance(entering, str) else hidden.index_copy_(0, seeds, entering[: len(seeds)].to(hidden))
            )
        done[seeds] = True
    if not done.all():
        raise ValueError(
            f"{int((~done).sum())} of {num_nodes} nodes were a seed in no batch (first: node {int((~done).nonzero()[0])}), so "
            "nothing is known of them: let the loader go through all nodes (input_nodes=None)"
        )
    return Outputs(logits, graph, final, hidden)


def _all_seeds(batch: Data) -> Data:
    """The batch as if made for all its nodes: a model that answers for the seeds alone then answers for all."""
    whole = copy.copy(batch)
    whole.batch_size = int(batch.num_nodes)
    return whole


def seeds_of(batch: Data) -> Tensor:
    """The nodes a batch was made for, by their numbers in the whole graph."""
    missing = [name for name in ("n_id", "batch_size") if batch.get(name) is None]
    if missing:
        raise ValueError(
            f"a batch has no {' and no '.join(missing)}: give batches as NeighborSampler or PyG's NeighborLoader make them, "
            "seeds first, n_id their numbers in the whole graph"
        )
    seeds: Tensor = batch.n_id[: int(batch.batch_size)]
    return seeds.cpu()


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


class GraphParts:
    """Cuts parts out of one graph. Sparse features come out as plain rows."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def part(self, nodes: Tensor, edge_index: Tensor, edges: Tensor) -> Data:
        """The part with these nodes; ``edge_index`` joins them by their places, ``edges`` are the numbers of those edges."""
        made = Data(edge_index=edge_index, num_nodes=len(nodes))
        for name, value in self.data.to_dict().items():
            if name not in ("edge_index", "num_nodes"):
                made[name] = self._cut(name, value, nodes, edges)
        return made

    def among(self, nodes: Tensor) -> Data:
        """The part with these nodes, each given once, and all edges among them."""
        position = torch.full((int(self.data.num_nodes),), -1, device=nodes.device)
        position[nodes] = torch.arange(len(nodes), device=nodes.device)
        edges = (position[self.data.edge_index] >= 0).all(0).nonzero().flatten()
        return self.part(nodes, position[self.data.edge_index[:, edges]], edges)

    def _cut(self, name: str, value: Any, nodes: Tensor, edges: Tensor) -> Any:
        if isinstance(value, Tensor) and value.layout != torch.strided:
            return torch.from_numpy(self._sparse_x[nodes.cpu().numpy()].toarray()) if name == "x" else value
        if not isinstance(value, Tensor | np.ndarray):
            return value
        index = nodes if self.data.is_node_attr(name) else edges if self.data.is_edge_attr(name) else None
        if index is None:
            return value
        return value[index] if isinstance(value, Tensor) else value[index.cpu().numpy()]

    @cached_property
    def _sparse_x(self) -> sp.csr_matrix:
        return feature_matrix(self.data.x)


def feature_matrix(x: Tensor) -> sp.csr_matrix:
    """The input as a scipy matrix, from a dense or a sparse tensor."""
    x = x.detach().cpu()
    if x.layout == torch.strided:
        return sp.csr_matrix(x.numpy())
    x = x if x.layout == torch.sparse_csr else x.to_sparse_csr()
    return sp.csr_matrix((x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()), shape=tuple(x.shape))
