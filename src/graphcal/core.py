"""The central types: what a trained model said (`Outputs`), what repairs it (`Recipe` -> `Calibration`).

    Data - train -> model - observe -> Outputs - recipe.fit(on=val) -> Calibration -> log-probabilities

A model is run once; everything after is a function of that frozen view. Hyper-parameters (a recipe) and learned values
(a calibration) are different objects, so an unfitted calibration cannot exist.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast, final, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from graphcal.checks import as_float, check_graph, check_logits, check_mask, normalise_masks
from graphcal.graphs import Columns, GraphSums, fingerprint, graph_sums, is_undirected, isolated_nodes, without_autocast
from graphcal.text import plural, summary_html, summary_text

BLOCK = 8192  # rows of one call of a kernel: ten classes in single precision stay in the processor's cache

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class FinalLayer:
    """The last linear map of a model: logits = h @ weight.T + bias.

    Averaged heads (GAT) and summed parts (GraphSAGE) are stacked into one weight, so ``gram`` is always weight @ weight.T.

    Parameters
    ----------
    weight : Tensor of shape (C, D)
        Rows are SCAR's class centroids.
    bias : Tensor of shape (C,)
        Zeros if the layer has none.

    Examples
    --------
    >>> import graphcal
    >>> layer = graphcal.FinalLayer.from_weight(torch.eye(3, 8))  # three classes, eight hidden units, no bias
    >>> layer.gram.shape, layer.to(torch.float64).bias.dtype
    (torch.Size([3, 3]), torch.float64)
    """

    weight: Tensor  # (C, D) the class centroids of the SCAR paper, one per row
    bias: Tensor  # (C,)

    @classmethod
    def from_weight(cls, weight: Tensor, bias: Tensor | None = None) -> FinalLayer:
        """The layer of a weight (C, D) and a bias (C,); without a bias it is zero."""
        weight = weight.detach()
        bias = weight.new_zeros(len(weight)) if bias is None else bias.detach().reshape(-1)
        if weight.dim() != 2 or len(bias) != len(weight):
            raise ValueError(
                f"the final layer must be weight (C, D) with bias (C,); got {tuple(weight.shape)} and {tuple(bias.shape)}"
            )
        return cls(weight, bias)

    @cached_property
    def gram(self) -> Tensor:
        """(C, C) the inner products of the class centroids, G = W^T W of the SCAR paper."""
        return self.weight @ self.weight.T

    def to(self, target: torch.device | str | torch.dtype) -> FinalLayer:
        """The same layer on another device or in another precision."""
        return FinalLayer(self.weight.to(target), self.bias.to(target))


class ModelHandle(Protocol):
    """A trained model on its graph, for calibrators that run it again. Frozen: only ``edge_weight`` carries a gradient."""

    def logits(self, edge_weight: Tensor | None = None, dropout: Generator | None = None) -> Tensor:
        """Logits (N, C) with weights (E,) on the edges, or with the model's dropout drawn from a generator."""

    def final_representation(self) -> Tensor | None:
        """h (N, D) with logits = h @ weight.T + bias, where it can be had by further passes."""


