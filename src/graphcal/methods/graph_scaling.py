"""Graph scaling, ours: logits that are linear in what the model, its final layer and the neighbourhood say, stacked with TS.

    z' = s_n z_n + w_n t_n + u_n v1_n + u2 v2_n + b + M z_n

    s_n z      a scale that depends on facts of the node's neighbourhood (agreement, degree, ...)
    w_n t      SCAR's pull towards the centroid of the predicted class, t = G[:, y_hat] + b (arXiv:2505.11335), likewise
    u_n v1     what the neighbours say: the centred log of their mean probability; v2 the same two steps away
    b + M z    a bias for each class and a matrix: the classes' shares where the model is used are not those it was trained on

Linear in all its parameters: validation NLL is convex, `graphcal.engine.linear` solves it exactly. Each block has a ridge of its
own, found by coordinate search on leave-one-out NLL. Six members, from temperature scaling to all blocks, are stacked: their
probabilities are mixed with the weights that explain the labels best when every node is predicted without its own label, under a
prior of a few observations for each member and some more for TS where there are few labels. So with little data it is near TS.
A mixture of calibrated members is less sure than it should be; one exponent, fitted the same way, makes up for that.

*Fallback.* Stack -> SCAR with a temperature -> TS -> the model itself: the first whose leave-one-out NLL is below that of all
after it. ``note`` says which, and what the fit found.

*Knowing the training set* is one fact (is the node next to it?). Both forms are fitted, with and without; the second serves
training nodes and graphs whose training set is not known. A node without neighbours has no facts and gets TS, unless at least ten
fitted nodes were like it.

*Keeping predictions* (``predictions="keep"``): a distribution whose largest entry is another class is replaced by the nearest one
that keeps the prediction (`graphcal.engine.scaling.pooled`). Such nodes are *held*: the fit does not believe their prediction.
Members with class terms are then left out of the stack: most of what they know is which other class it is, and no distribution
with the old class on top can say that; with them NLL is lower and ECE higher.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, fitted_on, fitting_nodes, training_set_of
from graphcal.engine.graph_columns import FactUnits, Layout, centred, raw_facts, read_context
from graphcal.engine.node_order import fitting_order
from graphcal.engine.scaling import mixture, pooled, with_predictions
from graphcal.engine.threads import threads_for
from graphcal.graphs import fingerprint, structure
from graphcal.methods.card import Card
from graphcal.methods.scar import centroid_logits
from graphcal.methods.stacked_fit import BLOCKS, StackedFit, fit_stack
from graphcal.methods.temperature import fit_scale
from graphcal.metrics.row_comparison import compare_rows, prediction_covariates

PREDICTIONS = ("free", "keep")
ENOUGH_ALONE = 10  # fitted nodes without neighbours that give such nodes a term of their own


@dataclass(frozen=True)
class GraphScaling:
    """Recalibrate with everything the graph says: scales, pulls, neighbours' opinions and class terms, stacked with TS.

    The calibrator to start with: it has nothing to set, needs only logits and takes edges and the final layer where they are
    known. ``predictions="keep"`` never changes a prediction, at a price that the fit's ``note`` states;
    ``labelled_neighbours=True`` also reads the labels of training and validation nodes next to a node (transductive: it helps on
    the graph it was fitted on). ``without`` leaves blocks out: "pull", "facts", "classes", "neighbours", separated by commas.

    >>> import graphcal as gc
    >>> data = gc.load("citeseer")
    >>> out = gc.train(data, training=gc.Training(epochs=60), seeds=[0])[0].outputs
    >>> calibrate = gc.GraphScaling().fit(out, on=data.val_mask)
    >>> calibrate(out).shape
    torch.Size([3327, 6])
    >>> keep = gc.GraphScaling(predictions="keep").fit(out, on=data.val_mask)
    >>> bool((keep(out).argmax(-1) == out.pred).all())
    True
    >>> int(keep.held(out).sum()) > 0  # nodes whose prediction is kept, not believed
    True
    >>> gc.GraphScaling(without="pull,facts").left_out
    ['pull', 'facts']
    """

    predictions: str = "free"
    labelled_neighbours: bool = False
    without: str = ""

    card: ClassVar[Card] = Card(
        title="Graph scaling",
        formula="p = sum_m weight_m softmax(s_n z + w_n t + u_n v1 + u2 v2 + b + M z), with fewer blocks in the smaller members",
        paper="this library; t and its Gram matrix: arXiv:2505.11335",
        parameters="about 50 + C^2 under ridges, in six members; for C > 10 about 50 + 4 C",
        cost="fit: some forty Newton steps on the fitted nodes; apply: O((E + N C) C)",
        keeps_predictions=False,
        minimises_nll=True,
        departures="not a published method; its pull is SCAR's",
    )

    def __post_init__(self) -> None:
        if self.predictions not in PREDICTIONS:
            raise ValueError(f"predictions={self.predictions!r} is not one of {', '.join(PREDICTIONS)}")
        unknown = [name for name in self.left_out if name not in BLOCKS]
        if unknown:
            raise ValueError(f"without={self.without!r}: {', '.join(unknown)} is not one of {', '.join(BLOCKS)}")

    @property
    def left_out(self) -> list[str]:
        """The blocks named by ``without``."""
        return [name.strip() for name in self.without.split(",") if name.strip()]

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> GraphScaled:
        """Ridges, members and their weights of least leave-one-out NLL on the nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        nodes = fitting_order(out, on)
        z, y = centred(out.logits), out.graph.y[nodes]
        graph = out.graph.get("edge_index") is not None
        layout = Layout(
            out.num_classes, out.final is not None, graph, graph and self.labelled_neighbours
        )  # what is known, whatever is left out
        scale = fit_scale(z[nodes], y)[0]
        labels = _seen_labels(out, nodes) if layout.labels else None
        alone = int((structure(out.graph).degree[nodes] == 0).sum()) if graph else 0
        alone_is_known = alone >= min(ENOUGH_ALONE, len(nodes))
        context = read_context(out, layout, scale, labels, alone_is_known)[nodes]
        if graph:  # nodes that will get TS teach the others nothing
            known = ~context[:, -1].isnan()
            nodes, y, context = nodes[known], y[known], context[known]
        units = FactUnits.of(raw_facts(z[nodes], context))
        state: dict[str, Any] = {
            **_centroids(out, layout), "scale": scale, "centre": units.centre, "spread": units.spread, "low": units.low,
            "high": units.high, "alone_is_known": alone_is_known, "graph": graph, **_labels_state(labels, out),
            "predictions": self.predictions, **fitted_on(out, on), **training_set_of(out),
        }  # fmt: skip
        columns = _columns(layout, z[nodes], context, state)
        with threads_for(z[nodes].numel() * len(layout.of_training)):
            fitted = fit_stack(layout, columns, z[nodes], y, scale, self.left_out, keep=self.predictions == "keep")
        fitted = replace(fitted, note=fitted.note + _selection_note(out, on, scale))
        return GraphScaled(**state, **_fit_state(fitted))


