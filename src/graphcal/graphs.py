"""Structural facts of a graph that calibrators and reports share, each computed once per graph; and sums over neighbours.

    adjacency         A_hat = D^-1/2 (A + I) D^-1/2                    the propagation of a GCN
    hops              distance of every node from the training set     0 train, 1 = V_F, 2, ..., -1 unreachable
    next_to_training  V_F of the SCAR paper: not in the training set, at least one neighbour in it
    fingerprint       of a graph: a hash of its number of nodes and its edges, as they are numbered

Facts are looked up with ``structure(data)``. Ten seeds on one graph share them: the memo hangs on the ``Data`` object,
is dropped with it, and is rebuilt when its edges or its training mask change.

The context of a graph-aware calibration is composed with `GraphSums`, which has three implementations: `MemorySums` (a sparse
product), `TracedSums` (sums over edges, which every exporter supports) and `graphcal.tables.disk_sums.DiskSums` (files).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from torch_geometric.data import Data

UNREACHABLE = -1


def node_name(graph: Data, node: int) -> str:
    """Name of a node from ``node_ids``; its number if there is none."""
    ids = graph.get("node_ids")
    return str(node) if ids is None else str(ids[node])


def class_name(graph: Data, label: int) -> str:
    """Name of a class from ``class_names``; its number if there is none."""
    names = graph.get("class_names")
    return str(label) if names is None else str(names[label])


@contextmanager
def sparse_csr() -> Iterator[None]:
    """Make CSR tensors without torch's notice, once a process, that they are beta: the products used here are stable."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        yield


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Compute in the precision of the tensors: autocast is off in this context."""
    available = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if available else nullcontext()


def csr(rows: Tensor, cols: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    """A torch CSR matrix from coordinates; equal coordinates are summed."""
    coo = torch.sparse_coo_tensor(torch.stack([rows, cols]), values, size, check_invariants=False)
    with sparse_csr():
        return coo.coalesce().to_sparse_csr()


def simple_edges(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Edges without self loops and duplicates, sorted. Direction is kept as given."""  # (2, E)
    key, _ = torch.sort(edge_index[0].long() * num_nodes + edge_index[1].long())
    row = key // num_nodes
    col = key - row * num_nodes
    first = torch.diff(key, prepend=key.new_full((1,), -1)) != 0  # of equal ones
    return torch.stack([row, col])[:, first & (row != col)]