class LazyTensor:
    """A field that holds a tensor, or a function that makes it when it is first read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, out: Any, owner: type | None = None) -> Tensor | None:
        value: Any = None if out is None else out.__dict__[self.name]  # None: the default of the field
        value = value() if callable(value) else value
        if value is not None and (value.dtype != out.logits.dtype or value.requires_grad):
            value = value.to(out.logits.dtype).detach()
        if out is not None:
            out.__dict__[self.name] = value
        return cast("Tensor | None", value)

    def __set__(self, out: Any, value: Tensor | Callable[[], Tensor | None] | None) -> None:
        out.__dict__[self.name] = value


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of one trained model on one graph, computed once and never changed.

    `observe` and `graphcal.lab.train` make them.

    Parameters
    ----------
    logits : Tensor of shape (N, C)
        Half precision is converted to single.
    graph : Data
        With ``edge_index``, ``y`` (N,) or (N, 1), and masks; masks may be boolean or node numbers.
    final : FinalLayer, optional
        Last linear map; SCAR needs it.
    hidden : Tensor of shape (N, D) or callable, optional
        Representation that enters the last linear map.
    model : ModelHandle, optional
        Runs the model again, for calibrators that need it.

    Examples
    --------
    >>> import graphcal
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> out, out.num_nodes, out.num_classes
    (Outputs(500 nodes, 5 classes, final layer known), 500, 5)
    >>> out.pred.shape, out.to(torch.float64).logits.dtype  # predicted classes; another precision
    (torch.Size([500]), torch.float64)
    """

    logits: Tensor  # (N, C)
    graph: Data  # edge_index, y, train_mask, val_mask, test_mask; x for calibrators that read features
    final: FinalLayer | None = None  # absent when only logits are known; SCAR then refuses, clearly
    hidden: LazyTensor = LazyTensor()  # (N, D) that enters the final linear map in the forward pass; may be a function
    model: ModelHandle | None = None  # filled by `train`; absent when only numbers are known

    def __post_init__(self) -> None:
        check_logits(self.logits)
        object.__setattr__(self, "logits", as_float(self.logits).detach())  # a frozen view: no gradient goes through it
        object.__setattr__(self, "graph", normalise_masks(self.graph, self.num_nodes))
        check_graph(self.graph, *self.logits.shape)
        if self.final is not None and len(self.final.weight) != self.num_classes:
            raise ValueError(
                f"the final layer has weights for {len(self.final.weight)} classes, but the logits have {self.num_classes} "
                "columns: weight must be (C, D) with one row for each class"
            )

    @classmethod
    def from_logits(cls, logits: Any, data: Data, weight: Any = None, bias: Any = None) -> Outputs:
        """Build outputs from logits alone. SCAR also needs ``weight`` (C, D) and ``bias`` (C,) of the last layer.

        >>> import graphcal
        >>> graphcal.Outputs.from_logits(torch.randn(500, 5), graphcal.example().graph)
        Outputs(500 nodes, 5 classes, logits only)
        """
        logits = as_float(logits)
        if weight is None and bias is not None:
            raise ValueError("bias was given without weight: SCAR needs the last layer's weight (C, D) as well")
        weight, bias = (None if t is None else as_float(t).to(logits) for t in (weight, bias))
        return cls(logits.detach(), data, None if weight is None else FinalLayer.from_weight(weight, bias))

    def __repr__(self) -> str:
        detail = "final layer known" if self.final is not None else "logits only"
        return f"Outputs({self.num_nodes} nodes, {self.num_classes} classes, {detail})"

    @property
    def num_nodes(self) -> int:
        """N"""
        return self.logits.shape[0]

    @property
    def num_classes(self) -> int:
        """C"""
        return self.logits.shape[1]

    @cached_property
    def pred(self) -> Tensor:
        """(N,) the class of the largest logit."""
        return self.logits.argmax(-1)

    @cached_property
    def final_representation(self) -> Tensor | None:
        """h (N, D) with logits = h @ final.weight.T + final.bias; None where it is not known.

        `hidden` where nothing follows the final linear map. Else (GCN, GAT) the model runs again, 2 + D / C times if it was
        observed. What does not give the logits back is not returned.

        >>> import graphcal
        >>> graphcal.example().final_representation.shape
        torch.Size([500, 16])
        """
        final = self.final
        if final is None:
            return None
        for make in (lambda: self.hidden, getattr(self.model, "final_representation", lambda: None)):
            h: Tensor | None = make()
            if h is not None and h.shape[1] == final.weight.shape[1]:
                h = h.to(self.logits)
                gap = h @ final.weight.T + final.bias - self.logits
                if gap.abs().max() <= 1e-4 * self.logits.abs().max():
                    return h
        return None

    def rerun(self, needed_by: str, edge_weight: Tensor | None = None, dropout: Generator | None = None) -> Tensor:
        """Run the model once more and return its logits (N, C); ``needed_by`` names the caller in the error.

        >>> import graphcal
        >>> from torch_geometric.nn.models import GCN
        >>> data = graphcal.example().graph
        >>> out = graphcal.observe(GCN(data.num_features, 8, 2, data.num_classes, dropout=0.5), data)
        >>> out.rerun("an ensemble", dropout=Generator().manual_seed(0)).shape
        torch.Size([500, 5])
        """
        if self.model is None:
            how = "with weights on the edges" if edge_weight is not None else "with its dropout active"
            raise ValueError(
                f"{needed_by} runs the model again {how}, but only fixed logits are known: use the outputs of `train`, "
                "or give Outputs(model=...) an object with logits(edge_weight, dropout)"
            )
        return self.model.logits(edge_weight, dropout).to(self.logits)

    def to(self, target: torch.device | str | torch.dtype) -> Outputs:
        """The same view on another device or in another precision."""
        moved = not isinstance(target, torch.dtype)  # to another device, where the model is not
        return Outputs(
            self.logits.to(target),
            self.graph.clone().to(target) if moved else self.graph,
            None if self.final is None else self.final.to(target),
            lambda: None if self.hidden is None else self.hidden.to(target),
            None if moved else self.model,
        )


