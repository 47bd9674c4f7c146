"""Run a trained model once and see its logits, its final layer and what goes into that layer.

    arguments   by the names in the model's signature                                   `calls`
    logits      the output, or what its closing log_softmax, softmax or sigmoid was given `endings`
    final layer found by trying and proved numerically, for any architecture             `heads`
    by parts    layer by layer or batch by batch, for graphs too large for one pass      `batches`

What cannot be proved is not claimed: then the outputs hold logits only, and a warning says which calibrators work on those.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from graphcal.checks import as_float, check_logits, normalisation_of
from graphcal.core import FinalLayer, ModelHandle, Outputs
from graphcal.observation.batches import OnePass, by_batches, by_layers
from graphcal.observation.calls import called, evaluating, picked, unwrapped
from graphcal.observation.endings import logits_of, two_classes
from graphcal.observation.graph_views import plain_graph, type_of
from graphcal.observation.heads import Head, close, find_head
from graphcal.observation.seen_models import SeenModel, in_single_precision
from graphcal.observation.watching import watched

__all__ = ["observe"]

Pick = str | int | Callable[[Any], Tensor]


def observe(
    model: nn.Module,
    data: Data | HeteroData | None = None,
    final: str | nn.Module | None = None,
    call: Callable[[nn.Module, Any], Any] | None = None,
    pick: Pick | None = None,
    node_type: str | None = None,
    *,
    layerwise: bool = False,
    loader: Iterable[Data] | None = None,
) -> Outputs:
    """One forward pass of any torch module: logits, final layer and final representation.

    The model is called with what its signature names (``x``, ``edge_index``, ``edge_weight``, ``adj_t``, ``data`` …);
    ``call=lambda model, data: …`` serves any other. Of several tensors that it returns, ``pick`` names the logits. ``final``
    names the last layer (a module, or its dotted name) where several could be it, and makes it an error if it is not. In a
    `HeteroData`, ``node_type`` are the nodes that get a class. One logit for two classes becomes two.

    A graph too large for one pass (`batches`): ``layerwise=True`` gives the same logits, computed by parts; ``loader`` gives
    those of each batch's seeds, as the model says them where it is served by batches.

    >>> import graphcal as gc
    >>> from torch_geometric.nn.models import GCN
    >>> data = gc.lab.synthetic(500, seed=0)
    >>> gc.observe(GCN(data.num_features, 16, 2, 5), data)
    Outputs(500 nodes, 5 classes, final layer known)
    """
    if layerwise or loader is not None:
        see = partial(observe, model, final=final, call=call, pick=pick, node_type=node_type)
        one_pass = OnePass(in_single_precision(unwrapped(model)), call, pick)
        return (
            by_layers(model, data, see, one_pass) if loader is None else by_batches(model, loader, data, see, one_pass)
        )
    if data is None:
        raise ValueError("observe needs a graph: observe(model, data), or observe(model, loader=...)")
    inner, graph = in_single_precision(unwrapped(model)), plain_graph(data, node_type)
    data = _as_precise_as(inner, data)
    if isinstance(data, HeteroData):
        node_type = type_of(data, node_type)

    def run(edge_weight: Tensor | None) -> Tensor:
        given = data if edge_weight is None else _weighted(data, edge_weight)
        output = call(inner, given) if call is not None else called(inner, given)
        if pick is None and isinstance(output, Mapping) and node_type in output:
            output = output[node_type]
        return as_float(picked(output, pick, type(inner).__name__))

    with torch.no_grad(), evaluating(inner):
        layers = _Linears(inner)
        with layers:
            output, watch = watched(lambda: run(None))
        logits, ending = logits_of(output, watch, type(inner).__name__)
        seen = SeenModel(inner, run, watch, ending, graph.get("edge_index"))
        head = _head(inner, data, final, call is not None, logits, layers, seen)
    handle: ModelHandle = inner.on(graph) if _is_our_own(inner) else seen  # type: ignore[operator]
    if isinstance(head, str):
        _warn_of_logits_only(type(inner).__name__, head)
        head = None
    if logits.shape[1] == 1:
        logits, head = two_classes(logits, head)
    return Outputs(
        logits.detach(), graph, None if head is None else head.final, None if head is None else head.hidden, handle
    )


def _head(
    model: nn.Module,
    data: Any,
    final: str | nn.Module | None,
    own_call: bool,
    logits: Tensor,
    layers: _Linears,
    seen: SeenModel,
) -> Head | str | None:
    """The final layer; None when the model itself says that there is none, a reason when none is found."""
    if logits.shape[1] > 1:
        check_logits(logits)
    if _is_our_own(model) and final is None and not own_call:
        known = model.final_representation(data.x, data.edge_index)  # type: ignore[operator]
        return None if known is None else Head(known[1], known[0].detach())
    module = model.get_submodule(final) if isinstance(final, str) else final
    known = layers.ending_in(logits, module)
    if known is not None:
        return known
    head: Head | str = "it ends in a softmax or sigmoid that was not recognised, through which no layer can be seen"
    if torch.equal(seen.with_parameters({}), logits) or (logits.shape[1] > 1 and normalisation_of(logits) is None):
        head = find_head(seen.with_parameters, (model if module is None else module).parameters(), logits)
    if isinstance(head, str) and module is not None:
        raise ValueError(
            f"final={final!r} is not the final layer of {type(model).__name__}: {head}. Leave it out to have the layer "
            "searched for, or use Outputs.from_logits(logits, data) for calibrators that need only logits"
        )
    return head


def _is_our_own(model: nn.Module) -> bool:
    return hasattr(model, "final_representation")


class _Linears:
    """The linear layers whose last output was the logits: then their input is the representation, without any search."""

    def __init__(self, model: nn.Module) -> None:
        self.calls: dict[nn.Module, tuple[Any, Any]] = {}
        self._layers = [m for m in model.modules() if type(m).__name__ == "Linear" and hasattr(m, "weight")]
        self._hooks: list[Any] = []

    def __enter__(self) -> None:
        def remember(module: nn.Module, args: Any, output: Any) -> None:
            self.calls[module] = (args[0] if args else None, output)

        self._hooks = [layer.register_forward_hook(remember) for layer in self._layers]

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def ending_in(self, logits: Tensor, final: nn.Module | None) -> Head | None:
        for layer, (given, output) in self.calls.items():
            if final not in (None, layer) or not isinstance(given, Tensor) or given.dim() != 2:
                continue
            if isinstance(output, Tensor) and output.shape == logits.shape and torch.equal(output, logits):
                known = FinalLayer.from_weight(layer.weight, layer.bias)  # type: ignore[arg-type]
                if close(given @ known.weight.T + known.bias, logits, logits):
                    return Head(known, given.detach())
        return None


def _as_precise_as(model: nn.Module, data: Any) -> Any:
    """The graph in the precision of the model: single, or double where it has weights of that."""
    kinds = (torch.float16, torch.bfloat16)
    double = any(parameter.dtype == torch.float64 for parameter in model.parameters())
    wanted, others = (torch.float64, (*kinds, torch.float32)) if double else (torch.float32, kinds)
    return copy.copy(data).apply(lambda t: t.to(wanted) if t.dtype in others else t)


def _weighted(data: Any, edge_weight: Tensor) -> Any:
    if not isinstance(data, Data):
        raise ValueError("weights on the edges are for graphs with one kind of nodes and edges")
    given, own = copy.copy(data), data.get("edge_weight")
    given.edge_weight = edge_weight if own is None else own.to(edge_weight) * edge_weight
    return given


def _warn_of_logits_only(name: str, reason: str) -> None:
    from graphcal.methods import CALIBRATORS

    cards = {key: CALIBRATORS[key].card for key in CALIBRATORS.own}  # type: ignore[attr-defined]
    works = [key for key, card in cards.items() if not card.final_layer and not card.model]
    warnings.warn(
        f"no final layer was found in {name}: {reason}. Its logits are known, and these calibrators need no more: "
        f"{', '.join(works)}. For SCAR name the layer (final=...), or use Outputs.from_logits(logits, data, weight, bias)",
        stacklevel=3,
    )
