"""Results of a study: measurements per method, the chosen method, and the files to save.

One method is chosen, once, by `choose_method`. The verdict, the backtest of decisions, the map, the model card, the terminal,
``calibrator.safetensors`` and ``calibrated.parquet`` are all of that method. ``results.json`` is written last and holds the
SHA-256 of the calibrator and the predictions it belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

import graphcal
from graphcal.core import Calibration
from graphcal.decisions.counts import Count, overview
from graphcal.decisions.outcomes import Backtest, backtest
from graphcal.files import write_atomically, write_record
from graphcal.graphs import class_name, node_name
from graphcal.methods.solvers.node_order import kfold
from graphcal.metrics import Measurement, reference_summary
from graphcal.metrics.slices import ChangedNode
from graphcal.records import SCHEMA
from graphcal.reports import wording
from graphcal.reports.html import build
from graphcal.reports.maps import node_map
from graphcal.saving import installed_versions, save
from graphcal.study import Study, held_out
from graphcal.text import Summarized

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

FOLDS = 5  # of the validation nodes, to choose a method
Explanations = Callable[[str, Sequence[int]], Sequence[Mapping[str, Any] | None]]  # of a method's nodes


@dataclass(frozen=True)
class Choice:
    """The method of a study that is saved, decides and is reported on."""

    method: str
    reason: str
    held_out_nll: dict[str, float]  # of every method, on validation nodes it was not fitted on


@dataclass(frozen=True)
class Provenance:
    """Origin of predictions: a trained model (``input`` "model") or a table ("table")."""

    input: Literal["model", "table"]
    dataset: str
    protocol: str
    source: str
    seeds: tuple[int, ...]
    notes: tuple[str, ...] = ()
    # A model
    backbone: str | None = None
    training: Mapping[str, Any] | None = None
    train_seconds: float | None = None
    labels_per_class: int | None = None
    split: int | None = None
    # A table
    classes: tuple[str, ...] | None = None
    layout: str | None = None
    kind: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Change:
    """A node whose confidence a method changed much, with its names and, where known, an explanation."""

    node: ChangedNode
    id: str
    predicted_class: str
    label_class: str
    explanation: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        names = {"id": self.id, "predicted_class": self.predicted_class, "label_class": self.label_class}
        explanation = {} if self.explanation is None else {"explanation": dict(self.explanation)}
        return {**self.node.to_dict(), **names, **explanation}


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One method of a study: what was fitted, and its measurement on the test nodes."""

    title: str
    recipe: str
    fitted: str
    fit_seconds: float
    apply_seconds: float
    measurement: Measurement
    backtest: Backtest | None  # of the first run; None where the test nodes are too few
    changed: tuple[Change, ...]

    def to_dict(self) -> dict[str, Any]:
        record = {
            **{name: getattr(self, name) for name in ("title", "recipe", "fitted", "fit_seconds", "apply_seconds")},
            **self.measurement.to_dict(),
            "decision": None if self.backtest is None else self.backtest.to_dict(),
        }
        return {**record, "changed": [one.to_dict() for one in self.changed]} if "changed" in record else record


