"""Call a model: take its arguments from the data by the names in its signature, and the logits from what it returns.

    forward(x, edge_index)            data.x, data.edge_index
    forward(x, edge_index, edge_weight=None, edge_attr=None)    these too, where the data has them
    forward(x, adj_t)                 data.adj_t, or the transposed adjacency made from the edges
    forward(data)                     the data itself
    forward(x_dict, edge_index_dict)  of a HeteroData

Labels and masks are never handed to a model. `graph_of_call` goes the other way: the graph, a plain `Data`, among the arguments.
"""

from __future__ import annotations

import copy
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from graphcal.graphs import csr

Graph: TypeAlias = "Data | HeteroData"
ALIASES = {
    **dict.fromkeys(("features", "feature", "feats", "feat", "inputs", "input"), "x"),
    **dict.fromkeys(("edges", "edge_list", "edge_indices"), "edge_index"),
    **dict.fromkeys(("adj", "adjacency", "adj_mat", "a_hat"), "adj_t"),
}
WHOLE = ("data", "graph", "g", "batch")  # the name of a parameter that takes the whole graph
NEVER = ("y", "train_mask", "val_mask", "test_mask")
ADVICE = "pass call=lambda model, data: ... that calls it"


@dataclass(frozen=True)
class Call:
    """The arguments of one call of a model."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside ``torch.compile`` or a data-parallel wrapper, whose signature and layers can be seen."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = model.module
        if inner is None:
            return model
        model = inner


_modes: dict[nn.Module, tuple[int, bool]] = {}  # of modules in use: by how many calls, and the mode to go back to
_modes_lock = threading.Lock()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set evaluation mode; a module returns to its previous mode when the last call that uses it, in any thread, is done."""
    modules = list(model.modules())
    with _modes_lock:
        for module in modules:
            users, mode = _modes.get(module, (0, module.training))
            _modes[module] = (users + 1, mode)
        model.eval()
    try:
        yield
    finally:
        with _modes_lock:
            for module in modules:
                users, mode = _modes.pop(module)
                if users > 1:
                    _modes[module] = (users - 1, mode)
                else:
                    module.training = mode


def signature_of(model: nn.Module) -> dict[str, inspect.Parameter]:
    """The named parameters of ``forward``."""
    parameters = inspect.signature(unwrapped(model).forward).parameters
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: parameter for name, parameter in parameters.items() if parameter.kind in named}


def call_of(model: nn.Module, data: Graph) -> Call:
    """The arguments for ``data``, by the names in the model's signature."""
    parameters, name_of = signature_of(model), type(unwrapped(model)).__name__
    required = [name for name, p in parameters.items() if p.default is p.empty]
    if not parameters:  # forward(*args): the usual order is the only guess
        return Call((data.x, data.edge_index), {})
    kwargs: dict[str, Any] = {}
    for name, parameter in parameters.items():
        value = _argument(name, parameter, data, alone=required == [name])
        if value is not None:
            kwargs[name] = value
        elif name in required:
            raise ValueError(
                f"{name_of}.forward({', '.join(parameters)}) needs {name!r}, which the data does not have "
                f"({', '.join(map(str, data.keys()))}): {ADVICE}"
            )
    _warn_of_unused_weights(name_of, data, kwargs)
    positional = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_ONLY]
    return Call(tuple(kwargs.pop(name) for name in positional), kwargs)


def weighted_data(data: Any, edge_weight: Tensor) -> Data:
    """The same graph with weights on its edges, times those it has."""
    if not isinstance(data, Data):
        raise ValueError("weights on the edges are for graphs with one kind of nodes and edges")
    before, weighted = data.get("edge_weight"), copy.copy(data)
    weighted.edge_weight = edge_weight if before is None else before.to(edge_weight) * edge_weight
    return weighted


def weighted_call(call: Call, edge_weight: Tensor) -> Call:
    """The same call with weights on the edges, times those it has."""
    if any(isinstance(value, Data) for value in (*call.args, *call.kwargs.values())):
        args = [weighted_data(value, edge_weight) if isinstance(value, Data) else value for value in call.args]
        named = call.kwargs.items()
        kwargs = {k: weighted_data(value, edge_weight) if isinstance(value, Data) else value for k, value in named}
        return Call(tuple(args), kwargs)
    before = call.kwargs.get("edge_weight")
    return Call(call.args, {**call.kwargs, "edge_weight": edge_weight if before is None else before * edge_weight})


