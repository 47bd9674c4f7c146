"""What a study found, with everything a reader needs to believe the table.

One `Results`: what `graphcal.study` measured of the uncalibrated model and of each calibrator, why the nodes that changed most
have their confidence, what could be decided, the calibrator to use, the verdict in words; and the calibrated predictions with
their calibration, to be saved.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

import graphcal
from graphcal.core import Calibration
from graphcal.decisions.rehearsal import rehearsal_sentence, rehearse
from graphcal.engine.node_order import kfold
from graphcal.explanation import explain_many
from graphcal.files import write_atomically
from graphcal.graphs import class_name, node_name
from graphcal.metrics import METRICS, reference_summary
from graphcal.persist import installed_versions, save
from graphcal.reports import build, verdict
from graphcal.reports.maps import node_map
from graphcal.study import Study, held_out

SHOWN = ("accuracy", "ece", "ece_floor", "true_error")  # in a notebook cell


@dataclass(frozen=True)
class Results:
    """What was found, as one JSON-able record (``results.json`` holds exactly this), and the calibrated predictions."""

    record: dict[str, Any]
    calibration: Calibration | None = field(default=None, repr=False, compare=False)
    write_calibrated: Callable[[Path], Path] | None = field(default=None, repr=False, compare=False)
    reference: dict[str, Any] | None = field(default=None, repr=False, compare=False)  # for `graphcal watch`

    def value(self, method: str, metric: str) -> float:
        """Mean over seeds, as a fraction."""
        found = self.record["methods"][method][metric]
        return float(found["mean"] if isinstance(found, dict) else found)

    @property
    def verdict(self) -> str:
        """The result in words; the terminal and the page show the same."""
        return str(self.record["verdict"])

    @property
    def decision(self) -> str | None:
        """What could be decided automatically, in words; None where the test nodes are too few."""
        found = self.record.get("decision")
        return None if found is None else str(found["sentence"])

    @property
    def recommended(self) -> str:
        """The calibrator to use, and why, in words."""
        found = self.record["recommended"]
        return f"Recommended: {found['method']}, {found['reason']}."

    def save(self, folder: str | Path) -> Path:
        """Write results.json, report.html, calibrator.safetensors and calibrated.parquet; gives the path of the page."""
        write_atomically(Path(folder) / "results.json", json.dumps(self.record, indent=1) + "\n")
        if self.calibration is not None:
            save(self.calibration, Path(folder) / "calibrator.safetensors", self.reference)
        if self.write_calibrated is not None:
            self.write_calibrated(Path(folder) / "calibrated.parquet")
        return write_atomically(Path(folder) / "report.html", build(self.record))

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
    about: dict[str, Any],
    bins: int,
    calibration: Calibration,
    write_calibrated: Callable[[Path], Path],
) -> Results:
    """The study measured on the test nodes and put into words; ``about`` says where its predictions come from."""
    graph, last = study.graph, list(study.recipes)[-1]
    methods = study.to_dict(study.measure(graph.test_mask, bins))
    explain_changes(study, methods)
    name_changes(graph, methods)
    recommended = recommend(study)
    methods[recommended["method"]]["recommended"] = True  # the verdict speaks of it: validation chooses
    record = {
        "graphcal": graphcal.__version__,
        **about,
        "nodes": {name: int(graph[f"{name}_mask"].sum()) for name in ("train", "val", "test")},
        "bins": bins,
        "versions": installed_versions(),
        "methods": methods,
        "decision": rehearse_all(study, methods, last),
        "map": map_of(study, last),
        "recommended": recommended,
    }
    reference = reference_of(study, methods, last)
    return Results({**record, "verdict": verdict(record)}, calibration, write_calibrated, reference)


def recommend(study: Study, folds: int = 5) -> dict[str, Any]:
    """Which of the calibrators to use, and why: the one of least NLL on validation nodes that it was not fitted on.

    One that keeps predictions is taken when it is within one standard error of the best, node by node. First run only.
    """
    out, on = study.outputs[0], study.graph.val_mask
    y = out.graph.y[on]
    parts = kfold(len(y), min(folds, len(y)), torch.Generator().manual_seed(0))
    said = {name: held_out(out, recipe, on, parts) for name, recipe in study.recipes.items()}
    loss = {name: -lp.double().gather(1, y[:, None]).squeeze(1) for name, lp in said.items()}
    mean = {name: float(values.mean()) for name, values in loss.items()}
    best = min(mean, key=lambda name: mean[name])
    error = {name: float((v - loss[best]).std() / len(v) ** 0.5) for name, v in loss.items()}
    keeps = [
        name
        for name, recipe in study.recipes.items()
        if getattr(getattr(recipe, "card", None), "keeps_predictions", False)
    ]
    near = [name for name in keeps if mean[name] - mean[best] <= error[name]]
    name = best if best in keeps or not near else min(near, key=lambda name: mean[name])
    reason = f"held-out NLL {mean[name]:.3f} on validation nodes (uncalibrated {mean['none']:.3f}"
    others = {other: value for other, value in mean.items() if other not in (name, "none")}
    if others:
        next_best = min(others, key=lambda other: others[other])
        reason += f", {next_best} {others[next_best]:.3f}"
    reason += ")"
    before, after = (float((lp.argmax(-1) == y).double().mean()) for lp in (said["none"], said[best]))
    if name != best:
        reason += f"; {best} is within one standard error of it and would change predictions"
    elif best not in keeps:
        reason += f"; it changes predictions, held-out accuracy {100 * before:.1f} -> {100 * after:.1f} %"
    return {"method": name, "reason": reason, "held_out_nll": mean}


def rehearse_all(study: Study, methods: dict[str, Any], last: str) -> dict[str, Any] | None:
    """Add to each method what could be decided by it (first seed); the sentence of the calibrator named last.

    That choice is made before any test label is read, so that certification labels have one job.
    """
    for name, method in methods.items():
        method["decision"] = rehearse(study.log_probs(name)[0], study.graph.y, study.graph.test_mask)
    own = methods[last]["decision"]
    title = methods[last]["title"] + (", first seed" if len(study.log_probs(last)) > 1 else "")
    return None if own is None else {"method": last, "sentence": rehearsal_sentence(title, own)}


def reference_of(study: Study, methods: dict[str, Any], last: str) -> dict[str, Any]:
    """What predictions outside training look like now, and what was promised of them: travels with the calibrator."""
    seen = ~study.graph.train_mask
    found, own = reference_summary(study.log_probs(last)[0][seen]), methods[last]["decision"]
    if own is not None and own["threshold"] is not None:
        found["promise"] = {key: own[key] for key in ("threshold", "max_error", "certainty")}
    return found


def map_of(study: Study, last: str) -> dict[str, Any]:
    """The probability map before and after the calibrator named last, first seed."""
    found = node_map(study.log_probs("none")[0], study.log_probs(last)[0], study.graph)
    return {"before": "none", "after": last, **found}


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