@dataclass(frozen=True, eq=False)
class Results(Summarized):
    """Results of a study, with the calibrator and the predictions of the chosen method. `save` writes them to a folder."""

    source: Provenance
    choice: Choice
    methods: Mapping[str, MethodResult]
    nodes: Mapping[str, int]  # training, validation and test nodes
    num_nodes: int
    bins: int
    map: Mapping[str, Any] | None = field(repr=False)  # None for two classes or without edges
    calibration: Calibration = field(repr=False)  # of the chosen method
    write_calibrated: Callable[[Path], Path] = field(repr=False)
    reference: Mapping[str, Any] = field(repr=False)  # predictions now, for `graphcal watch`
    counts: tuple[
        Count, ...
    ] = ()  # of errors in predicted classes and slices, where the calibration was fitted with sets=True
    command: str = ""
    schema: int = SCHEMA

    @property
    def chosen_method(self) -> str:
        """Name of the method whose calibrator and predictions are saved."""
        return self.choice.method

    def value(self, method: str, metric: str) -> float:
        """Mean over seeds, as a fraction."""
        return float(getattr(self.methods[method].measurement, metric))

    @cached_property
    def record(self) -> dict[str, Any]:
        """The content of ``results.json`` without the hashes of the other files; schemas/results.schema.json describes it."""
        facts = {
            "schema": self.schema,
            "graphcal": graphcal.__version__,
            **self.source.to_dict(),
            "nodes": dict(self.nodes),
            "num_nodes": self.num_nodes,
            "bins": self.bins,
            "versions": installed_versions(),
            "command": self.command,
            "chosen_method": self.chosen_method,
            "choice": {"reason": self.choice.reason, "held_out_nll": self.choice.held_out_nll},
            "methods": {name: method.to_dict() for name, method in self.methods.items()},
            "map": None if self.map is None else dict(self.map),
            **({"counts": [one.to_dict() for one in self.counts]} if self.counts else {}),
        }
        sentence = wording.backtest_sentence(facts)
        words = {
            "decision": None if sentence is None else {"sentence": sentence, "guarantee": False},
            "verdict": wording.verdict(facts),
        }
        return json.loads(json.dumps({**facts, **words}))  # type: ignore[no-any-return]  # as it is read back

    @property
    def verdict(self) -> str:
        """The result in one sentence; the terminal and the page show the same."""
        return str(self.record["verdict"])

    @property
    def decision(self) -> str | None:
        """The backtest of automatic decisions, in words; None where the test nodes are too few."""
        decision = self.record["decision"]
        return None if decision is None else str(decision["sentence"])

    @property
    def summary(self) -> list[tuple[str, str]]:
        """Headings and texts, the most useful first, for a terminal or a notebook."""
        return wording.summary(self.record)

    def save(self, folder: str | Path) -> Path:
        """Write calibrator.safetensors, calibrated.parquet and report.html, then results.json; return the path of the page."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        page = build(self.record)
        written = [
            save(self.calibration, folder / "calibrator.safetensors", self.reference),
            self.write_calibrated(folder / "calibrated.parquet"),
        ]
        path = write_atomically(folder / "report.html", page)
        write_record(folder / "results.json", self.record, written)
        return path


def results_of(
    study: Study,
    choice: Choice,
    source: Provenance,
    bins: int,
    write_calibrated: Callable[[Path], Path],
    explain: Explanations | None = None,
    served: Tensor | None = None,
) -> Results:
    """Measure the study on the test nodes.

    Parameters
    ----------
    study : Study
        Fitted calibrators.
    choice : Choice
        The method that is saved and reported on, see `choose_method`.
    source : Provenance
        Where the predictions come from.
    bins : int
        Number of bins of the confidence.
    write_calibrated : callable
        Writes the calibrated predictions of the chosen method to a path.
    explain : callable, optional
        Explains nodes of a method, for the nodes that changed most.
    served : Tensor (N, C), optional
        Log-probabilities as they are served, if they differ from those of the chosen method.
    """
    graph, name = study.graph, choice.method
    methods = {
        key: method_result(study, key, measurement, explain)
        for key, measurement in study.measure(graph.test_mask, bins).items()
    }
    served = study.log_probs(name)[0] if served is None else served
    trial = methods[name].backtest
    return Results(
        source=source,
        choice=choice,
        methods=methods,
        nodes={part: int(graph[f"{part}_mask"].sum()) for part in ("train", "val", "test")},
        num_nodes=len(graph.y),
        bins=bins,
        map=map_of(study, name),
        calibration=study.fitted[name][0].calibration,
        write_calibrated=write_calibrated,
        reference=reference_summary(served[~graph.train_mask], decision=None if trial is None else trial.decision),
        counts=tuple(overview(study.fitted[name][0].calibration, study.outputs[0])),
    )


def method_result(study: Study, name: str, measurement: Measurement, explain: Explanations | None) -> MethodResult:
    """The measurement of one method, with its backtest and the nodes that it changed most."""
    graph = study.graph
    nodes = [int(one.node) for one in measurement.changed]
    reasons = [None] * len(nodes) if explain is None or not nodes else explain(name, nodes)
    return MethodResult(
        **study.about(name),
        measurement=measurement,
        backtest=backtest(study.log_probs(name)[0], graph.y, graph.test_mask),
        changed=tuple(named_change(graph, one, reason) for one, reason in zip(measurement.changed, reasons)),
    )


def named_change(graph: Data, node: ChangedNode, explanation: Mapping[str, Any] | None) -> Change:
    """A changed node with its id and the names of its classes."""
    return Change(
        node=node,
        id=node_name(graph, node.node),
        predicted_class=class_name(graph, node.predicted),
        label_class=class_name(graph, node.label),
        explanation=explanation,
    )


def choose_method(study: Study, named: Sequence[str]) -> Choice:
    """Choose the calibrator with the lowest cross-validated NLL on validation nodes of the first run.

    A calibrator that keeps predictions is preferred when it is within one standard error of the best. Where exactly one
    calibrator is ``named``, it is chosen. No test label is read, so the labels that certify a decision have one job.
    """
    out, on = study.outputs[0], study.graph.val_mask
    y = out.graph.y[on]
    parts = kfold(len(y), min(FOLDS, len(y)), torch.Generator().manual_seed(0))
    log_probs = {name: held_out(out, recipe, on, parts) for name, recipe in study.recipes.items()}
    loss = {name: -lp.double().gather(1, y[:, None]).squeeze(1) for name, lp in log_probs.items()}
    mean = {name: float(values.mean()) for name, values in loss.items()}
    best = min(mean, key=lambda name: mean[name])
    error = {name: float((v - loss[best]).std() / len(v) ** 0.5) for name, v in loss.items()}
    keeps = [
        name
        for name, recipe in study.recipes.items()
        if getattr(getattr(recipe, "card", None), "keeps_predictions", False)
    ]
    near = [name for name in keeps if mean[name] - mean[best] <= error[name]]
    given = set(named) - {"none"} or {"none"}
    only = given.pop() if len(given) == 1 else None
    name = only or (best if best in keeps or not near else min(near, key=lambda name: mean[name]))
    others = sorted((value, other) for other, value in mean.items() if other != name)
    compared = "".join(f"; {'uncalibrated' if other == 'none' else other} {value:.3f}" for value, other in others[:2])
    if name == only:
        reason = f"the only one compared; validation NLL {mean[name]:.3f}{compared}"
    elif name == best:
        reason = f"lowest validation NLL, {mean[name]:.3f}{compared}"
    else:
        reason = (
            f"validation NLL {mean[name]:.3f}{compared}; keeps predictions and is within one standard error of {best}"
        )
    return Choice(name, reason, mean)


def map_of(study: Study, name: str) -> dict[str, Any] | None:
    """The probability map before and after a method, first seed; None for two classes or without edges."""
    before, after = study.log_probs("none")[0], study.log_probs(name)[0]
    if before.shape[1] == 2 or study.graph.get("edge_index") is None:
        return None
    return {"before": "none", "after": name, **node_map(before, after, study.graph)}
