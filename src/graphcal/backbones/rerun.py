"""Run a trained model again: on a graph with weighted edges (DCGC), with its dropout active (CaGCN's official loop), or with the
input of its last attention layer moved (SCAR's official GAT code).

A GCN with edge weights w, as PyG's GCNConv reads them, a self loop counting 1:

    A(w) = D^-1/2 (W + I) D^-1/2        D the row sums of W + I        z = A(w) relu(A(w) X W_1 + b_1) W_2 + b_2

X W_1 is computed once. A product A x is one sparse product; the gradient of the entry (i, j) of A is g_i . x_j.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.backbones.dropout import Dropout
from graphcal.backbones.fields import Field
from graphcal.backbones.gat import GATReplicas
from graphcal.backbones.gcn import GCNReplicas
from graphcal.backbones.operators import feature_matrix
from graphcal.backbones.shape import Replicas


def rerun_of(model: Replicas, data: Data) -> WeightedGCN | None:
    """``edge_weight (E,) -> logits (N, C)``, differentiable, of a single replica; None for backbones other than GCN."""
    return WeightedGCN(model, data) if isinstance(model, GCNReplicas) else None


def premixed_of(model: Replicas, everything: Callable[[], Field]) -> Callable[[Tensor], Tensor] | None:
    """``w (N,) -> logits (N, C)`` of a single GAT replica with one output head; None for other backbones.

    SCAR's official GAT code moves x, the *un-aggregated* input of the last layer, and runs the whole attention layer again:
    x <- w W[:, y_hat] + (1 - w) x. Attention changes and a node's shift leaks to its neighbours, so this is not Eq. 10.
    """
    if not isinstance(model, GATReplicas) or model.spec.output_heads != 1:
        return None

    def premixed(weight: Tensor) -> Tensor:
        field = everything()
        with torch.no_grad():
            x = model.hidden(field, None)  # (1, N, D)
            pred = model.last(x, field)[0].argmax(-1)
            centroid = model.head.weight[0].T[pred]  # (N, D)
            w = weight.to(x)[:, None]
            return model.last(w * centroid + (1 - w) * x, field)[0]

    return premixed


def noisy_logits(model: Replicas, everything: Field, generator: torch.Generator) -> Tensor:
    """Logits of one pass of a single replica with dropout active."""  # (N, C)
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.no_grad():
        return model(everything, Dropout([seed], 0))[0]


@dataclass(frozen=True, eq=False)
class Pattern:
    """The places of the non-zero entries of a sparse matrix, by rows and by columns, for values that change."""

    row: Tensor  # (e,) sorted
    col: Tensor  # (e,)
    crow: Tensor  # (N + 1,)
    by_column: Tensor  # (e,) order of the entries in the transpose
    crow_transposed: Tensor  # (N + 1,)

    @classmethod
    def of(cls, row: Tensor, col: Tensor, nodes: int) -> tuple[Pattern, Tensor]:
        """The pattern, and the order that sorts the entries into it."""
        order = torch.argsort(row * nodes + col)
        row, col = row[order], col[order]
        transposed = torch.argsort(col * nodes + row)
        starts = [torch.bincount(index, minlength=nodes).cumsum(0) for index in (row, col)]
        crow, crow_transposed = (torch.cat([s.new_zeros(1), s]) for s in starts)
        return cls(row, col, crow, transposed, crow_transposed), order

    def times(self, values: Tensor, x: Tensor) -> Tensor:
        return _WeightedProduct.apply(self, values, x)  # type: ignore[no-untyped-call]


class _WeightedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(values, x)
        return _csr(pattern.crow, pattern.col, values, (len(pattern.crow) - 1, len(x))) @ x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor | None]:
        pattern, (values, x), g = ctx.pattern, ctx.saved_tensors, gradients[0]
        to_values = (g[pattern.row] * x[pattern.col]).sum(-1)
        if not ctx.needs_input_grad[2]:
            return None, to_values, None
        order = pattern.by_column
        back = _csr(pattern.crow_transposed, pattern.row[order], values[order], (len(x), len(g)))
        return None, to_values, back @ g.contiguous()


def _csr(crow: Tensor, col: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():  # torch calls its CSR layout a beta, once a process
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(crow, col, values, size, check_invariants=False)


@dataclass(frozen=True, eq=False)
class WeightedGCN:
    """A trained GCN as a function of its edge weights, aligned with ``data.edge_index``."""

    model: GCNReplicas  # one replica
    data: Data

    @cached_property
    def _pattern(self) -> tuple[Pattern, Tensor, Tensor]:
        source, target = self.data.edge_index
        other = (source != target).nonzero().flatten()
        loops = torch.arange(int(self.data.num_nodes), device=source.device)
        row, col = torch.cat([target[other], loops]), torch.cat([source[other], loops])
        pattern, order = Pattern.of(row, col, len(loops))
        return pattern, order, other

    @cached_property
    def _first(self) -> Tensor:
        first: Any = self.model.convs[0]
        x = feature_matrix(self.data.x) @ first.weight[0].detach().cpu().numpy()
        return torch.from_numpy(x).to(self.model.head.weight)  # (N, H) X W_1

    def __call__(self, edge_weight: Tensor) -> Tensor:
        pattern, order, other = self._pattern
        edge_weight = edge_weight.to(self.model.head.weight)
        w = torch.cat([edge_weight[other], edge_weight.new_ones(int(self.data.num_nodes))])[order]  # (e,)
        degree = w.new_zeros(int(self.data.num_nodes)).index_add(0, pattern.row, w)
        scale = degree.clamp(min=1e-6).rsqrt()
        values = w * scale[pattern.row] * scale[pattern.col]
        h = self._first
        layers: Any = self.model.convs
        for k, conv in enumerate(layers):
            h = h if k == 0 else h @ conv.weight[0].detach()
            h = (pattern.times(values, h) + _bias(conv)).relu()
        return pattern.times(values, h @ self.model.head.weight[0].detach()) + _bias(self.model.head)


def _bias(layer: Any) -> Tensor | float:
    return 0.0 if layer.bias is None else layer.bias[0].detach()
