"""Order of nodes for random draws, independent of how nodes are numbered.

Nodes are taken in the order of their logits. Dropout masks and folds are drawn along that order, so renumbering the graph
renumbers the calibrated result and changes nothing else.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphcal.checks import check_mask
from graphcal.core import Outputs, fitting_nodes


def canonical_order(logits: Tensor, mask: Tensor) -> Tensor:
    """Indices of the nodes in ``mask``, sorted by their logits."""
    nodes = mask.nonzero().flatten()
    columns = logits[nodes, :4].cpu().numpy()
    return nodes[torch.from_numpy(np.lexsort(columns.T)).to(nodes.device)]


def fitting_order(out: Outputs, on: Tensor) -> Tensor:
    """The checked fitting nodes, in canonical order."""
    return canonical_order(out.logits, fitting_nodes(out, on))


def stopping_order(out: Outputs, stop: Tensor | None, fitted: Tensor) -> Tensor:
    """The nodes whose NLL decides when to stop: those of the mask ``stop`` in canonical order, or the fitted ones."""
    if stop is None:
        return fitted
    stop = check_mask(stop, out.num_nodes, "stop").to(out.logits.device)
    if int(out.graph.y[stop].min()) < 0:
        raise ValueError(f"stop selects {int((out.graph.y[stop] < 0).sum())} nodes without a label (y = -1)")
    return canonical_order(out.logits, stop)


def training_nodes(out: Outputs) -> Tensor | None:
    """The mask of the training nodes, where there are any: they stop a network that would learn the fitted nodes by heart."""
    train: Tensor | None = out.graph.get("train_mask")
    return train if train is not None and train.any() else None


def kfold(count: int, folds: int, generator: torch.Generator) -> list[Tensor]:
    """Index sets of a random partition of 0..count-1 into ``folds`` parts of nearly equal size."""
    order = torch.randperm(count, generator=generator)
    return [order[fold::folds] for fold in range(folds)]
