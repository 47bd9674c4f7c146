"""Bad input is refused by name: what is wrong, what came, and what to do about it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch_geometric.data import Data

LARGEST = 1e15  # a logit: squares, and sums of them over many nodes, stay within single precision


def as_float(values: Any) -> Tensor:
    """Convert to single precision or better: half precision has too few digits to calibrate in."""
    tensor = torch.as_tensor(values)
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def check_logits(logits: Tensor) -> None:
    if not isinstance(logits, Tensor) or logits.dim() != 2 or not logits.is_floating_point():
        came = f"{tuple(logits.shape)} of {logits.dtype}" if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"logits must be a floating (N, C) tensor; got {came}")
    if logits.shape[1] < 2:
        raise ValueError(
            f"logits must have at least two classes (columns); got {logits.shape[1]}. One logit z of a binary model is the two "
            "logits (0, z), as observe writes it"
        )
    broken = ~torch.isfinite(logits).all(-1)
    if broken.any():
        row = int(broken.nonzero()[0])
        raise ValueError(
            f"logits are not finite in {int(broken.sum())} of {len(logits)} rows (first: row {row}: "
            f"{logits[row].tolist()}); look for overflow or missing features in the model"
        )
    if len(logits) and float(logits.detach().abs().max()) > LARGEST:
        row = int(logits.detach().abs().amax(-1).argmax())
        raise ValueError(
            f"logits reach {float(logits[row].detach().abs().max()):.3g} (row {row}); beyond {LARGEST:.0e} their squares "
            "overflow, and every probability is 0 or 1 long before: look for what blew up in the model"
        )
    if len(logits) and normalisation_of(logits) == "probabilities":
        raise ValueError(
            "logits were expected, but every row is non-negative and sums to 1: these are probabilities. Return the "
            "model's output before its softmax (or pass log(p), which softmax maps back to p, if nothing else is left)"
        )


def normalisation_of(values: Tensor, rounding: float = 1e-4) -> str | None:
    """'probabilities', 'log-probabilities' or None: what rows of these values could only be by intent."""
    rows = values.double()
    if (rows >= 0).all() and torch.allclose(rows.sum(-1), rows.new_ones(()), atol=rounding):
        return "probabilities"
    if (rows <= 1e-6).all() and torch.allclose(rows.logsumexp(-1), rows.new_zeros(()), atol=rounding):
        return "log-probabilities"
    return None


MASKS = ("train_mask", "val_mask", "test_mask")


def check_graph(graph: Data, nodes: int, classes: int) -> None:
    if graph.num_nodes is not None and int(graph.num_nodes) != nodes:
        unsaid = "num_nodes" not in graph and graph.get("x") is None
        hint = f"; if its last nodes have no edges, say so: Data(..., num_nodes={nodes})" if unsaid else ""
        raise ValueError(f"logits have {nodes} rows, but the graph has {graph.num_nodes} nodes{hint}")
    if graph.get("edge_index") is not None:
        check_edges(graph.edge_index, nodes)
    in_a_mask = torch.zeros(nodes, dtype=torch.bool)
    for name in MASKS:
        if graph.get(name) is not None:
            in_a_mask |= check_mask(graph[name], nodes, name, may_be_empty=True).cpu()
    if graph.get("train_mask") is not None and graph.get("val_mask") is not None:
        both = graph.train_mask & graph.val_mask
        if both.any():
            raise ValueError(
                f"train_mask and val_mask share {int(both.sum())} nodes (first: node {int(both.nonzero()[0])}); calibration "
                "needs nodes the model was not trained on: take them out of one of the two"
            )
    warn_of_overlap(graph)
    if graph.get("y") is not None:
        check_labels(graph.y, nodes, classes, in_a_mask)


def warn_of_overlap(graph: Data) -> None:
    """A test node whose label was trained or fitted on says nothing about new nodes; some published splits have such nodes."""
    test = graph.get("test_mask")
    for name, use in (("train_mask", "trained"), ("val_mask", "fitted")):
        mask = graph.get(name)
        shared = 0 if test is None or mask is None else int((test & mask).sum())
        if shared:
            warnings.warn(
                f"{shared} test nodes are also in {name}: their labels are {use} on, so what is measured there is too good",
                stacklevel=5,  # whoever made the Outputs
            )


def check_edges(edge_index: Tensor, nodes: int) -> None:
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
        raise ValueError(f"edge_index must be (2, E) integers; got {tuple(edge_index.shape)} of {edge_index.dtype}")
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= nodes):
        raise ValueError(
            f"edge_index names nodes {int(edge_index.min())}..{int(edge_index.max())}, but the graph has nodes 0..{nodes - 1}"
        )


def check_labels(y: Tensor, nodes: int, classes: int, in_a_mask: Tensor) -> None:
    if y.dim() != 1 or len(y) != nodes or y.is_floating_point():
        several = " (graphcal calibrates classifiers that give each node one class)" if y.dim() == 2 else ""
        raise ValueError(f"labels y must be {nodes} integers; got {tuple(y.shape)} of {y.dtype}{several}")
    unlabelled = (y.cpu() == -1) & ~in_a_mask  # -1: "no label", allowed outside the masks
    wrong = ((y.cpu() < 0) | (y.cpu() >= classes)) & ~unlabelled
    if wrong.any():
        node = int(wrong.nonzero()[0])
        raise ValueError(
            f"labels must be 0..{classes - 1} (the logits have {classes} classes); {int(wrong.sum())} are not "
            f"(first: node {node} has {int(y[node])}). A node without a label takes -1 and stays out of every mask"
        )


def check_mask(mask: Any, nodes: int, name: str, may_be_empty: bool = False) -> Tensor:
    """A choice of nodes as a boolean (N,) tensor: from a boolean mask or from node numbers, as tensor, array or list."""
    tensor = _mask_or_numbers(mask, nodes, name)
    if tensor.dtype != torch.bool:
        _check_distinct(tensor, nodes, name)
        tensor = torch.zeros(nodes, dtype=torch.bool, device=tensor.device).index_fill(0, tensor, True)
    if not may_be_empty and not tensor.any():
        raise ValueError(f"{name} selects no node. Pass a mask or node numbers that select at least one.")
    return tensor


def check_numbers(mask: Any, nodes: int, name: str) -> Tensor:
    """The same choice as sorted node numbers (n,); no mask is made of numbers, so many small sets are cheap."""
    tensor = _mask_or_numbers(mask, nodes, name)
    if tensor.dtype == torch.bool:
        return tensor.nonzero().flatten()
    if len(tensor) == nodes:  # a number may come twice, but a mask of integers is no list of numbers
        _check_distinct(tensor, nodes, name)
    numbers: Tensor = tensor.unique()
    return numbers


def _mask_or_numbers(mask: Any, nodes: int, name: str) -> Tensor:
    """A boolean mask (N,) or node numbers (n,), of the right form and range."""
    came = type(mask).__name__
    try:
        tensor = torch.as_tensor(mask)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{name} must be a boolean mask with one entry per node, or node numbers; got {came}"
        ) from None
    if (
        tensor.dtype == torch.uint8 and tensor.shape == (nodes,) and bool((tensor <= 1).all())
    ):  # a mask as older torch wrote them
        tensor = tensor.bool()
    if isinstance(mask, Sequence) and len(mask) == 0:
        tensor = tensor.long()
    if tensor.dim() != 1 or tensor.is_floating_point() or tensor.is_complex():
        came = f"{tuple(tensor.shape)} of {tensor.dtype}"
        several = f": choose one of the splits, {name}[:, 0]" if tensor.dim() == 2 else ""
        raise ValueError(f"{name} must be a boolean mask with one entry per node, or node numbers; got {came}{several}")
    if tensor.dtype == torch.bool:
        if len(tensor) != nodes:
            raise ValueError(f"{name} has {len(tensor)} entries, but there are {nodes} nodes")
        return tensor
    ids = tensor.long()
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= nodes):
        raise ValueError(f"{name} names nodes {int(ids.min())}..{int(ids.max())}, but there are nodes 0..{nodes - 1}")
    return ids


def _check_distinct(ids: Tensor, nodes: int, name: str) -> None:
    if len(ids) != len(ids.unique()):
        hint = ": a mask of zeros and ones is given as mask.bool()" if len(ids) == nodes else ""
        raise ValueError(f"{name} names {len(ids) - len(ids.unique())} nodes more than once{hint}")


def normalise_masks(graph: Data, nodes: int) -> Data:
    """The graph with boolean masks and labels (N,), whatever form they came in; the same object where that is so already."""
    changed: dict[str, Tensor] = {}
    for name in MASKS:
        mask = graph.get(name)
        if mask is not None and not (isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() == 1):
            changed[name] = check_mask(mask, nodes, name, may_be_empty=True)
    y = graph.get("y")
    if y is not None and (not isinstance(y, Tensor) or (y.dim() == 2 and y.shape[1] == 1)):
        changed["y"] = torch.as_tensor(y).reshape(-1) if torch.as_tensor(y).dim() <= 2 else y
    edges = graph.get("edge_index")
    if edges is not None and not isinstance(edges, Tensor):
        changed["edge_index"] = torch.as_tensor(edges)
    if not changed:
        return graph
    tidy = copy.copy(graph)
    for name, value in changed.items():
        tidy[name] = value
    return tidy