def _selection_note(out: Outputs, on: Tensor, scale: Tensor) -> str:
    """How the fitted nodes differ from the other nodes outside training; empty where chance explains it."""
    train = out.graph.get("train_mask")
    others = ~on if train is None else ~on & ~train
    draw = torch.Generator().manual_seed(0)
    picked = [nodes.nonzero().flatten().cpu() for nodes in (on, others)]
    picked = [ids[torch.randperm(len(ids), generator=draw)[:most]] for ids, most in zip(picked, (500, 1000))]
    if len(picked[1]) == 0:
        return ""
    rows = torch.cat(picked)
    log_probs = (scale * out.logits[rows]).log_softmax(-1).detach().cpu().double()
    graph = out.graph.get("edge_index") is not None
    degree = structure(out.graph).degree[rows].cpu().numpy() if graph else None
    columns = prediction_covariates(log_probs.numpy(), None, degree)
    first = len(picked[0])
    comparison = compare_rows(
        {name: column[:first] for name, column in columns.items()},
        {name: column[first:] for name, column in columns.items()},
        draws=399,
    )
    if not comparison.differ:
        return ""
    return (
        f"; {comparison.text('the fitted nodes', 'the others')} (they can be told apart, AUC {comparison.auc:.2f}): what was "
        "measured on the fitted nodes may not carry over"
    )


@dataclass(frozen=True)
class KeptGraphScaling(GraphScaling):
    """Graph scaling that never changes a prediction: nodes whose prediction it does not believe are held, and said to be.

    The same as ``GraphScaling(predictions="keep")``, under a name of its own for tables and commands.
    """

    predictions: str = "keep"

    card: ClassVar[Card] = replace(GraphScaling.card, title="Graph scaling, predictions kept", keeps_predictions=True)


