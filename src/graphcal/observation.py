"""Run a trained model once and see its logits, its final layer and what goes into that layer.

`observe` watches one forward pass, takes the last module whose output *is* the model's output, and writes it as
``logits = h @ weight.T + bias``:

    nn.Linear        h = its input
    PyG GCNConv      h = the propagated input                       (propagation and the linear map commute)
    PyG GATConv      h = the attention-weighted sum of the input, one block for each averaged head, each scaled by 1/sqrt(H)
    PyG SAGEConv     h = [aggregated neighbours, own input]         weight = [W_neigh, W_root]

Then it proves the claim numerically. A model that cannot be seen this way is refused, never guessed at.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.utils import scatter

from graphcal.checks import check_logits, normalisation_of
from graphcal.core import FinalLayer, Outputs
from graphcal.observation_batches import by_batches, by_layers

KNOWN_LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, GCNConv, GATConv, SAGEConv)
Seen = tuple[Tensor, FinalLayer]  # hidden (N, D), layer
Call = tuple[tuple[Any, ...], dict[str, Any]]


def observe(
    model: nn.Module,
    data: Data | None = None,
    final: str | nn.Module | None = None,
    call: Callable[[nn.Module, Data], Tensor] | None = None,
    *,
    layerwise: bool = False,
    loader: Iterable[Data] | None = None,
) -> Outputs:
    """One forward pass of any torch module: logits, final layer and final representation.

    ``call`` serves other signatures: ``call=lambda model, data: model(data)``. ``final`` names the last linear layer (a
    module, or its dotted name) when the model runs several that could be it. For a graph too large for one pass:
    ``layerwise=True`` computes the same by parts; ``loader`` takes the logits of each batch's seeds.

    >>> import graphcal as gc
    >>> from torch_geometric.nn.models import GCN
    >>> data = gc.synthetic(500, seed=0)
    >>> gc.observe(GCN(data.num_features, 16, 2, 5), data)
    Outputs(500 nodes, 5 classes, final layer known)
    """
    call = call or (lambda module, graph: module(graph.x, graph.edge_index))
    if loader is not None or layerwise:
        return _by_parts(model, data, final, call, loader)
    if data is None:
        raise ValueError("observe needs the graph: observe(model, data), or observe(model, loader=...)")
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            logits, calls = _watched(model, data, call)
            _refuse_normalised(logits, type(model).__name__)
            check_logits(logits)
            hidden, layer = _final_layer(model, data, final, logits, calls)
    finally:
        model.train(was_training)
    return Outputs(logits, data, layer, hidden)


def _by_parts(
    model: nn.Module,
    data: Data | None,
    final: str | nn.Module | None,
    call: Callable[[nn.Module, Data], Tensor],
    loader: Iterable[Data] | None,
) -> Outputs:
    def run(graph: Data) -> Tensor:
        with torch.no_grad():
            return call(model, graph).detach()

    def see(graph: Data) -> Outputs:
        return observe(model, graph, final, call)

    was_training = model.training
    model.eval()
    try:
        if loader is not None:
            return by_batches(model, loader, data, see, run)
        return by_layers(model, data, see, run)
    finally:
        model.train(was_training)


def _watched(
    model: nn.Module, data: Data, call: Callable[[nn.Module, Data], Tensor]
) -> tuple[Tensor, dict[nn.Module, tuple[Call, Any]]]:
    """The model's output, and for each known layer the arguments and the output of its last call."""
    calls: dict[nn.Module, tuple[Call, Any]] = {}

    def remember(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        calls.pop(module, None)  # keep the order of the last calls
        calls[module] = ((args, kwargs), output)

    layers = [m for m in model.modules() if isinstance(m, KNOWN_LAYERS)]
    hooks = [m.register_forward_hook(remember, with_kwargs=True) for m in layers]
    try:
        logits = call(model, data)
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"{type(model).__name__} returned {type(logits).__name__}, not a tensor of logits (N, C); "
            "pass call=lambda model, data: ... that picks the logits out of its output"
        )
    return logits.detach(), calls


def _refuse_normalised(output: Tensor, name: str) -> None:
    kind = normalisation_of(output) if output.dim() == 2 and torch.isfinite(output).all() else None
    if kind == "log-probabilities":
        raise ValueError(
            f"{name} ends in log_softmax: it returns log-probabilities, and the final layer is not visible through them. Return "
            "the logits (drop the log_softmax; train with cross_entropy), or use Outputs.from_logits(output, data) for "
            "calibrators that need only logits"
        )
    if kind == "probabilities":
        raise ValueError(f"{name} returns probabilities (rows sum to 1): return the logits before the softmax")


