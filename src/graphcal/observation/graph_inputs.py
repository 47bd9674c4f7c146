"""Read the graph of the nodes that get a class off the inputs of a model: a plain `Data`."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from graphcal.observation.calls import ALIASES, Call, unwrapped

KEPT = ("x", "y", "train_mask", "val_mask", "test_mask", "class_names", "n_id", "input_id", "batch_size")


def homogeneous(data: Data | HeteroData, node_type: str | None = None) -> Data:
    """The graph of one node type: its features, labels and masks, and the edges among its nodes. A `Data` is that already."""
    if isinstance(data, Data):
        if data.get("edge_index") is None and data.get("adj_t") is not None:
            data = data.clone()
            data.edge_index = edges_of(data.adj_t)
        return data
    store = data[type_of(data, node_type)]
    graph = Data(**{key: store[key] for key in KEPT if key in store}, num_nodes=store.num_nodes)
    edges = [data[kind].edge_index for kind in data.edge_types if kind[0] == kind[2] == type_of(data, node_type)]
    if edges:
        graph.edge_index = torch.cat([e if isinstance(e, Tensor) else edges_of(e) for e in edges], 1)
    return graph


def type_of(data: HeteroData, node_type: str | None) -> str:
    """The node type that gets a class: the one named, or the only one with labels."""
    if node_type is not None:
        if node_type not in data.node_types:
            raise ValueError(f"node_type={node_type!r} is not in the data, which has {', '.join(data.node_types)}")
        return node_type
    labelled = [name for name in data.node_types if data[name].get("y") is not None]
    if len(labelled) != 1:
        raise ValueError(
            f"say which nodes get a class: node_type= one of {', '.join(data.node_types)} "
            f"({'none has' if not labelled else ', '.join(labelled) + ' have'} labels y)"
        )
    return str(labelled[0])


def edges_of(adjacency: Any) -> Tensor:
    """edge_index (2, E), source over target, of a transposed adjacency: a torch sparse tensor or PyG's SparseTensor."""
    if isinstance(adjacency, Tensor):
        target, source = adjacency.to_sparse_coo().coalesce().indices()
    else:
        target, source, _ = adjacency.coo()
    return torch.stack([source, target])


def is_adjacency(value: Any) -> bool:
    """A square sparse matrix."""
    sparse = isinstance(value, Tensor) and value.layout != torch.strided and value.dim() == 2
    return (sparse and value.shape[0] == value.shape[1]) or type(value).__name__ == "SparseTensor"


def graph_of_call(model: nn.Module, call: Call, node_type: str | None = None) -> Data | None:
    """The graph among the arguments of a call; None when there is none. It has no labels, and masks only from a `Data`."""
    given: dict[str, Any] = {}
    for name, value in _bound(model, call).items():
        if isinstance(value, Data | HeteroData):
            graph = homogeneous(value, node_type)
            return Data(**{k: v for k, v in graph.to_dict().items() if k != "y"})
        named = value if name in ("args", "kwargs") and isinstance(value, dict) else {name: value}
        given.update({ALIASES.get(key, key): tensor for key, tensor in named.items()})
    edges, x = given.get("edge_index", given.get("edge_index_dict")), given.get("x", given.get("x_dict"))
    if isinstance(edges, dict):
        return _graph_of_dicts(x, edges, node_type)
    if not isinstance(edges, Tensor) or is_adjacency(edges):
        adjacency = [value for value in given.values() if is_adjacency(value)]
        if not adjacency:
            return None
        edges = edges_of(adjacency[0])
    graph = Data(x=x if isinstance(x, Tensor) else None, edge_index=edges)
    if isinstance(given.get("n_id"), Tensor):
        graph.n_id = given["n_id"]
    return graph


def _bound(model: nn.Module, call: Call) -> dict[str, Any]:
    signature = inspect.signature(unwrapped(model).forward)
    try:
        return dict(signature.bind(*call.args, **call.kwargs).arguments)
    except TypeError as error:
        raise ValueError(
            f"{type(unwrapped(model)).__name__}.forward{signature} was called otherwise: {error}"
        ) from None


def _graph_of_dicts(x: Any, edges: dict[Any, Tensor], node_type: str | None) -> Data | None:
    types = list(x) if isinstance(x, dict) else []
    if node_type is None:
        raise ValueError(
            f"the model was called with dicts: CalibratedModel(..., node_type=) one of {', '.join(map(str, types))}"
        )
    among = [e for kind, e in edges.items() if kind[0] == kind[-1] == node_type]
    features = x.get(node_type) if isinstance(x, dict) else None
    graph = Data(x=features)
    if among:
        graph.edge_index = torch.cat(
            [e if isinstance(e, Tensor) and not is_adjacency(e) else edges_of(e) for e in among], 1
        )
    return graph