def normalised_adjacency(edge_index: Tensor, num_nodes: int) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 with D the degree of A + I (Kipf & Welling 2017), as CSR."""  # (N, N)
    loops = torch.arange(num_nodes, device=edge_index.device)
    row = torch.cat([edge_index[0], loops])
    col = torch.cat([edge_index[1], loops])
    scale = torch.bincount(row, minlength=num_nodes).float().rsqrt()
    return csr(row, col, scale[row] * scale[col], (num_nodes, num_nodes))


def hops_from(mask: Tensor, edge_index: Tensor) -> Tensor:
    """Length of the shortest path from the nodes in ``mask`` (breadth first); -1 where there is none."""  # (N,)
    hops = torch.full(mask.shape, UNREACHABLE, dtype=torch.long, device=mask.device)
    hops[mask] = 0
    frontier, distance = mask.clone(), 0
    while frontier.any():
        distance += 1
        reached = torch.zeros_like(mask)
        reached[edge_index[1][frontier[edge_index[0]]]] = True
        frontier = reached & (hops == UNREACHABLE)
        hops[frontier] = distance
    return hops


@dataclass(frozen=True, eq=False)
class Structure:
    """The structural facts of one graph with one training set, each computed when first asked for."""

    edge_index: Tensor  # (2, E) no self loops, no duplicates
    num_nodes: int
    train_mask: Tensor  # (N,)
    class_names: tuple[str, ...] | None = None  # where the graph says what its classes are called

    @cached_property
    def adjacency(self) -> Tensor:  # (N, N) CSR
        return normalised_adjacency(self.edge_index, self.num_nodes)

    @cached_property
    def neighbours(self) -> Tensor:  # (N, N) CSR, ones
        row, col = self.edge_index
        ones = torch.ones(len(row), device=row.device)
        return csr(row, col, ones, (self.num_nodes, self.num_nodes))

    @cached_property
    def degree(self) -> Tensor:  # (N,)
        return torch.bincount(self.edge_index[0], minlength=self.num_nodes)

    @cached_property
    def reciprocal_degree(
        self,
    ) -> Tensor:  # (N,) walks of length two that come back: edges that exist in both directions
        row, col = self.edge_index
        both = torch.isin(row * self.num_nodes + col, col * self.num_nodes + row)
        return torch.bincount(row[both], minlength=self.num_nodes)

    @cached_property
    def hops(self) -> Tensor:  # (N,)
        return hops_from(self.train_mask, self.edge_index)

    @cached_property
    def next_to_training(self) -> Tensor:  # (N,)
        near = torch.zeros_like(self.train_mask)
        near[self.edge_index[1][self.train_mask[self.edge_index[0]]]] = True
        return near & ~self.train_mask

    @cached_property
    def hierarchies(self) -> Tensor:  # (16, N) communities of four random hierarchies, from fine to coarse in each
        from graphcal.communities import hierarchies  # imports scipy

        return torch.from_numpy(hierarchies(self.edge_index.cpu(), self.num_nodes))

    def neighbour_sum(self, values: Tensor) -> Tensor:
        """Sum of ``values`` (N, D) over the neighbours."""
        with without_autocast(values.device):  # there is no sparse product in half precision
            return self.neighbours.to(values.dtype) @ values

    def neighbour_mean(self, values: Tensor) -> Tensor:
        """Mean of ``values`` (N, ...) over the neighbours; a node without neighbours gets its own value."""
        total = self.neighbour_sum(values.reshape(self.num_nodes, -1)).reshape(values.shape)
        degree = self.degree.reshape(-1, *[1] * (values.dim() - 1))
        return torch.where(degree > 0, total / degree.clamp(min=1), values)


def neighbour_agreement(pred: Tensor, facts: Structure) -> Tensor:
    """Share of a node's neighbours that have the node's own predicted class; 1 for an isolated node."""  # (N,)
    row, col = facts.edge_index
    same = (pred[row] == pred[col]).double()
    total = torch.zeros(facts.num_nodes, dtype=torch.double, device=pred.device).index_add_(0, row, same)
    return torch.where(facts.degree > 0, total / facts.degree.clamp(min=1), torch.ones_like(total))


# the tensors it was computed from, their state, and the facts
_memo: MutableMapping[Data, tuple[tuple[Any, ...], tuple[Any, ...], Structure]] = WeakIdKeyDictionary()


def structure(graph: Data | Structure) -> Structure:
    """Compute degrees, hops from the training nodes and means over neighbours, once per graph.

    Parameters
    ----------
    graph : Data or Structure
        With ``edge_index``. Without ``train_mask`` there are no training nodes and every hop is unreachable.

    Returns
    -------
    Structure
        Cached until edges or training nodes change.

    Examples
    --------
    >>> import graphcal
    >>> data = graphcal.example().graph
    >>> facts = graphcal.structure(data)
    >>> facts.degree.shape, int(facts.hops[data.train_mask].max()), facts.neighbour_mean(data.x).shape
    (torch.Size([500]), 0, torch.Size([500, 16]))
    """
    if isinstance(graph, Structure):
        return graph
    if graph.edge_index is None:
        raise ValueError("the graph has no edge_index: this needs the edges, as a (2, E) integer tensor")
    num_nodes = int(graph.num_nodes)
    mask = graph.get("train_mask")
    names = graph.get("class_names")
    parts, state = (graph.edge_index, mask, names), _state_of(graph)
    kept = _memo.get(graph)
    if kept is not None and all(a is b for a, b in zip(kept[0], parts)) and kept[1] == state:
        return kept[2]
    if mask is None:
        mask = torch.zeros(num_nodes, dtype=torch.bool, device=graph.edge_index.device)
    called = None if names is None else tuple(map(str, names))
    facts = Structure(simple_edges(graph.edge_index, num_nodes), num_nodes, mask.clone(), called)
    _memo[graph] = (parts, state, facts)
    return facts


def _state_of(graph: Data) -> tuple[Any, ...]:
    """Key that changes when edges or training nodes are changed in place.

    Tensors made in inference mode count no versions: their content is hashed. Facts computed in inference mode cannot be used
    for gradients, so the mode is part of the state.
    """
    tensors = [tensor for tensor in (graph.edge_index, graph.get("train_mask")) if tensor is not None]
    untracked = any(tensor.is_inference() for tensor in tensors)
    if untracked:
        train = [_scrambled(tensor.nonzero().flatten()).sum().item() for tensor in tensors[1:]]
        return (torch.is_inference_mode_enabled(), fingerprint(graph), *train)
    return (torch.is_inference_mode_enabled(), *(tensor._version for tensor in tensors))


# -------------------------------------------------------------------------------------------------- sums over neighbours

Columns = Any  # (N, D): a tensor in memory and when traced, a file on disk


class GraphSums(Protocol):
    """Operations that a calibration's context is built from. Every column has one row per node."""

    @property
    def num_nodes(self) -> int: ...

    @property
    def degree(self) -> Columns:  # (N, 1) number of neighbours, like the others in double precision
        ...

    @property
    def reciprocal(self) -> Columns:  # (N, 1) edges that exist in both directions
        ...

    @property
    def train(self) -> Columns:  # (N, 1) 1 at training nodes; NaN everywhere if no training node is known
        ...

    @property
    def near(self) -> Columns:  # (N, 1) 1 next to a training node, itself not one; NaN likewise
        ...

    def neighbour_sum(self, values: Columns) -> Columns:
        """Sums (N, D) of values (N, D) over the neighbours of every node."""

    def rows(self, function: Callable[..., Tensor], *values: Columns) -> Columns:
        """Columns (N, V) of a function of tensors (n, D), ... -> (n, V) that works row by row."""