class GraphScaled(Calibration):
    """What `GraphScaling` fits."""

    hops: ClassVar[int] = 2  # of complete neighbourhood that `context` reads

    scale: Tensor  # () 1 / temperature of the plain form
    theta: Tensor  # (2, M, K) the members' parameters: with and without knowing the training set
    weights: Tensor  # (2, M) of the members
    sharpness: Tensor  # (2,) the exponent of their mixture
    centre: Tensor  # (F,) of the facts on the fitted nodes, and likewise
    spread: Tensor
    low: Tensor
    high: Tensor
    gram: Tensor  # (C, C), or (0, 0) where the final layer is not known
    bias: Tensor  # (C,)
    train_keys: Tensor  # of the training nodes (graphcal.graphs)
    label_nodes: Tensor  # labelled nodes that neighbours are counted among, and their labels; empty otherwise
    label_values: Tensor
    graph: bool  # the edges were known
    reads_labels: bool
    labels_of: str  # the fingerprint of the graph they are known of
    alone_is_known: bool
    predictions: str
    members: list[str]
    note: str
    training_set_worth: float  # by how much knowing the training set lowers leave-one-out NLL

    @property
    def layout(self) -> Layout:
        assert self.num_classes is not None
        return Layout(self.num_classes, len(self.gram) > 0, self.graph, self.reads_labels)

    @property
    def reads_graph(self) -> bool:
        return self.graph

    def context(self, out: Outputs) -> Tensor:
        labels = None
        if self.reads_labels and fingerprint(out.graph) == self.labels_of:  # the graph it was fitted on
            labels = torch.full((out.num_nodes,), -1, device=out.logits.device)
            labels[self.label_nodes] = self.label_values
        return read_context(out, self.layout, self.scale, labels, self.alone_is_known)

    def from_context(self, logits: Tensor, context: Tensor) -> Tensor:
        log_probs, pred = self.believed(logits, context), logits.argmax(-1)
        if self.predictions == "free":
            return log_probs.to(logits)
        return with_predictions(pooled(log_probs, pred).to(logits), pred)

    def believed(self, logits: Tensor, context: Tensor) -> Tensor:
        """Log-probabilities (n, C) before predictions are kept, in double precision."""
        z, context = centred(logits), context.double()
        plain = (self.scale.double() * z).log_softmax(-1)
        if not self.graph:
            return self._form(1, z, context)
        known = ~context.isnan()
        filled = torch.where(known, context, torch.zeros_like(context))
        with_training = torch.where(known[:, :1], self._form(0, z, filled), self._form(1, z, filled))
        return torch.where(known[:, -1:], with_training, plain)

    def _form(self, form: int, z: Tensor, context: Tensor) -> Tensor:
        columns = _columns(self.layout, z, context, dict(self.named_buffers()))
        members = columns.apply_each(self.theta[form].double()).log_softmax(-1)  # (M, n, C)
        mixed = mixture(members, self.weights[form].double())
        return (self.sharpness[form].double() * mixed).log_softmax(-1)

    def held(self, out: Outputs) -> Tensor:
        """The nodes whose prediction is kept and not believed; none with ``predictions="free"``."""  # (N,) bool
        if self.predictions == "free":
            return torch.zeros_like(out.pred, dtype=torch.bool)
        return self.believed(out.logits, self.context(out)).argmax(-1) != out.pred


# ------------------------------------------------------------------------------------------------------------------ state


def _columns(layout: Layout, z: Tensor, context: Tensor, state: dict[str, Any]) -> Any:
    units = FactUnits(*(state[name].double() for name in ("centre", "spread", "low", "high")))
    t = z
    if layout.pull:
        t = centred(centroid_logits(state["gram"].double(), state["bias"].double(), z.argmax(-1)))
    return layout.columns(z, t, units(raw_facts(z, context)), context)


def _centroids(out: Outputs, layout: Layout) -> dict[str, Tensor]:
    if out.final is None:
        return {"gram": out.logits.new_empty(0, 0), "bias": out.logits.new_empty(0)}
    return {"gram": out.final.gram.to(out.logits), "bias": out.final.bias.to(out.logits)}


def _seen_labels(out: Outputs, nodes: Tensor) -> Tensor:
    """Labels of the training nodes and of those fitted on, -1 elsewhere."""  # (N,)
    seen = structure(out.graph).train_mask.clone()
    seen[nodes] = True
    return torch.where(seen, out.graph.y, -1)


def _labels_state(labels: Tensor | None, out: Outputs) -> dict[str, Any]:
    if labels is None:
        none = torch.empty(0, dtype=torch.long)
        return {"label_nodes": none, "label_values": none, "reads_labels": False, "labels_of": ""}
    nodes = (labels >= 0).nonzero().flatten()
    of = fingerprint(out.graph)
    return {"label_nodes": nodes, "label_values": labels[nodes], "reads_labels": True, "labels_of": of}


def _fit_state(fitted: StackedFit) -> dict[str, Any]:
    return {
        "theta": fitted.theta,
        "weights": fitted.weights,
        "sharpness": fitted.sharpness,
        "members": list(fitted.members),
        "note": fitted.note,
        "training_set_worth": fitted.training_set_worth,
    }