@dataclass(frozen=True)
class Needs:
    """Inputs of a calibration besides the logits.

    >>> Needs(edges=True).edges, Needs().edges
    (True, False)
    """

    edges: bool = False  # context reads the graph
    training: bool = False  # context reads which nodes are training nodes
    hidden: bool = False  # context uses the representation that enters the final linear map, where it is given
    inputs: bool = False  # context uses the input features, where they are given
    same_graph: bool = False  # refused on another graph than the one it was fitted on
    whole_graph: bool = False  # forward(out) on the whole graph only: no parts, no batches, no export


def first_largest(z: Tensor) -> Tensor:
    """Class (n,) of the largest of C rows (C, n), the first of equal ones; ten times faster than ``argmax(0)``."""
    small = len(z) < 1 << 15 and not torch.compiler.is_compiling()  # ONNX Runtime has no maximum of int16
    rank = torch.arange(len(z), 0, -1, device=z.device, dtype=torch.int16 if small else torch.int32)[:, None]
    return len(z) - ((z == z.amax(0)) * rank).amax(0).clamp(min=1).long()


class Calibration(nn.Module):
    """A fitted map from `Outputs` to log-probabilities (N, C).

    The constructor's arguments are the whole state: tensors become buffers (so ``.to``, ``state_dict`` and saving work),
    everything else is a plain JSON-able setting. ``Cls(**tensors, **settings)`` restores a saved one.

    A subclass defines ``needs``, `context` (if it reads the graph) and `kernel`. It is then applied in memory, to tables on
    disk, to sampled batches and in exported programs. A calibration with ``needs.whole_graph`` defines ``forward(out)`` instead.

    Parameters
    ----------
    num_classes : int, optional
        Number of classes of the fit; logits with another number are refused.
    fitted_on : mapping, optional
        Metadata of the fit (see the function of that name).
    **state
        Tensors and settings of the subclass.

    Examples
    --------
    >>> import graphcal
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> calibrate = graphcal.SCAR().fit(out, on=data.val_mask)
    >>> log_probs = calibrate(out)  # (N, C)
    >>> table = calibrate.context_of(out)  # (N, K)
    >>> calibrate.needs.edges, torch.equal(calibrate.log_probs(out.logits, table), log_probs)
    (True, True)
    >>> calibrate.kernel(out.logits.T, table.T).shape  # classes first
    torch.Size([5, 500])
    >>> calibrate.unknown_context(out.logits).shape  # NaN: no neighbourhood is known
    torch.Size([500, 1])
    """

    needs: Needs = Needs()  # a property where the fit decides

    num_classes: int | None

    def __init__(self, *, num_classes: Any = None, fitted_on: Any = None, **state: Any) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.fitted_on = dict(fitted_on or {})
        self.file = ""  # that it was restored from, for error messages
        self.settings: dict[str, Any] = {}
        for name, value in state.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value.detach().clone())
            elif isinstance(value, Calibration):
                self.add_module(name, value)  # a calibration built on another one
            else:
                self.settings[name] = value
                setattr(self, name, value)

    def context(
        self, logits: Columns, graph: GraphSums, hidden: Columns | None = None, inputs: Columns | None = None
    ) -> Columns:
        """Columns (N, K) that `kernel` reads besides the logits; (N, 0) for a map of the logits alone.

        Compose it with ``graph.rows`` and ``graph.neighbour_sum`` only: then it works in memory, on disk and when traced.
        """
        return graph.rows(lambda z: z[:, :0], logits)

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:
        """Log-probabilities (C, n) of logits (C, n) and context (K, n), in pure torch.

        A column of NaN in the context means that a node's neighbourhood is unknown: it gets the plain form.
        """
        raise NotImplementedError(f"{type(self).__name__} has no kernel")

    @final
    def log_probs(self, logits: Tensor, context: Tensor) -> Tensor:
        """Log-probabilities (n, C) of nodes with these logits (n, C) and rows of context (n, K)."""
        parts = [(logits, context)]
        if not torch.compiler.is_compiling():  # the number of blocks would be fixed
            parts = list(zip(logits.split(BLOCK), context.split(BLOCK)))
        blocks = [self.kernel(z.T.contiguous(), c.T.contiguous()).T for z, c in parts]
        joined = torch.cat(blocks) if len(blocks) > 1 else blocks[0].contiguous()
        return joined.to(logits.dtype)

    @final
    def context_of(self, out: Outputs) -> Tensor:
        """Context (N, K) of every node. It serves nodes whose neighbours are not at hand: sampled batches, exported models."""
        graph = graph_sums(out.graph) if self.needs.edges else isolated_nodes(out.num_nodes, out.logits)
        if graph is None:
            return self.unknown_context(out.logits)
        hidden = out.hidden if self.needs.hidden else None
        inputs = out.graph.get("x") if self.needs.inputs else None
        return cast(Tensor, self.context(out.logits, graph, hidden, inputs))

    @final
    def unknown_context(self, logits: Tensor) -> Tensor:
        """Context (n, K) of nodes of which only the logits (n, C) are known: NaN."""
        width = cast(Tensor, self.context(logits[:1], isolated_nodes(len(logits[:1]), logits))).shape[1]
        return logits.new_full((len(logits), width), torch.nan)

    def _check(self, out: Outputs) -> None:
        """Refuse outputs of other classes or, with ``needs.same_graph``, of another graph."""
        source = f"{self.file}: " if self.file else ""
        if self.num_classes not in (None, out.num_classes):
            raise ValueError(
                f"{source}this calibration was fitted on {self.num_classes} classes, the logits have {out.num_classes}"
            )
        names, given = self.fitted_on.get("class_names"), out.graph.get("class_names")
        if names is not None and given is not None and list(names) != list(map(str, given)):
            raise ValueError(
                f"{source}this calibration was fitted on the classes {names}, in this order; the graph has {list(given)}"
            )
        if self.needs.same_graph and fingerprint(out.graph) != self.fitted_on.get("fingerprint"):
            raise ValueError(
                f"{source}{type(self).__name__} serves the graph it was fitted on, and this is another one"
            )

    def __call__(self, out: Outputs) -> Tensor:
        """Calibrated log-probabilities (N, C) of a model's outputs."""
        self._check(out)
        with without_autocast(out.logits.device):
            return self._from_file(out) if self.file else cast(Tensor, super().__call__(out))

    def _from_file(self, out: Outputs) -> Tensor:
        """Apply it as `__call__` does; report tensors of a damaged file that do not fit the graph or overflow."""
        name = type(self).__name__
        try:
            log_probs: Tensor = super().__call__(out)
        except torch.OutOfMemoryError:
            raise
        except Exception as fault:
            reason = " ".join(str(fault).split())[:300]
            raise ValueError(
                f"{self.file}: its {name} cannot be applied to {out.num_nodes} nodes with {out.num_classes} classes ({reason}); "
                "the file is damaged, or it was fitted on a graph with other features"
            ) from fault
        total, rounding = log_probs.detach().float().exp().sum(-1), 1e-3 if log_probs.element_size() > 2 else 2e-2
        sound = log_probs.isfinite().all() & (total - 1).abs().le(rounding).all()
        if log_probs.shape != out.logits.shape or not bool(sound):
            raise ValueError(f"{self.file} is damaged: its {name} gives no log-probabilities")
        return log_probs

    def forward(self, out: Outputs) -> Tensor:
        """`__call__` without its checks."""
        return self.log_probs(out.logits, self.context_of(out))

    def _summary(self) -> list[tuple[str, str]]:
        """Headings and texts for a terminal or a notebook."""
        inputs = {
            "edges": self.needs.edges,
            "training nodes": self.needs.training,
            "hidden representation": self.needs.hidden,
        }
        inputs |= {"input features": self.needs.inputs}
        classes = "any number of classes" if self.num_classes is None else f"{self.num_classes} classes"
        settings = {key: value for key, value in self.settings.items() if key != "note" and value not in (None, "")}
        rows = [("Calibration", f"{type(self).__name__}, {classes}")]
        if "fitting_nodes" in self.fitted_on:
            rows.append(("Fitted on", plural(self.fitted_on["fitting_nodes"], "node")))
        rows.append(("Reads", ", ".join(["logits", *(name for name, needed in inputs.items() if needed)])))
        if settings:
            rows.append(("Settings", ", ".join(f"{key}={_shortened(repr(value))}" for key, value in settings.items())))
        if small := [f"{k} {_short(v)}" for k, v in self.named_buffers() if v.numel() <= 4]:
            rows.append(("Parameters", ", ".join(small)))
        if note := self.settings.get("note"):
            rows.append(("Note", str(note)))
        return rows

    def __repr__(self) -> str:
        return summary_text(self._summary())

    def _repr_html_(self) -> str:
        return summary_html(self._summary())

    def extra_repr(self) -> str:
        """Small tensors and settings, in one line."""
        shown = [f"{k}={_short(v)}" for k, v in self.named_buffers() if v.numel() <= 4]
        return ", ".join(shown + [f"{k}={v!r}" for k, v in self.settings.items()])


