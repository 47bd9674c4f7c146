"""A part of a graph with all that is known of its nodes and edges, as a PyG `Data`."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data


class GraphParts:
    """Cuts parts out of one graph. Sparse features come out as plain rows."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def part(self, nodes: Tensor, edge_index: Tensor, edges: Tensor) -> Data:
        """The part with these nodes; ``edge_index`` joins them by their places, ``edges`` are the numbers of those edges."""
        made = Data(edge_index=edge_index, num_nodes=len(nodes))
        for name, value in self.data.to_dict().items():
            if name not in ("edge_index", "num_nodes"):
                made[name] = self._cut(name, value, nodes, edges)
        return made

    def among(self, nodes: Tensor) -> Data:
        """The part with these nodes, each given once, and all edges among them."""
        position = torch.full((int(self.data.num_nodes),), -1, device=nodes.device)
        position[nodes] = torch.arange(len(nodes), device=nodes.device)
        edges = (position[self.data.edge_index] >= 0).all(0).nonzero().flatten()
        return self.part(nodes, position[self.data.edge_index[:, edges]], edges)

    def _cut(self, name: str, value: Any, nodes: Tensor, edges: Tensor) -> Any:
        if isinstance(value, Tensor) and value.layout != torch.strided:
            return torch.from_numpy(self._sparse_x[nodes.cpu().numpy()].toarray()) if name == "x" else value
        if not isinstance(value, Tensor | np.ndarray):
            return value
        index = nodes if self.data.is_node_attr(name) else edges if self.data.is_edge_attr(name) else None
        if index is None:
            return value
        return value[index] if isinstance(value, Tensor) else value[index.cpu().numpy()]

    @cached_property
    def _sparse_x(self) -> sp.csr_matrix:
        return feature_matrix(self.data.x)


def feature_matrix(x: Tensor) -> sp.csr_matrix:
    """The input as a scipy matrix, from a dense or a sparse tensor."""
    x = x.detach().cpu()
    if x.layout == torch.strided:
        return sp.csr_matrix(x.numpy())
    x = x if x.layout == torch.sparse_csr else x.to_sparse_csr()
    return sp.csr_matrix((x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()), shape=tuple(x.shape))
