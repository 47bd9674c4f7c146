"""Nodes that arrive after a calibration was fitted: hidden with their edges while training and fitting, then let in by waves.

At most a third of the nodes, drawn from the test set, are new; the others stay, their labels unread. The nodes of the result are
numbered in the order of arrival, so that the graph at any time is its first nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.engine.graph_parts import GraphParts

WAVES = 5
NEW = 1 / 3  # of all nodes, at most


@dataclass(frozen=True, eq=False)
class Arrivals:
    """A graph whose nodes are numbered in the order of arrival; ``sizes[w]`` nodes are there after wave w, wave 0 first."""

    graph: Data
    sizes: tuple[int, ...]  # WAVES + 1 numbers

    def after(self, wave: int) -> Data:
        """The graph as it is then. Its test nodes are those that came with the wave; before the first, there is none."""
        end = self.sizes[wave]
        there = GraphParts(self.graph).among(torch.arange(end))
        there.test_mask = torch.zeros(end, dtype=torch.bool)
        if wave > 0:
            there.test_mask[self.sizes[wave - 1] :] = True
        return there

    def complete(self) -> Data:
        """The graph at the end. Its test nodes are all that came."""
        last = self.after(len(self.sizes) - 1)
        last.test_mask[self.sizes[0] :] = True
        return last


def arrivals(data: Data, generator: torch.Generator, waves: int = WAVES) -> Arrivals:
    """The graph with its new nodes last, in ``waves`` of nearly equal size."""
    nodes, test = int(data.num_nodes), data.test_mask.nonzero().flatten()
    new = test[torch.randperm(len(test), generator=generator)][: int(NEW * nodes)]
    if len(new) < waves:
        raise ValueError(f"{len(new)} test nodes cannot arrive in {waves} waves")
    is_new = torch.zeros(nodes, dtype=torch.bool)
    is_new[new] = True
    order = torch.cat([(~is_new).nonzero().flatten(), new])
    ends = [nodes - len(new) + len(new) * wave // waves for wave in range(waves + 1)]
    return Arrivals(_renumbered(data, order), tuple(ends))


def _renumbered(data: Data, order: Tensor) -> Data:
    return GraphParts(data).among(order)
