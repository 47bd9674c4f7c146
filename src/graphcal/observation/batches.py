"""Observing a model on a graph that is too large for one pass: layer by layer, or batch by batch.

by_layers    the logits of the whole graph, exactly: each message-passing layer works through its target nodes in chunks
by_batches   the logits of each batch's seeds, put together for all nodes: what a model says where it is served by batches

The final layer is read off a small part of the graph (it is the model's, not the graph's). The representations h^(K) are not
kept: a calibration needs the logits and the final layer alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from graphcal.checks import as_float
from graphcal.core import Outputs
from graphcal.engine.graph_parts import GraphParts
from graphcal.engine.target_chunks import by_target_chunks, message_passing_layers
from graphcal.observation.calls import called, evaluating, picked
from graphcal.observation.endings import logits_of
from graphcal.observation.seen_models import two_columns
from graphcal.observation.watching import watched

SMALL = 200  # edges of the part on which the final layer is read
See = Callable[[Data], Outputs]


@dataclass(frozen=True, eq=False)
class OnePass:
    """One pass of a model, for its logits alone; ``call`` and ``pick`` as in `observe`."""

    model: nn.Module
    call: Callable[[nn.Module, Any], Any] | None = None
    pick: Any = None

    def __call__(self, data: Data) -> Tensor:
        name = type(self.model).__name__

        def output() -> Tensor:
            call = self.call or called
            return as_float(picked(call(self.model, data), self.pick, name))

        with torch.no_grad(), evaluating(self.model):
            logits, _ = logits_of(*watched(output, gates=False), name)
        return two_columns(logits).detach()


def by_layers(model: nn.Module, data: Any, see: See, run: OnePass) -> Outputs:
    """``see`` observes a small graph, ``run`` gives the logits (N, C) of any graph."""
    if not isinstance(data, Data):
        raise ValueError(f"layerwise=True is for a graph with one kind of nodes, a Data; got {type(data).__name__}")
    own = hasattr(model, "final_representation")  # graphcal's models form no messages
    if not own and not message_passing_layers(run.model):
        raise ValueError(
            f"{type(model).__name__} has no message-passing layer of PyG, so there is nothing to run by parts: observe it "
            "without layerwise=True, or batch by batch with loader=NeighborSampler(data, fanouts)"
        )
    final = see(small_part(data)).final
    with by_target_chunks(run.model):
        return Outputs(run(data), data, final)


def small_part(data: Data) -> Data:
    """The ends of a few edges, with all that is known of them."""
    nodes = torch.arange(min(SMALL, int(data.num_nodes)), device=data.edge_index.device)
    return GraphParts(data).among(torch.cat([nodes, data.edge_index[:, :SMALL].flatten()]).unique())


def by_batches(model: nn.Module, loader: Iterable[Data], data: Any, see: See, run: OnePass) -> Outputs:
    """``see`` and ``run`` as in `by_layers`; the graph is the loader's own unless ``data`` is given."""
    graph = getattr(loader, "data", None) if data is None else data
    if isinstance(graph, HeteroData):
        raise ValueError(
            "loader= is for a graph with one kind of nodes, a Data; got HeteroData: observe it in one pass"
        )
    if not isinstance(graph, Data):
        raise ValueError(
            f"the loader {type(loader).__name__} does not hold its graph: give it too, observe(model, data, loader=loader)"
        )
    nodes, final = int(graph.num_nodes), None
    logits, seen = torch.empty(0), torch.zeros(nodes, dtype=torch.bool)
    for number, batch in enumerate(loader):
        seeds = seeds_of(batch)
        if number == 0:
            final = see(_all_seeds(batch)).final
        said = run(batch)
        if len(said) not in (len(seeds), int(batch.num_nodes)):
            raise ValueError(
                f"{type(model).__name__} gave {len(said)} rows for a batch of {batch.num_nodes} nodes with {len(seeds)} seeds: "
                "logits of all nodes of a batch, or of its seeds, are expected"
            )
        if number == 0:
            logits = said.new_zeros(nodes, said.shape[1])
        logits[seeds] = said[: len(seeds)]
        seen[seeds] = True
    if not seen.all():
        raise ValueError(
            f"{int((~seen).sum())} of {nodes} nodes were a seed in no batch (first: node {int((~seen).nonzero()[0])}), so "
            "nothing is known of them: let the loader go through all nodes (input_nodes=None)"
        )
    return Outputs(logits, graph, final)


def _all_seeds(batch: Data) -> Data:
    """The batch as if made for all its nodes: a model that answers for the seeds alone then answers for all."""
    every = copy.copy(batch)
    every.batch_size = int(batch.num_nodes)
    return every


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