@dataclass(frozen=True, eq=False)
class MemorySums:
    """`GraphSums` of a graph in memory."""

    facts: Structure

    @property
    def num_nodes(self) -> int:
        return self.facts.num_nodes

    @property
    def degree(self) -> Tensor:
        return self.facts.degree[:, None].double()

    @property
    def reciprocal(self) -> Tensor:
        return self.facts.reciprocal_degree[:, None].double()

    @property
    def train(self) -> Tensor:
        return _where_training(self.facts.train_mask, self.facts.train_mask)

    @property
    def near(self) -> Tensor:
        return _where_training(self.facts.next_to_training, self.facts.train_mask)

    def neighbour_sum(self, values: Tensor) -> Tensor:
        return self.facts.neighbour_sum(values)

    def rows(self, function: Callable[..., Tensor], *values: Tensor) -> Tensor:
        return function(*values)


def _where_training(flag: Tensor, train_mask: Tensor) -> Tensor:
    """A flag (N,) as a column; NaN where there is no training node."""  # (N, 1)
    return torch.where(train_mask.any(), flag[:, None].double(), torch.nan)


@dataclass(frozen=True, eq=False)
class TracedSums:
    """`GraphSums` as sums over edges, without data-dependent shapes: for ``torch.export`` and ONNX."""

    edge_index: Tensor  # (2, E) no self loops, no duplicates
    train_mask: Tensor  # (N,)

    @property
    def num_nodes(self) -> int:
        return self.train_mask.shape[0]

    @property
    def degree(self) -> Tensor:
        return self.neighbour_sum(torch.ones_like(self.train_mask, dtype=torch.double)[:, None])

    @property
    def reciprocal(self) -> Tensor:
        row, col = self.edge_index
        both, _ = torch.sort(torch.cat([row * self.num_nodes + col, col * self.num_nodes + row]))
        twice = torch.diff(both, prepend=both.new_full((1,), -1)) == 0  # an edge there and back
        count = torch.zeros_like(self.train_mask, dtype=torch.double)
        return count.index_add(0, both // self.num_nodes, twice.double())[:, None]

    @property
    def train(self) -> Tensor:
        return _where_training(self.train_mask, self.train_mask)

    @property
    def near(self) -> Tensor:
        row, col = self.edge_index
        count = torch.zeros_like(self.train_mask, dtype=torch.long).index_add(0, col, self.train_mask[row].long())
        return _where_training((count > 0) & ~self.train_mask, self.train_mask)

    def neighbour_sum(self, values: Tensor) -> Tensor:
        row, col = self.edge_index
        return torch.zeros_like(values).index_add(0, row, values[col])

    def rows(self, function: Callable[..., Tensor], *values: Tensor) -> Tensor:
        return function(*values)


def graph_sums(graph: Data | Structure) -> MemorySums | None:
    """`GraphSums` of a graph in memory; None where it has no edges."""
    if not isinstance(graph, Structure) and graph.get("edge_index") is None:
        return None
    return MemorySums(structure(graph))


def isolated_nodes(num_nodes: int, like: Tensor) -> TracedSums:
    """`GraphSums` of nodes without edges, on the device of ``like``."""
    no_edges = torch.empty(2, 0, dtype=torch.long, device=like.device)
    return TracedSums(no_edges, torch.zeros(num_nodes, dtype=torch.bool, device=like.device))


# ------------------------------------------------------------------------------------------------------------- identity


MIX = -7046029254386353131  # 2^64 / golden ratio, odd, as a signed integer


def fingerprint(graph: Data) -> str | None:
    """64 bits, as hexadecimal digits, that do not depend on the order of the edges; None without edges."""
    edges = graph.get("edge_index")
    if edges is None:
        return None
    source, target = edges.long()
    parts = [torch.tensor([int(graph.num_nodes)]), _scrambled(_scrambled(source) + target)]
    sums = torch.stack([_scrambled(part.sum()).cpu() for part in parts])
    return f"{int(_scrambled(sums + torch.arange(len(sums))).sum()) & (2**64 - 1):016x}"


def is_undirected(edge_index: Tensor) -> bool:
    """Every edge comes with its reverse; how often an edge is repeated does not matter."""
    if not edge_index.shape[1]:
        return True
    source, target = edge_index.long()
    nodes = int(edge_index.max()) + 1
    return torch.equal(torch.unique(source * nodes + target), torch.unique(target * nodes + source))


def _scrambled(keys: Tensor) -> Tensor:
    """So that sums of keys of different nodes do not cancel."""
    keys = (keys ^ (keys >> 32)) * MIX
    return (keys ^ (keys >> 29)) * MIX
