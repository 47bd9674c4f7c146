"""Mini-batches of a graph too large for a pass: seeds, and a sample of what they read.

Sampling          how `graphcal.lab.train` reads a large graph
NeighborSampler   batches in the shape of PyG's NeighborLoader, in plain torch: for your own loop, for observing, for serving

PyG's own loaders need a compiled extension (pyg-lib or torch-sparse). Where it is installed their batches serve equally well: a
batch is a `Data` with ``x``, ``edge_index``, ``n_id``, ``input_id`` and ``batch_size``, its seeds first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.checks import check_edges, check_mask
from graphcal.engine.graph_parts import GraphParts
from graphcal.lab.engine.sampling import ALL, neighbours_by_target, sample


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


@dataclass(frozen=True)
class Sampling:
    """How `graphcal.lab.train` reads a large graph: ``batch_size`` nodes at a time, ``fanouts`` neighbours in each hop.

    >>> import graphcal as gc
    >>> data = gc.lab.synthetic(500, seed=0)
    >>> gc.lab.train(data, "sage", gc.lab.Training(epochs=3), seeds=1, loader=Sampling((5, 5), batch_size=32))[0].outputs
    Outputs(500 nodes, 5 classes, final layer known)
    """

    fanouts: tuple[int, ...] = (10, 10)  # one per hop of the model; -1: all neighbours
    batch_size: int = 1024  # seeds of a step, over all processes

    def __post_init__(self) -> None:
        check_fanouts(self.fanouts)
        check_batch_size(self.batch_size)


class NeighborSampler:
    """Batches of a graph as PyG's NeighborLoader gives them, without a compiled extension.

    ``input_nodes`` (a mask or numbers; all nodes if None) are the seeds. Each pass draws anew from ``generator``.

    >>> import graphcal as gc
    >>> data = gc.lab.synthetic(500, seed=0)
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

        >>> import graphcal as gc
        >>> gc.lab.NeighborSampler(gc.lab.synthetic(500, seed=0)).batch(torch.tensor([7, 3]), key=0).n_id[:2].tolist()
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