def tensor_call(model: nn.Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Call:
    """The arguments out of plain tensors, as an exported model gets them: in this order, or as one `Data`."""
    parameters = signature_of(model)
    required = [name for name, p in parameters.items() if p.default is p.empty]
    if any(name.endswith("_dict") for name in required):
        raise ValueError(
            f"{type(model).__name__}.forward({', '.join(parameters)}) takes a heterogeneous graph, which cannot be exported. "
            "Export a module that takes x and edge_index, or serve it with CalibratedModel."
        )
    weights = {} if edge_weight is None else {"edge_weight": edge_weight}
    data = Data(x=x, edge_index=edge_index, **weights)
    if any(_argument(name, p, data, required == [name]) is data for name, p in parameters.items()):
        return call_of(model, data)
    return Call((x, edge_index), weights)


def called(model: nn.Module, data: Graph) -> Any:
    """Return the model's output for ``data``."""
    call = call_of(model, data)
    return model(*call.args, **call.kwargs)


def _argument(name: str, parameter: inspect.Parameter, data: Graph, alone: bool) -> Any:
    if name in NEVER:
        return None
    wanted = ALIASES.get(name, name)
    annotation = getattr(parameter.annotation, "__name__", str(parameter.annotation))
    if annotation in ("Data", "HeteroData", "Batch", "BaseData") or (alone and name in WHOLE):
        return data
    if isinstance(data, HeteroData):
        collected = data.collect(wanted.removesuffix("_dict"), allow_empty=True)
        return collected or None
    value = data.get(wanted)
    if value is None and wanted == "adj_t" and data.get("edge_index") is not None:
        source, target = data.edge_index
        weight = data.get("edge_weight")
        weight = torch.ones(len(source), device=source.device) if weight is None else weight
        return csr(target, source, weight, (int(data.num_nodes), int(data.num_nodes)))
    return value


def _warn_of_unused_weights(name: str, data: Graph, kwargs: Mapping[str, Any]) -> None:
    whole = any(value is data for value in kwargs.values())
    if isinstance(data, HeteroData) or whole or data.get("edge_weight") is None:
        return
    if "edge_weight" not in kwargs and not {"adj_t", "adj", "adjacency", "adj_mat", "a_hat"} & set(kwargs):
        warnings.warn(
            f"data.edge_weight is not used: {name}.forward has no edge_weight. If the model was trained with it, {ADVICE}",
            stacklevel=4,
        )


def picked(output: Any, pick: str | int | Callable[[Any], Tensor] | None, name: str) -> Tensor:
    """The logits among what a model returned: the only tensor that can be, or what ``pick`` says."""
    if callable(pick):
        output = pick(output)
    elif pick is not None:
        try:
            output = output[pick]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"pick={pick!r} is not in what {name} returned: {_described(output)}") from None
    if isinstance(output, Tensor):
        return output
    entries = list(output.values()) if isinstance(output, Mapping) else output
    if not isinstance(entries, Sequence):
        raise ValueError(f"{name} returned {type(output).__name__}, not a tensor of logits (N, C): pick=, or {ADVICE}")
    floating = [e for e in entries if isinstance(e, Tensor) and e.is_floating_point() and e.dim() in (1, 2)]
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        floating = [output["logits"]]
    if len(floating) != 1:
        raise ValueError(f"{name} returned {_described(output)}: say which are the logits, pick='name' or pick=0")
    return floating[0]


def _described(output: Any) -> str:
    entries = (
        output.items() if isinstance(output, Mapping) else enumerate(output) if isinstance(output, tuple | list) else []
    )
    parts = [f"{k!r}: {tuple(v.shape) if isinstance(v, Tensor) else type(v).__name__}" for k, v in entries]
    return f"{type(output).__name__}({', '.join(parts)})"


KEPT = ("x", "y", "train_mask", "val_mask", "test_mask", "class_names", "n_id", "input_id", "batch_size")


def homogeneous(data: Data | HeteroData, node_type: str | None = None) -> Data:
    """The graph of one node type: its features, labels and masks, and the edges among its nodes. A `Data` is that already."""
    if isinstance(data, Data):
        if data.get("edge_index") is None and data.get("adj_t") is not None:
            data = data.clone()
            data.edge_index = edges_of(data.adj_t)
        return data
    node_type = type_of(data, node_type)
    store = data[node_type]
    graph = Data(
        **{key: store[key] for key in KEPT if key in store}, num_nodes=store.num_nodes, observed_type=node_type
    )
    edges = [data[kind].edge_index for kind in data.edge_types if kind[0] == kind[2] == node_type]
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
            f"The model was called with dicts. Pass CalibratedModel(..., node_type=), one of {', '.join(map(str, types))}."
        )
    among = [e for kind, e in edges.items() if kind[0] == kind[-1] == node_type]
    features = x.get(node_type) if isinstance(x, dict) else None
    graph = Data(x=features)
    if among:
        graph.edge_index = torch.cat(
            [e if isinstance(e, Tensor) and not is_adjacency(e) else edges_of(e) for e in among], 1
        )
    return graph
