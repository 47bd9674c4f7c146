"""Neighbour sampling over a CSR graph in plain torch: which in-neighbours of which nodes a batch reads.

    hop 0   = the seeds
    hop k+1 = the nodes not met before among those that hop k reads

A node of degree d with fan-out f reads all its neighbours where d <= f or f = -1, else f of them: uniformly and without
replacement, by Floyd's algorithm (for j = d - f, ..., d - 1: draw t from 0..j; take t, or j if t was taken).

The draws are a function of (key, node, j) alone (SplitMix64, as in `graphcal.lab.engine.dropout`). What a node reads therefore
does not depend on the batch it is in or on the process that draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcal.lab.engine.dropout import random_words

ALL = -1  # a fan-out without limit


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
    """What a batch reads. The first ``sizes[k]`` nodes are those met within k hops, the seeds first."""

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
    place = torch.full((graph.num_nodes,), -1, dtype=torch.long, device=seeds.device)  # in ``nodes``
    place[seeds] = torch.arange(len(seeds), device=seeds.device)
    met, sizes = [seeds], [len(seeds)]
    counts, columns, entries = [], [], []
    for fanout in fanouts:
        count, entry = draw_entries(graph, met[-1], fanout, key)
        read = graph.indices[entry]
        new = torch.unique(read[place[read] < 0])
        place[new] = torch.arange(sizes[-1], sizes[-1] + len(new), device=seeds.device)
        met.append(new)
        sizes.append(sizes[-1] + len(new))
        counts.append(count)
        columns.append(place[read])
        entries.append(entry)
    return Sampled(torch.cat(met), tuple(sizes), torch.cat(counts), torch.cat(columns), torch.cat(entries))


def draw_entries(graph: Neighbours, nodes: Tensor, fanout: int, key: int) -> tuple[Tensor, Tensor]:
    """How many neighbours each node reads (n,), and the numbers of those entries (sum,), node after node."""
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