def _final_layer(
    model: nn.Module,
    data: Data,
    final: str | nn.Module | None,
    logits: Tensor,
    calls: dict[nn.Module, tuple[Call, Any]],
) -> Seen | tuple[None, None]:
    own = getattr(model, "final_representation", None)
    if own is not None and final is None:
        seen = own(data.x, data.edge_index)
        if seen is None:  # the model itself says that its output is not linear in a last layer
            return None, None
        return _proved(seen[0].detach(), seen[1], logits, type(model).__name__)
    if final is not None:
        module = model.get_submodule(final) if isinstance(final, str) else final
        if module not in calls:
            raise ValueError(
                f"final={final!r} is not a layer this model ran that graphcal can read ({_names(KNOWN_LAYERS)}); "
                f"it ran {_names(type(m) for m in calls) or 'none'}"
            )
        candidates = [module]
    else:
        candidates = [
            m for m, (_, y) in calls.items() if isinstance(y, Tensor) and y.shape == logits.shape and _close(y, logits)
        ]
    if not candidates:
        raise ValueError(
            f"no layer of {type(model).__name__} produces its output: {_names(type(m) for m in calls) or 'no known layer'} ran, "
            f"and the output is not what any of {_names(KNOWN_LAYERS)} returned (something non-linear, or a sum, comes after). "
            "Return the last layer's output itself, or use Outputs.from_logits(logits, data, weight, bias)"
        )
    # A convolution runs its own Linear inside; the outermost of equal candidates is the layer that counts.
    module = next((m for m in candidates if not isinstance(m, nn.Linear)), candidates[-1])
    (args, kwargs), _ = calls[module]
    hidden, layer = _read(module, args, kwargs)
    return _proved(hidden, layer, logits, f"{type(model).__name__}'s {type(module).__name__}")


def _names(types: Any) -> str:
    return ", ".join(t.__name__ for t in types)


def _close(a: Tensor, b: Tensor) -> bool:
    scale = float(b.abs().max().clamp(min=1.0))
    return torch.allclose(a, b, rtol=1e-4, atol=1e-5 * scale)


def _proved(hidden: Tensor, layer: FinalLayer, logits: Tensor, name: str) -> Seen:
    rebuilt = hidden @ layer.weight.T + layer.bias
    if not _close(rebuilt, logits):
        gap = float((rebuilt - logits).abs().max())
        raise ValueError(
            f"the output is not linear in {name}: h @ weight.T + bias differs from the logits by up to {gap:.3g}. "
            "Something is applied after the last layer (an activation, a scale, a skip connection): return its plain output, or "
            "use Outputs.from_logits(logits, data) for calibrators that need only logits"
        )
    return hidden, layer


def _read(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Seen:
    if isinstance(module, GCNConv):
        return _read_gcn(module, args, kwargs)
    if isinstance(module, GATConv):
        return _read_gat(module, args, kwargs)
    if isinstance(module, SAGEConv):
        return _read_sage(module, args, kwargs)
    return args[0], FinalLayer.from_weight(module.weight, module.bias)  # type: ignore[arg-type]


def _read_gcn(conv: GCNConv, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Seen:
    propagate = copy.deepcopy(conv)
    propagate.lin, propagate.bias = nn.Identity(), None
    return propagate(*args, **kwargs), FinalLayer.from_weight(conv.lin.weight, conv.bias)


def _read_sage(conv: SAGEConv, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Seen:
    if conv.normalize:
        raise ValueError(
            "SAGEConv(normalize=True) scales its output rows to length one: it is not linear in its weight"
        )
    aggregate = copy.deepcopy(conv)
    aggregate.lin_l, aggregate.root_weight = nn.Identity(), False
    parts, weights = [aggregate(*args, **kwargs)], [conv.lin_l.weight]
    if conv.root_weight:
        x = args[0] if args else kwargs["x"]
        parts.append(x[1] if isinstance(x, tuple) else x)
        weights.append(conv.lin_r.weight)
    return torch.cat(parts, -1), FinalLayer.from_weight(torch.cat(weights, -1), conv.lin_l.bias)


def _read_gat(conv: GATConv, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Seen:
    if conv.heads > 1 and conv.concat:
        raise ValueError(
            f"GATConv with {conv.heads} concatenated heads as the last layer gives each class its own head; use concat=False"
        )
    if getattr(conv, "res", None) is not None:
        raise ValueError("GATConv(residual=True) as the last layer is not supported: its output is a sum of two maps")
    x = args[0] if args else kwargs["x"]
    x = x if isinstance(x, Tensor) else x[0]
    _, (edges, attention) = conv(*args, **{**kwargs, "return_attention_weights": True})  # (2, E), (E, H)
    blocks = [
        scatter(attention[:, h, None] * x[edges[0]], edges[1], dim=0, dim_size=len(x), reduce="sum")
        for h in range(conv.heads)
    ]
    lin = conv.lin if getattr(conv, "lin", None) is not None else conv.lin_src
    weight = lin.weight.view(conv.heads, -1, lin.weight.shape[-1])  # (H, C, D)
    root = conv.heads**0.5  # z = b + 1/H sum_h W_h h_h  =  b + [W_h / sqrt H] [h_h / sqrt H]
    stacked = torch.cat(list(weight), -1) / root
    return torch.cat(blocks, -1) / root, FinalLayer.from_weight(stacked, conv.bias)