def _shortened(text: str, width: int = 40) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _short(value: Tensor) -> str:
    numbers = [f"{v:.4g}" for v in value.flatten().tolist()]
    return numbers[0] if len(numbers) == 1 else "[" + ", ".join(numbers) + "]"


@runtime_checkable
class Recipe(Protocol):
    """A frozen dataclass of hyper-parameters with a method ``fit``.

    ``fit(out, on, stop=None)`` returns a `Calibration`. It reads the labels of the nodes ``on`` (N,), a boolean mask or node
    numbers. ``stop`` are the nodes for early stopping, if a method has it: GATS stops on training nodes, CaGCN on ``on``.

    >>> import graphcal
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> recipe = graphcal.TemperatureScaling()
    >>> isinstance(recipe, graphcal.Recipe), recipe.fit(out, on=data.val_mask)(out).shape
    (True, torch.Size([500, 5]))
    """

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> Calibration:
        """The calibration of the nodes ``on``. No other label may be read, but those of ``stop`` and of training nodes."""


def fitting_nodes(out: Outputs, on: Tensor) -> Tensor:
    """The nodes ``on`` as a boolean mask, checked: right length, not empty, labelled, and no training node in it."""
    on = check_mask(on, out.num_nodes, "on").to(out.logits.device)
    if out.graph.get("y") is None:
        raise ValueError("the graph has no labels y: a calibration is fitted on labelled nodes")
    if int(out.graph.y[on].min()) < 0:
        raise ValueError(f"on selects {int((out.graph.y[on] < 0).sum())} nodes without a label (y = -1)")
    train = out.graph.get("train_mask")
    if train is not None and (train & on).any():
        raise ValueError(
            f"on shares {int((train & on).sum())} nodes with train_mask: the model has seen their labels, so its confidence "
            "there says nothing about new nodes. Fit on validation nodes"
        )
    test = out.graph.get("test_mask")
    if test is not None and (test & on).any():
        warnings.warn(
            f"on shares {int((test & on).sum())} nodes with test_mask: their labels are fitted on, so what is measured "
            "there is too good",
            stacklevel=3,
        )
    return on


