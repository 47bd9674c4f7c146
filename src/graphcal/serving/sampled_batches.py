"""Look up the context of nodes in a sampled batch, whose neighbours are missing.

    table = calibrate.context_of(out)   (N, K), computed once on the whole graph
    rows  = table[n_id]                 of a batch; NaN for a node that is newer than the table: it gets the plain form

A sampled batch is recognised by what samplers leave in it (``n_id``, ``input_id``, ``batch_size``), or by its edges: a sample of
an undirected graph has edges without their reverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.graphs import is_undirected


def is_sampled(graph: Data, fitted_on: Mapping[str, Any]) -> bool:
    """Return whether neighbours are missing. ``fitted_on`` describes the graph that the calibration was fitted on."""
    if graph.get("n_id") is not None or graph.get("input_id") is not None:
        return True
    seeds = graph.get("batch_size")
    if isinstance(seeds, int) and graph.num_nodes is not None and seeds < int(graph.num_nodes):
        return True
    edges = graph.get("edge_index")
    return bool(fitted_on.get("undirected")) and edges is not None and not is_undirected(edges)


def rows_of(table: Tensor, n_id: Tensor) -> Tensor:
    """The rows of the nodes with these numbers; NaN for a node that came after the table was made."""  # (n, K)
    n_id = torch.as_tensor(n_id)
    if n_id.dim() != 1 or n_id.is_floating_point() or n_id.dtype in (torch.bool, torch.uint8):
        raise ValueError(f"n_id must be node numbers (n,), integers; got {tuple(n_id.shape)} of {n_id.dtype}")
    if n_id.numel() and int(n_id.min()) < 0:
        raise ValueError(f"n_id must be node numbers from 0; got {int(n_id.min())}")
    n_id = n_id.long()
    in_table = n_id < len(table)
    rows = table[n_id[in_table].to(table.device)].to(n_id.device)
    return rows.new_full((len(n_id), table.shape[1]), torch.nan).masked_scatter(in_table[:, None], rows)
