"""A model and its calibration in one module, with the model's own forward signature.

*The graph* is read off the call: ``x`` and ``edge_index``, ``adj_t``, a `Data`, dicts of a heterogeneous graph. A calibration
that does not read the graph needs none.

*Hidden representation*: a calibration that was fitted with it (graph scaling) gets that of the call. Where the call does not show
it, the level without it serves, and a warning says so.

*Training nodes* are those of the call's ``train_mask``, else of ``train_mask=``. A calibration that reads them (SCAR) warns where
neither is given, and takes every node to be far from the training set.

*Modes*: the model runs under ``torch.autocast`` and ``torch.inference_mode`` as you set them; the calibration computes in the
precision of its tensors.

*Missing neighbours*: a sampled batch, or a model that returns its first rows only, does not show the neighbours that a
calibration reads. A batch is recognised by what samplers leave in it (``n_id``, ``input_id``, ``batch_size``), or by its edges: a
sample of an undirected graph has edges without their reverse. Pass ``context``, a table (N, K) made once on the whole graph by
``calibration.context_of(out)``; rows are looked up by ``n_id``, which the batch carries or the call names (``n_id=``). Without
it, and for nodes newer than the table, such nodes get the plain form of the calibration, which reads logits alone: a level was
fitted with edges and hidden representation together, and the representation of a cut neighbourhood is another one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphcal.checks import check_mask
from graphcal.core import Calibration, Needs, Outputs
from graphcal.graphs import is_undirected, isolated_nodes, without_autocast
from graphcal.observation import ForwardPass, Pick, logits_and_hidden, observe
from graphcal.observation.calls import Call, evaluating, graph_of_call, signature_of, unwrapped
from graphcal.serving.torch_export import Exportable


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


USER = 6  # frames from a method that `_calibrated` calls to the line that called the model


class CalibratedModel(nn.Module):
    """A model and its calibration in one module, with the model's forward signature and calibrated log-probabilities out.

    It runs the model in evaluation mode until ``train()`` is called.

    Parameters
    ----------
    model : nn.Module
        The trained model.
    calibration : Calibration
        Fitted on outputs of this model.
    train_mask : Tensor of shape (N,), optional
        Training nodes of the served graph; boolean or node numbers.
    pick : int, str or callable, optional
        Logits among several tensors that the model returns, as in `observe`.
    node_type : str, optional
        Nodes of a heterogeneous graph that get a class, as in `observe`.
    as_graph : callable, optional
        ``as_graph(*args, **kwargs) -> Data`` for calls that hold no edges.
    context : Tensor of shape (N, K), optional
        Context of each node from ``calibration.context_of(out)``, for sampled batches.

    Examples
    --------
    >>> import graphcal
    >>> from torch_geometric.nn.models import GCN
    >>> data = graphcal.example().graph
    >>> model = GCN(data.num_features, 8, 2, data.num_classes)
    >>> calibrate = graphcal.TemperatureScaling().fit(graphcal.observe(model, data), on=data.val_mask)
    >>> served = graphcal.CalibratedModel(model, calibrate)
    >>> served(data.x, data.edge_index).shape  # log-probabilities
    torch.Size([500, 5])
    >>> served.settings, served.tensors  # saved with it: pick and node_type, context and train_mask
    ({}, {})
    """

    SETTINGS: ClassVar[tuple[str, ...]] = ("pick", "node_type")
    TENSORS: ClassVar[tuple[str, ...]] = ("context", "train_mask")

    def __init__(
        self,
        model: nn.Module,
        calibration: Calibration,
        train_mask: Any = None,
        *,
        pick: Pick | None = None,
        node_type: str | None = None,
        as_graph: Callable[..., Data] | None = None,
        context: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.calibration = calibration
        if context is not None:
            self._check_context(context)
        self.register_buffer("_context", context, persistent=False)
        self._train_mask = train_mask
        if node_type is None and isinstance(calibration.fitted_on.get("node_type"), str):
            node_type = calibration.fitted_on["node_type"]
        self._pick, self._node_type, self._as_graph = pick, node_type, as_graph
        self.eval()

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments ``pick``, ``node_type`` and ``as_graph``, where they were given."""
        given = {"pick": self._pick, "node_type": self._node_type, "as_graph": self._as_graph}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The arguments ``context`` and ``train_mask``, where they were given."""
        given = {"context": self._context, "train_mask": self._train_mask}
        return {name: torch.as_tensor(value) for name, value in given.items() if value is not None}

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Calibrated log-probabilities (N, C) of a call of the model; ``n_id=`` names the nodes of a sampled batch."""
        n_id = kwargs.pop("n_id", None) if "n_id" not in signature_of(self.model) else None
        call = Call(args, kwargs)
        with nullcontext() if self.training else evaluating(self.model):
            needs = self.calibration.needs
            hidden = needs.hidden and not needs.whole_graph
            seen = logits_and_hidden(self.model, call, self._pick, self._node_type, hidden=hidden)
        with without_autocast(seen.logits.device):
            return self._calibrated(call, seen, n_id)

    def _calibrated(self, call: Call, seen: ForwardPass, n_id: Any) -> Tensor:
        logits, needs = seen.logits, self.calibration.needs
        if needs == Needs(hidden=needs.hidden):
            self._check_classes(logits)
            alone = isolated_nodes(len(logits), logits)
            context: Tensor = self.calibration.context(logits, alone, self._hidden(seen))
            return self.calibration.log_probs(logits, context)
        graph = self._graph(call)
        if n_id is not None:
            graph.n_id = n_id
        if is_sampled(graph, self.calibration.fitted_on) or has_fewer_rows(logits, graph):
            return self._without_neighbours(logits, graph)
        graph.num_nodes = len(logits)
        self._set_training_nodes(graph)
        hidden = None if needs.whole_graph else self._hidden(seen)
        with torch.no_grad() if needs.whole_graph else nullcontext():
            log_probs: Tensor = self.calibration(self._outputs(seen, hidden, graph, call))
        return log_probs

    def exportable(self) -> Exportable:
        """Build a module for ``torch.export`` and ONNX: tensors in, tensors out, no checks (`Exportable`).

        >>> import graphcal
        >>> from torch_geometric.nn import GCNConv
        >>> data = graphcal.example().graph
        >>> model = GCNConv(data.num_features, data.num_classes)
        >>> calibrate = graphcal.TemperatureScaling().fit(graphcal.observe(model, data), on=data.val_mask)
        >>> graphcal.CalibratedModel(model, calibrate).exportable()(data.x, data.edge_index).shape
        torch.Size([500, 5])
        """
        return Exportable(unwrapped(self.model), self.calibration, self._pick)

    def _graph(self, call: Call) -> Data:
        graph = self._as_graph(*call.args, **call.kwargs) if self._as_graph else None
        if graph is None:
            graph = graph_of_call(self.model, call, self._node_type)
        if graph is None:
            raise ValueError(
                f"CalibratedModel found no edges among the arguments ({', '.join(signature_of(self.model))}) of "
                f"{type(unwrapped(self.model)).__name__}.forward, and {type(self.calibration).__name__} reads the graph: pass "
                "as_graph=lambda *args, **kwargs: Data(x=..., edge_index=...)"
            )
        return graph

    def _set_training_nodes(self, graph: Data) -> None:
        if graph.get("train_mask") is not None:
            return
        if self._train_mask is not None:
            graph.train_mask = check_mask(self._train_mask, int(graph.num_nodes), "train_mask", may_be_empty=True)
        elif self.calibration.needs.training and self.calibration.fitted_on.get("training_nodes"):
            warnings.warn(
                f"{type(self.calibration).__name__} reads which nodes are training nodes, and no train_mask was given: every "
                "node is taken to be far from them. Pass CalibratedModel(..., train_mask=), all False if the graph has none.",
                stacklevel=USER,
            )

    def _hidden(self, seen: ForwardPass) -> Tensor | None:
        """The representation of this call for a calibration that uses it; None, with a warning, where it was not seen."""
        if not self.calibration.needs.hidden:
            return None
        if seen.hidden is None:
            warnings.warn(
                f"{type(self.calibration).__name__} was fitted with the hidden representation, which this call does not show: "
                f"{seen.why_not}. The level without it serves.",
                stacklevel=USER,
            )
        return seen.hidden

    def _outputs(self, seen: ForwardPass, hidden: Tensor | None, graph: Data, call: Call) -> Outputs:
        """Outputs of this call; `Outputs.hidden` is what `Calibration.context` gets as ``hidden``."""
        if self.calibration.needs.whole_graph and self.calibration.needs.hidden:  # and the final layer
            return observe(self.model, graph, call=lambda module, _: module(*call.args, **call.kwargs), pick=self._pick)
        model = replace(seen.model, edge_index=graph.get("edge_index"))
        return Outputs(seen.logits, graph, None, hidden, model)

    def _without_neighbours(self, logits: Tensor, graph: Data) -> Tensor:
        """Log-probabilities with rows of the table as context; NaN where there are none."""
        self._check_classes(logits)
        name = type(self.calibration).__name__
        if self.calibration.needs.whole_graph:
            raise ValueError(
                f"{name} needs the logits and the edges of the whole graph, but this is a sampled batch, or the model returned "
                "fewer rows than there are nodes. Call it on the whole graph, or choose another calibrator."
            )
        table, ids = self.get_buffer("_context") if self._context is not None else None, graph.get("n_id")
        if table is None or ids is None:
            lacks = "n_id=" if ids is None else "context=calibration.context_of(out) of the whole graph"
            warnings.warn(
                f"neighbours are missing in this call: it gets the plain form of {name}. For all of it give CalibratedModel "
                f"{lacks}",
                stacklevel=USER,
            )
            return self.calibration.log_probs(logits, self.calibration.unknown_context(logits))
        if len(ids) < len(logits):
            raise ValueError(
                f"n_id names {len(ids)} nodes, but the model returned {len(logits)} rows: give one for each"
            )
        return self.calibration.log_probs(logits, rows_of(table, ids[: len(logits)]))

    def _check_context(self, context: Tensor) -> None:
        if not isinstance(context, Tensor) or context.dim() != 2 or not context.is_floating_point():
            came = (
                f"{tuple(context.shape)} of {context.dtype}" if isinstance(context, Tensor) else type(context).__name__
            )
            raise ValueError(f"context must be the table (N, K) that calibration.context_of(out) gives; got {came}")
        if self.calibration.needs.whole_graph or self.calibration.num_classes is None:
            return
        width = self.calibration.unknown_context(context.new_zeros(1, self.calibration.num_classes)).shape[1]
        if context.shape[1] != width:
            raise ValueError(
                f"context has {context.shape[1]} columns, but {type(self.calibration).__name__} reads {width}: make it with "
                "context_of(out) of the same calibration"
            )

    def _check_classes(self, logits: Tensor) -> None:
        if self.calibration.num_classes not in (None, logits.shape[1]):
            raise ValueError(
                f"this calibration was fitted on {self.calibration.num_classes} classes, the logits have {logits.shape[1]}"
            )


def has_fewer_rows(logits: Tensor, graph: Data) -> bool:
    """The model answered for some of its nodes only."""
    if "num_nodes" in graph or graph.get("x") is not None:
        return len(logits) < int(graph.num_nodes)
    edges = graph.get("edge_index")
    return edges is not None and edges.numel() > 0 and len(logits) <= int(edges.max())