def hide_test_labels(graph: Data) -> Data:
    """The graph as a calibrator may see it, which cannot read a test label: only training and validation nodes have theirs."""
    seen = torch.zeros(int(graph.num_nodes), dtype=torch.bool, device=graph.y.device)
    for name in ("train_mask", "val_mask"):
        if graph.get(name) is not None:
            seen |= graph[name]
    blind = copy.copy(graph)  # shares x and edge_index
    blind.y = torch.where(seen, graph.y, torch.full_like(graph.y, -1))
    if "test_mask" in blind:
        del blind.test_mask
    return blind


def fitted_on(out: Outputs, on: Tensor) -> dict[str, Any]:
    """Metadata of a fit, stored in the saved file's header: ``Cls(..., **fitted_on(out, on))``."""
    graph = out.graph
    names = graph.get("class_names")
    metadata = {
        "fitting_nodes": int(check_mask(on, out.num_nodes, "on").sum()),
        "nodes": out.num_nodes,
        "edges": None if graph.get("edge_index") is None else int(graph.edge_index.shape[1]),
        "undirected": None if graph.get("edge_index") is None else is_undirected(graph.edge_index),
        "fingerprint": fingerprint(graph),
        "training_nodes": None if graph.get("train_mask") is None else int(graph.train_mask.sum()),
        "class_names": None if names is None else [str(name) for name in names],
    }
    if graph.get("observed_type") is not None:  # of a heterogeneous graph
        metadata["node_type"] = str(graph.observed_type)
    return {"num_classes": out.num_classes, "fitted_on": metadata}
