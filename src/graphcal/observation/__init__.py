"""Run a trained model and read its logits, its final layer and the representation that enters it.

    arguments     by the names in the model's signature                                       `calls`
    logits        the output, or the input of its closing log_softmax, softmax or sigmoid     `recorder`
    final layer   the last linear maps seen in the pass, proved by one more pass at most      `final_layer`
    by parts      layer by layer or batch by batch, for graphs too large for one pass         `batches`

Where no final layer can be proved, the outputs hold logits without one, and a warning says so.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from graphcal.checks import as_float, check_logits, normalisation_of
from graphcal.core import FinalLayer, Outputs
from graphcal.observation.batches import by_batches, by_layers
from graphcal.observation.calls import (
    Call,
    called,
    evaluating,
    homogeneous,
    picked,
    type_of,
    unwrapped,
    weighted_call,
    weighted_data,
)
from graphcal.observation.final_layer import ObservedModel, in_single_precision, search
from graphcal.observation.recorder import Read, Recorder, read_logits, read_traced, two_columns

__all__ = ["logits_and_hidden", "observe"]

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
    """Run a torch module and return its logits, final layer and hidden representation.

    One pass is enough if nothing follows the final layer; otherwise a second pass proves it. A final layer that is not seen
    in the pass is searched for with changed weights; a warning says how many passes that took.

    Parameters
    ----------
    model : nn.Module
        A trained model. It is unchanged afterwards.
    data : Data or HeteroData
        Gives the arguments that the model's signature names (``x``, ``edge_index``, ``edge_weight``, ``adj_t``, ``data`` …).
    final : str or nn.Module, optional
        Last layer, if several could be it. An error if it is not linear.
    call : callable, optional
        ``call=lambda model, data: …`` for other signatures.
    pick : int, str or callable, optional
        Logits among several tensors that the model returns.
    node_type : str, optional
        Nodes of a `HeteroData` that get a class.
    layerwise : bool, default=False
        Compute the same logits by parts, for graphs too large for one pass.
    loader : iterable of Data, optional
        Batches; returns the logits of each batch's seeds, as served by batches.

    Returns
    -------
    Outputs
        Logits (N, C), graph, and final layer and hidden representation (N, D) if they were seen.

    Examples
    --------
    >>> import graphcal
    >>> from torch_geometric.nn.models import GCN
    >>> data = graphcal.example().graph
    >>> graphcal.observe(GCN(data.num_features, 16, 2, 5), data)
    Outputs(500 nodes, 5 classes, final layer known)
    """
    inner = in_single_precision(unwrapped(model))
    if layerwise or loader is not None:
        see = partial(observe, model, final=final, call=call, pick=pick, node_type=node_type)

        def record(graph: Data) -> Read:
            with torch.no_grad(), evaluating(inner):
                return ObservedModel(inner, _runner(inner, graph, call, pick, None)).record()[0]

        return by_layers(inner, data, see, record) if loader is None else by_batches(inner, loader, data, see, record)
    if data is None:
        raise ValueError("observe needs a graph: observe(model, data), or observe(model, loader=...)")
    graph, data = homogeneous(data, node_type), _as_precise_as(inner, data)
    if hasattr(inner, "on") and final is None and call is None:  # a model of `graphcal.lab.train`
        return inner.on(data).outputs(graph)  # type: ignore[operator, no-any-return]
    if isinstance(data, HeteroData):
        node_type = type_of(data, node_type)
    handle = ObservedModel(inner, _runner(inner, data, call, pick, node_type), graph.get("edge_index"))
    with torch.no_grad(), evaluating(inner):
        read, pass_record = handle.record(keep_gates=True)
        layer = _final_layer(handle, read, pass_record, final)
    if layer is not None and read.logits.shape[1] == 1:  # one logit z as (0, z): a row of zeros
        layer = FinalLayer(*(torch.cat([torch.zeros_like(part), part]) for part in (layer.weight, layer.bias)))
    return Outputs(two_columns(read.logits).detach(), graph, layer, lambda: _tensor(read.hidden()), handle)


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """Logits (N, C) of a call, and what else was seen in it; ``model`` runs it again."""

    logits: Tensor
    model: ObservedModel
    read: Read | None = None

    @cached_property
    def hidden(self) -> Tensor | None:
        """The representation (N, D) that enters the final linear map, as in `Outputs.hidden`; None where it was not seen."""
        return self.hidden_of(None)

    def hidden_of(self, num_nodes: int | None) -> Tensor | None:
        """The same where the model answers for the first of its ``num_nodes`` nodes alone."""
        return None if self.read is None else _tensor(self.read.hidden(num_nodes))

    @property
    def why_not(self) -> str:
        """Reason why there is no hidden representation."""
        reason = "a compiled model does not show it" if self.read is None else self.read.hidden()
        return reason if isinstance(reason, str) else ""


def logits_and_hidden(
    model: nn.Module,
    call: Call,
    pick: Pick | None = None,
    node_type: str | None = None,
    *,
    hidden: bool = True,
    traced: bool = False,
) -> ForwardPass:
    """Run a model once, as its modes are, and read its logits and the representation that enters its final linear map.

    ``traced`` is for ``torch.export``: no look at values. A compiled model runs as it is compiled with ``hidden=False``, and
    uncompiled otherwise: what is compiled cannot be seen.

    >>> import graphcal
    >>> from torch_geometric.nn.models import GCN
    >>> data = graphcal.example().graph
    >>> seen = logits_and_hidden(GCN(data.num_features, 16, 2, 5).eval(), Call((data.x, data.edge_index), {}))
    >>> seen.logits.shape, seen.hidden.shape
    (torch.Size([500, 5]), torch.Size([500, 16]))
    """
    inner = unwrapped(model)
    name = type(inner).__name__

    def run(edge_weight: Tensor | None, module: nn.Module = inner) -> Tensor:
        given = call if edge_weight is None else weighted_call(call, edge_weight)
        return _logits_among(module(*given.args, **given.kwargs), pick, node_type, name)

    handle = ObservedModel(inner, run)
    if model is not inner and not hidden:
        output = run(None, model)
        read = read_logits(output, Recorder(), name)
        if read.exact and normalisation_of(two_columns(read.logits)) is None:
            return ForwardPass(two_columns(as_float(read.logits)), handle)
    if traced:
        with Recorder() as record:
            output = run(None)
        read = read_traced(output, record)
    else:
        read, _ = handle.record()
    return ForwardPass(two_columns(as_float(read.logits)), handle, read)


def _runner(
    model: nn.Module, data: Any, call: Any, pick: Any, node_type: str | None
) -> Callable[[Tensor | None], Tensor]:
    def run(edge_weight: Tensor | None) -> Tensor:
        given = data if edge_weight is None else weighted_data(data, edge_weight)
        output = call(model, given) if call is not None else called(model, given)
        return _logits_among(output, pick, node_type, type(model).__name__)

    return run


def _logits_among(output: Any, pick: Pick | None, node_type: str | None, name: str) -> Tensor:
    if pick is None and isinstance(output, Mapping) and node_type in output:
        output = output[node_type]
    return as_float(picked(output, pick, name))


def _tensor(hidden: Tensor | str) -> Tensor | None:
    return None if isinstance(hidden, str) else as_float(hidden)


def _final_layer(
    handle: ObservedModel, read: Read, record: Recorder, final: str | nn.Module | None
) -> FinalLayer | None:
    """The final layer as seen in the pass, or searched for; None, with a warning, where there is none."""
    model, logits = handle.model, read.logits
    name = type(model).__name__
    if logits.shape[1] > 1:
        check_logits(logits)
    module = model.get_submodule(final) if isinstance(final, str) else final
    if not read.exact:
        layer: FinalLayer | str = "it ends in a softmax or sigmoid that was not recognised"
    else:
        seen = handle.confirm(read, record)
        if seen is not None and (module is None or _is_in(module, read)):
            return seen.final
        layer = search(
            lambda values: handle.repeat(record, parameters=values),
            (model if module is None else module).parameters(),
            logits,
        )
    if isinstance(layer, FinalLayer):
        warnings.warn(
            f"the final layer of {name} was not seen in one forward pass: a search with changed weights found it in "
            f"{handle.passes}. Name the layer (final=...) to search there alone",
            stacklevel=3,
        )
        return layer
    if module is not None:
        raise ValueError(
            f"final={final!r} is not the final layer of {name}: {layer}. Leave it out to have the layer searched for, or use "
            "Outputs.from_logits(logits, data) for calibrators that need only logits"
        )
    warnings.warn(
        f"no final layer was found in {name} (forward passes: {handle.passes}): {layer}. Calibrators that read logits alone "
        "still work (`graphcal methods`); for SCAR name the layer (final=...), or use "
        "Outputs.from_logits(logits, data, weight, bias)",
        stacklevel=3,
    )
    return None


def _is_in(module: nn.Module, read: Read) -> bool:
    """All weights of the last linear maps are parameters of the module."""
    memory = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    return all(call.weight.untyped_storage().data_ptr() in memory for call in read.calls)


def _as_precise_as(model: nn.Module, data: Any) -> Any:
    """The graph in the precision of the model: single, or double where it has weights of that."""
    kinds = (torch.float16, torch.bfloat16)
    double = any(parameter.dtype == torch.float64 for parameter in model.parameters())
    wanted, others = (torch.float64, (*kinds, torch.float32)) if double else (torch.float32, kinds)
    return copy.copy(data).apply(lambda t: t.to(wanted) if t.dtype in others else t)
