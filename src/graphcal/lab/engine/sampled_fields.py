"""Receptive fields whose hops are samples of the propagation matrix A: what a mini-batch of a large graph computes.

    hops[k] = sampled rows of A:   A_ii as it is,   A_ij d_i / k_i for the k_i neighbours read of d_i,   else 0

So the sampled product is an unbiased estimate of A H, with the degrees of the whole graph: a model that is trained on batches
can be run on the whole graph afterwards. For the mean (GraphSAGE) it is the mean over the neighbours that are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from graphcal.lab.engine.features import Features
from graphcal.lab.engine.receptive import GraphInput, ReceptiveField
from graphcal.lab.engine.sampling import Neighbours, Sampled, sample
from graphcal.lab.engine.sparse import Sparse


class SampledFields:
    """Cuts sampled fields, one fan-out per hop of the model, out of one graph."""

    def __init__(self, graph: GraphInput, fanouts: Sequence[int]) -> None:
        self.graph, self.fanouts = graph, tuple(fanouts)
        whole = graph.operator.tocsr()
        readers = np.repeat(np.arange(whole.shape[0], dtype=whole.indices.dtype), np.diff(whole.indptr))
        other = whole.indices != readers
        self.values = torch.from_numpy(whole.data[other])  # (E,)
        counts = np.bincount(readers[other], minlength=whole.shape[0])
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
        self.neighbours = Neighbours(offsets, torch.from_numpy(whole.indices[other].astype(np.int64)))
        # A_ii (N,), where A has a diagonal
        self.diagonal = None if other.all() else torch.from_numpy(whole.diagonal().astype(np.float32))

    def field(self, seeds: Tensor, key: int) -> ReceptiveField:
        """The field of a pass that computes the outputs of ``seeds``, drawn with ``key``."""
        if not self.fanouts:
            return self._field(seeds, [len(seeds)], None)
        drawn = sample(self.neighbours, seeds, self.fanouts, key)
        return self._field(drawn.nodes, drawn.sizes, self._read(drawn))

    def _field(self, nodes: Tensor, sizes: Sequence[int], hop: Sparse | None) -> ReceptiveField:
        graph, levels = self.graph, [nodes[:size] for size in reversed(sizes)]  # input first

        def features(level: int) -> Features:
            return Features(graph.x, levels[level].numpy(), graph.device)

        return ReceptiveField(
            nodes=[level.to(graph.device) for level in levels],
            hops=[] if hop is None else [_first_rows(hop, len(up), len(low)) for low, up in itertools.pairwise(levels)],
            x=features(0),
            self_index=[slice(len(level)) for level in levels[1:]],
            x1=cache(lambda: features(1)) if hop is not None else None,
            input_dropout=graph.input_dropout,
        )

    def _read(self, drawn: Sampled) -> Sparse:
        """The sampled rows of A of every node that reads, its own entry first."""
        readers, rows = drawn.nodes[: len(drawn.counts)], drawn.rows
        degree = self.neighbours.offsets[readers + 1] - self.neighbours.offsets[readers]
        scale = (degree / drawn.counts.clamp(min=1)).float()
        values, columns, entries, counts = (
            self.values[drawn.entries] * scale[rows],
            drawn.columns,
            drawn.entries,
            drawn.counts,
        )
        if self.diagonal is not None:
            own = torch.arange(len(readers))
            order = torch.argsort(torch.cat([own, rows]), stable=True)
            values = torch.cat([self.diagonal[readers], values])[order]
            columns = torch.cat([own, columns])[order]
            entries = torch.cat([len(self.values) + readers, entries])[order]
            counts = counts + 1
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        device = self.graph.device
        made = Sparse(
            offsets.int().to(device),
            columns.int().to(device),
            values.to(device),
            (len(readers), len(drawn.nodes)),
        )
        made.entries = entries.to(device)
        return made


def _first_rows(matrix: Sparse, rows: int, columns: int) -> Sparse:
    """The first rows, which have no entry beyond the first columns."""
    end = int(matrix.offsets[rows])
    made = Sparse(matrix.offsets[: rows + 1], matrix.indices[:end], matrix.values[:end], (rows, columns))
    made.entries = matrix.entries[:end]
    return made
