"""Results of a study: measurements per method, the chosen method, and the files to save.

One method is chosen, once, by `choose_method`. The verdict, the backtest of decisions, the map, the model card, the terminal,
``calibrator.safetensors`` and ``calibrated.parquet`` are all of that method. ``results.json`` is written last and holds the
SHA-256 of the calibrator and the predictions it belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

import graphcal
from graphcal.core import Calibration
from graphcal.decisions.rehearsal import rehearse
from graphcal.engine.node_order import kfold
from graphcal.explanation import explain_many
from graphcal.files import sha256_of, write_atomically
from graphcal.graphs import class_name, node_name
from graphcal.metrics import METRICS, reference_summary
from graphcal.reports import build, verdict
from graphcal.reports.decision_section import backtest_sentence
from graphcal.reports.maps import node_map
from graphcal.reports.records import SCHEMA_VERSION
from graphcal.saving import installed_versions, save
from graphcal.study import Study, held_out

SHOWN = ("accuracy", "ece", "ece_floor", "true_error")  # in a notebook cell


@dataclass(frozen=True)
class Choice:
    """The method of a study that is saved, decides and is reported on."""

    method: str
    reason: str
    held_out_nll: dict[str, float]  # of every method, on validation nodes it was not fitted on


@dataclass(frozen=True)
class Results:
    """Results as one JSON-able record (``results.json`` holds it, with the hashes of the other files), and what is saved."""

    record: dict[str, Any]
    calibration: Calibration | None = field(default=None, repr=False, compare=False)  # of the chosen method
    write_calibrated: Callable[[Path], Path] | None = field(default=None, repr=False, compare=False)
    reference: dict[str, Any] | None = field(default=None, repr=False, compare=False)  # for `graphcal watch`

    def value(self, method: str, metric: str) -> float:
        """Mean over seeds, as a fraction."""
        value = self.record["methods"][method][metric]
        return float(value["mean"] if isinstance(value, dict) else value)

    @property
    def chosen_method(self) -> str:
        """Name of the method whose calibrator and predictions are saved."""
        return str(self.record["chosen_method"])

    @property
    def verdict(self) -> str:
        """The result in words; the terminal and the page show the same."""
        return str(self.record["verdict"])

    @property
    def decision(self) -> str | None:
        """The backtest of automatic decisions, in words; None where the test nodes are too few."""
        decision = self.record.get("decision")
        return None if decision is None else str(decision["sentence"])

    @property
    def choice(self) -> str:
        """The chosen method, and why, in words."""
        return f"Chosen method: {self.chosen_method}, {self.record['choice']['reason']}."

    def save(self, folder: str | Path) -> Path:
        """Write calibrator.safetensors, calibrated.parquet and report.html, then results.json; return the path of the page."""
        folder, written = Path(folder), []
        folder.mkdir(parents=True, exist_ok=True)
        page = build(self.record)
        if self.calibration is not None:
            written.append(save(self.calibration, folder / "calibrator.safetensors", self.reference))
        if self.write_calibrated is not None:
            written.append(self.write_calibrated(folder / "calibrated.parquet"))
        path = write_atomically(folder / "report.html", page)
        record = {**self.record, "files": {file.name: sha256_of(file) for file in written}}
        write_atomically(folder / "results.json", json.dumps(record, indent=1) + "\n")
        return path

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{METRICS[key].heading}</th>" for key in SHOWN)
        rows = "".join(
            f"<tr><td>{escape(name)}</td>"
            + "".join(f"<td>{METRICS[key].text(self.value(name, key))}</td>" for key in SHOWN)
            + "</tr>"
            for name in self.record["methods"]
        )
        return f"<p>{escape(self.verdict)}</p><table><tr><th>method</th>{head}</tr>{rows}</table>"


def results_of(
    study: Study,
    choice: Choice,
    about: dict[str, Any],
    bins: int,
    write_calibrated: Callable[[Path], Path],
) -> Results:
    """Measure the study on the test nodes; ``about`` says where its predictions come from, ``choice`` what is saved."""
    graph, chosen = study.graph, choice.method
    methods = study.to_dict(study.measure(graph.test_mask, bins))
    explain_changes(study, methods)
    name_changes(graph, methods)
    for name, method in methods.items():
        method["decision"] = rehearse(study.log_probs(name)[0], graph.y, graph.test_mask)  # first seed
    record = {
        "graphcal": graphcal.__version__,
        "schema_version": SCHEMA_VERSION,
        **about,
        "nodes": {name: int(graph[f"{name}_mask"].sum()) for name in ("train", "val", "test")},
        "bins": bins,
        "versions": installed_versions(),
        "chosen_method": chosen,
        "choice": {"reason": choice.reason, "held_out_nll": choice.held_out_nll},
        "methods": methods,
        "map": map_of(study, chosen),
    }
    sentence = backtest_sentence(record)
    record["decision"] = None if sentence is None else {"sentence": sentence, "guarantee": False}
    record["verdict"] = verdict(record)
    return Results(record, study.fitted[chosen][0].calibration, write_calibrated, reference_of(study, methods, chosen))


def choose_method(study: Study, named: Sequence[str], folds: int = 5) -> Choice:
    """Choose the calibrator with the lowest cross-validated NLL on validation nodes of the first run.

    A calibrator that keeps predictions is preferred when it is within one standard error of the best. Where exactly one
    calibrator is ``named``, it is chosen. No test label is read, so the labels that certify a decision have one job.
    """
    out, on = study.outputs[0], study.graph.val_mask
    y = out.graph.y[on]
    parts = kfold(len(y), min(folds, len(y)), torch.Generator().manual_seed(0))
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
    reason = f"held-out NLL {mean[name]:.3f} on validation nodes"
    others = {other: value for other, value in mean.items() if other not in (name, "none")}
    compared = [f"uncalibrated {mean['none']:.3f}"] if name != "none" else []
    if others:
        next_best = min(others, key=lambda other: others[other])
        compared.append(f"{next_best} {others[next_best]:.3f}")
    reason += f" ({', '.join(compared)})" if compared else ""
    before, after = (float((log_probs[one].argmax(-1) == y).double().mean()) for one in ("none", name))
    if name != best and name != only:
        reason += f"; {best} is within one standard error of it and would change predictions"
    elif name not in keeps:
        reason += f"; it changes predictions, held-out accuracy {100 * before:.1f} -> {100 * after:.1f} %"
    return Choice(name, reason, mean)


def reference_of(study: Study, methods: dict[str, Any], chosen: str) -> dict[str, Any]:
    """What predictions outside training look like now, and the threshold of the backtest: travels with the calibrator."""
    fresh = ~study.graph.train_mask
    reference, backtest = reference_summary(study.log_probs(chosen)[0][fresh]), methods[chosen]["decision"]
    if backtest is not None and backtest["threshold"] is not None:
        reference["promise"] = {key: backtest[key] for key in ("threshold", "max_error", "certainty")}
    return reference


def map_of(study: Study, chosen: str) -> dict[str, Any]:
    """The probability map before and after the chosen method, first seed."""
    nodes = node_map(study.log_probs("none")[0], study.log_probs(chosen)[0], study.graph)
    return {"before": "none", "after": chosen, **nodes}


def name_changes(graph: Data, methods: dict[str, Any]) -> None:
    """Add to the nodes that changed most what they and their classes are called."""
    for method in methods.values():
        for node in method.get("changed", []):
            node["id"] = node_name(graph, node["node"])
            node["predicted_class"] = class_name(graph, node["predicted"])
            node["label_class"] = class_name(graph, node["label"])


def explain_changes(study: Study, methods: dict[str, Any]) -> None:
    """Add to the nodes that changed most why they have their confidence, in the first seed (Eq. 8 of the SCAR paper)."""
    out = study.outputs[0]
    if out.final is None or out.hidden is None:
        return
    for name, method in methods.items():
        changed = method.get("changed", [])
        found = (
            explain_many(out, [node["node"] for node in changed], study.fitted[name][0].calibration) if changed else []
        )
        for node, one in zip(changed, found):
            terms = [[term, round(value, 3)] for term, value in one.lead_terms]
            node["explanation"] = {"sentence": one.sentence, "terms": terms}
