"""What a graph and its nodes are known by: their content, never their number.

    fingerprint   of a graph: a hash of its nodes' count, its edges and its training nodes, as they are numbered
    node_keys     of every node: a hash of its features and of its neighbours' features, however the nodes are numbered

A calibration that treats nodes near the training set in a way of their own ships the keys of the training nodes. Append a node
elsewhere, renumber the graph, serve a part of it: they are recognised. On another graph, or when its features or its neighbours
have changed, a node is one like any other.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data

from graphcal.graphs import structure

ROWS = 1 << 16  # features are hashed in parts of this many rows
MIX = -7046029254386353131  # 2^64 / golden ratio, odd, as a signed integer


def fingerprint(graph: Data) -> str | None:
    """64 bits, as hexadecimal digits, that do not depend on the order of the edges; None without edges."""
    edges, train = graph.get("edge_index"), graph.get("train_mask")
    if edges is None:
        return None
    source, target = edges.long()
    parts = [torch.tensor([int(graph.num_nodes)]), _scrambled(_scrambled(source) + target)]
    if train is not None:
        parts.append(_scrambled(train.nonzero().flatten() - MIX))
    sums = torch.stack([_scrambled(part.sum()).cpu() for part in parts])
    return f"{int(_scrambled(sums + torch.arange(len(sums))).sum()) & (2**64 - 1):016x}"


def is_undirected(edge_index: Tensor) -> bool:
    """Every edge comes with its reverse; how often an edge is repeated does not matter."""
    if not edge_index.shape[1]:
        return True
    source, target = edge_index.long()
    nodes = int(edge_index.max()) + 1
    return torch.equal(torch.unique(source * nodes + target), torch.unique(target * nodes + source))


def node_keys(graph: Data) -> Tensor | None:
    """One 64-bit integer per node, (N,); None where the nodes have no features."""
    x = graph.get("x")
    if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[0] != graph.num_nodes:
        return None
    own = _features_keys(x)
    if graph.get("edge_index") is None:
        return own
    source, target = structure(graph).edge_index
    around = torch.zeros_like(own).index_add_(0, target, own[source])
    return own + _scrambled(around)


_memo: WeakIdKeyDictionary = (
    WeakIdKeyDictionary()
)  # features -> (their version, keys): ten fits on one graph share them


def _features_keys(x: Tensor) -> Tensor:
    known = _memo.get(x)
    if known is None or known[0] != x._version:
        known = _memo[x] = (x._version, _scrambled(_hashed_rows(x)))
    keys: Tensor = known[1]
    return keys


def _hashed_rows(x: Tensor) -> Tensor:
    """sum_f bits(x_nf) r_f modulo 2^64, with fixed odd r: linear, so zeros need not be stored."""
    factors = torch.from_numpy(_odd_numbers(x.shape[1])).to(x.device)
    if x.layout != torch.strided:
        entries = x.to_sparse_coo().coalesce()
        (row, column), bits = entries.indices(), _bits(entries.values())
        return torch.zeros(x.shape[0], dtype=torch.long, device=x.device).index_add_(0, row, bits * factors[column])
    return torch.cat([(_bits(part) * factors).sum(-1) for part in x.split(ROWS)])


def _bits(values: Tensor) -> Tensor:
    """The bits of single-precision numbers; those of zero, of either sign, are 0."""
    return (values.detach().float() + 0.0).contiguous().view(torch.int32).long()


def _odd_numbers(count: int) -> np.ndarray:
    """The first outputs of SplitMix64, made odd."""
    state = (np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    odd: np.ndarray = ((state ^ (state >> np.uint64(31))) | np.uint64(1)).view(np.int64)
    return odd


def _scrambled(keys: Tensor) -> Tensor:
    """So that sums of keys of different nodes do not cancel."""
    keys = (keys ^ (keys >> 32)) * MIX
    return (keys ^ (keys >> 29)) * MIX
