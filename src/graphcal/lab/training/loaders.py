"""Neighbour sampling in plain torch: batches in the shape of PyG's NeighborLoader, without a compiled extension.

    hop 0   = the seeds
    hop k+1 = the nodes not met before among those that hop k reads

A node of degree d with fan-out f reads all its neighbours where d <= f or f = -1, else f of them: uniformly and without
replacement, by Floyd's algorithm (for j = d - f, ..., d - 1: draw t from 0..j; take t, or j if t was taken). The draws are
a function of (key, node, j) alone (SplitMix64), so what a node reads does not depend on its batch.

A batch is a `Data` with ``x``, ``edge_index``, ``n_id``, ``input_id`` and ``batch_size``, its seeds first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.checks import check_edges, check_mask
from graphcal.lab.engine.layers import random_words
from graphcal.observation.batches import GraphParts

ALL = -1  # a fan-out without limit


def check_fanouts(fanouts: Sequence[int]) -> tuple[int, ...]:
    wrong = [f for f in fanouts if f < 1 and f != ALL]
    if wrong:
        raise ValueError(
            f"fan-outs {tuple(fanouts)}: {wrong[0]} is neither a number of neighbours nor -1, which takes them all"
        )
    return tuple(fanouts)


def check_batch_size(batch_size: int) -> int:
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}")
    return batch_size


class NeighborSampler:
    """Batches of a graph as PyG's NeighborLoader gives them, without a compiled extension.

    ``input_nodes`` (a mask or numbers; all nodes if None) are the seeds. Each pass draws anew from ``generator``.

    >>> import graphcal
    >>> data = graphcal.lab.synthetic(500, seed=0)
    >>> batch = next(iter(NeighborSampler(data, (5, 5), batch_size=32, input_nodes=data.val_mask)))
    >>> batch.batch_size, bool((batch.n_id[:32] == data.val_mask.nonzero().flatten()[:32]).all())
    (32, True)
    """

    def __init__(
        self,
        data: Data,
        fanouts: Sequence[int] = (10, 10),
        batch_size: int = 1024,
        input_nodes: Tensor | None = None,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.data, self.fanouts, self.batch_size = data, check_fanouts(fanouts), check_batch_size(batch_size)
        self.input_nodes = _numbers(input_nodes, int(data.num_nodes))
        self.shuffle, self.generator = shuffle, generator or torch.Generator().manual_seed(0)
        check_edges(data.edge_index, int(data.num_nodes))
        self._neighbours, self._edges = neighbours_by_target(data.edge_index, int(data.num_nodes))
        self._parts = GraphParts(data)

    def __len__(self) -> int:
        return -(-len(self.input_nodes) // self.batch_size)

    def __iter__(self) -> Iterator[Data]:
        count = len(self.input_nodes)
        order = torch.randperm(count, generator=self.generator) if self.shuffle else torch.arange(count)
        key = int(torch.randint(-(2**62), 2**62, (), generator=self.generator))
        for input_id in torch.split(order, self.batch_size):
            yield self.batch(input_id, key)

    def batch(self, input_id: Tensor, key: int) -> Data:
        """The batch of the seeds with these places among the input nodes, drawn with ``key``.

        >>> import graphcal
        >>> graphcal.lab.NeighborSampler(graphcal.lab.synthetic(500, seed=0)).batch(torch.tensor([7, 3]), key=0).n_id[:2].tolist()
        [7, 3]
        """
        drawn = sample(self._neighbours, self.input_nodes[input_id], self.fanouts, key)
        e_id = self._edges[drawn.entries]
        made = self._parts.part(drawn.nodes, torch.stack([drawn.columns, drawn.rows]), e_id)
        made.n_id, made.e_id, made.input_id, made.batch_size = drawn.nodes, e_id, input_id, len(input_id)
        return made


def _numbers(nodes: Tensor | None, num_nodes: int) -> Tensor:
    if nodes is None:
        return torch.arange(num_nodes)
    if nodes.dtype == torch.bool:
        return check_mask(nodes, num_nodes, "input_nodes").nonzero().flatten()
    if nodes.numel() and (int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes):
        raise ValueError(
            f"input_nodes are {int(nodes.min())}..{int(nodes.max())}, but the graph has nodes 0..{num_nodes - 1}"
        )
    return nodes.long()


@dataclass(frozen=True, eq=False)
class Neighbours:
    """A graph as CSR: row i holds the nodes that i reads."""

    offsets: Tensor  # (N + 1,) int64
    indices: Tensor  # (E,) int64

    @property
    def num_nodes(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, eq=False)
class Sampled:
    """Nodes and edges of a batch. The first ``sizes[k]`` nodes are within k hops, the seeds first."""

    nodes: Tensor  # (n,)
    sizes: tuple[int, ...]  # K + 1 numbers
    counts: Tensor  # (sizes[K - 1],) how many neighbours each node reads that is not in the last hop
    columns: Tensor  # (E',) where a neighbour stands in ``nodes``, node after node
    entries: Tensor  # (E',) its number among the entries of the graph

    @property
    def rows(self) -> Tensor:
        """The reader of every entry, by its place in ``nodes``."""  # (E',)
        return torch.repeat_interleave(torch.arange(len(self.counts), device=self.counts.device), self.counts)


def neighbours_by_target(edge_index: Tensor, num_nodes: int) -> tuple[Neighbours, Tensor]:
    """In-neighbours of every node as CSR, and the edge that each entry is; edges run from edge_index[0] to edge_index[1]."""
    order = torch.argsort(edge_index[1], stable=True)
    counts = torch.bincount(edge_index[1], minlength=num_nodes)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Neighbours(offsets, edge_index[0][order].long()), order


def sample(graph: Neighbours, seeds: Tensor, fanouts: Sequence[int], key: int) -> Sampled:
    """The sampled neighbourhood of ``seeds``, hop by hop."""
    position = torch.full((graph.num_nodes,), -1, dtype=torch.long, device=seeds.device)  # in ``nodes``
    position[seeds] = torch.arange(len(seeds), device=seeds.device)
    met, sizes = [seeds], [len(seeds)]
    counts, columns, entries = [], [], []
    for fanout in fanouts:
        count, entry = draw_entries(graph, met[-1], fanout, key)
        read = graph.indices[entry]
        new = torch.unique(read[position[read] < 0])
        position[new] = torch.arange(sizes[-1], sizes[-1] + len(new), device=seeds.device)
        met.append(new)
        sizes.append(sizes[-1] + len(new))
        counts.append(count)
        columns.append(position[read])
        entries.append(entry)
    return Sampled(torch.cat(met), tuple(sizes), torch.cat(counts), torch.cat(columns), torch.cat(entries))


def draw_entries(graph: Neighbours, nodes: Tensor, fanout: int, key: int) -> tuple[Tensor, Tensor]:
    """Number of neighbours that each node reads (n,), and the indices of those entries (sum,), node after node."""
    first = graph.offsets[nodes]
    degree = graph.offsets[nodes + 1] - first
    counts = degree if fanout == ALL else degree.clamp(max=fanout)
    rows = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), counts)
    within = torch.arange(len(rows), device=nodes.device) - (counts.cumsum(0) - counts)[rows]
    cut = degree > counts
    if cut.any():
        within[cut[rows]] = draw_distinct(degree[cut], nodes[cut], fanout, key).flatten()
    return counts, first[rows] + within


def draw_distinct(degree: Tensor, nodes: Tensor, count: int, key: int) -> Tensor:
    """``count`` different numbers below each of ``degree`` (n,), all larger than ``count``: (n, count)"""
    taken = degree.new_full((len(degree), count), -1)
    numbers = random_words(degree.new_tensor([key]), nodes[:, None] * count + torch.arange(count, device=nodes.device))[
        0
    ]
    shares = ((numbers >> 11) & ((1 << 53) - 1)).double() / (1 << 53)  # (n, count) in [0, 1)
    for j in range(count):
        last = degree - count + j
        drawn = (shares[:, j] * (last + 1)).long()
        again = (taken[:, :j] == drawn[:, None]).any(1)
        taken[:, j] = torch.where(again, last, drawn)
    return taken
