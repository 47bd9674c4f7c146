"""The main jobs, with everything a reader needs to believe the table:

    run                a graph -> train -> study -> explanations -> decisions -> verdict
    calibrate_files    predictions, labels, edges -> study -> verdict

Both give one `Results`: what `graphcal.study` measured of the uncalibrated model and of each calibrator, why the nodes that
changed most have their confidence, the verdict in words; and the calibrated predictions with their calibration, to be saved.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

import graphcal
from graphcal.core import Calibration
from graphcal.datasets import load
from graphcal.decisions.rehearsal import rehearsal_sentence, rehearse
from graphcal.engine.node_order import kfold
from graphcal.explanation import explain_many
from graphcal.files import write_atomically
from graphcal.methods import CALIBRATORS
from graphcal.metrics import METRICS, reference_summary
from graphcal.persist import save
from graphcal.reports import build, verdict
from graphcal.reports.maps import node_map
from graphcal.study import StageProgress, Study, held_out
from graphcal.tables.calibration import (
    fit,
    outputs_of,
    read_final_layer,
    remember,
    remember_classes,
    write_calibrated,
)  # fmt: skip
from graphcal.tables.contexts import read_edges
from graphcal.tables.exporting import calibrated_table, class_names_of
from graphcal.tables.reading import PredictionTable
from graphcal.tables.splits import drawn
from graphcal.tables.writing import write_table
from graphcal.training import Training, published, train
from graphcal.versions import installed_versions

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


def run(
    dataset: str | Data = "citeseer",
    backbone: str = "gcn",
    calibrators: Sequence[str] = ("ts", "scar", "graph-scaling-keep", "graph-scaling"),
    seeds: Iterable[int] = range(10),
    labels_per_class: int = 20,
    protocol: str | None = None,
    split: int = 0,
    training: Training | None = None,
    final_weight_decay: float | None = None,
    bins: int = 20,
    progress: StageProgress | None = None,
) -> Results:
    """Train ``backbone`` once per seed, fit each calibrator on the validation nodes, measure on the test nodes.

    ``dataset`` is a name or your own `Data`. ``progress(stage, done, total)`` is called while training and while calibrating.

    >>> import graphcal as gc
    >>> data = gc.synthetic(500, seed=0)
    >>> results = gc.run(data, calibrators=["ts"], seeds=range(1), training=gc.Training(epochs=5))
    >>> results.value("ts", "nll") < results.value("none", "nll"), results.verdict[:31]
    (True, 'The model is under-confident by')
    """
    recipes = {name: CALIBRATORS[name]() for name in dict.fromkeys(["none", *calibrators])}
    data = load(dataset, protocol, labels_per_class, split) if isinstance(dataset, str) else dataset
    seeds = list(seeds)
    settings = published("cagcn", backbone, data.get("name"), labels_per_class)
    chosen = training or settings.training
    if final_weight_decay is not None:
        chosen = replace(chosen, final_weight_decay=final_weight_decay)

    def epoch_done(epoch: int, epochs: int, running: int) -> None:
        if progress:
            progress(f"training {len(seeds)} seeds together, {running} still learning", epoch, epochs)

    started = time.perf_counter()
    runs = train(data, settings.backbone, chosen, seeds, progress=epoch_done)
    train_seconds = time.perf_counter() - started
    study = Study.of([run.outputs for run in runs], recipes, on=data.val_mask, progress=progress)
    about = {
        "dataset": data.get("name", "your graph"),
        "protocol": data.get("protocol", "as given"),
        "source": data.get("source", "as given"),
        "labels_per_class": labels_per_class,
        "split": split,
        "backbone": backbone,
        "training": asdict(chosen),
        "seeds": seeds,
        "train_seconds": train_seconds,
    }
    last = study.fitted[list(recipes)[-1]][0]
    out = replace(study.outputs[0], graph=data)  # with its test labels

    def write(path: Path) -> Path:
        return write_table(path, [calibrated_table(out, last.log_probs)])

    remember_classes(last.calibration, class_names_of(data, out.num_classes))
    return results_of(study, about, bins, last.calibration, write)


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


def calibrate_files(
    table: PredictionTable,
    edges: str | Path | None = None,
    final_layer: str | Path | None = None,
    calibrators: Sequence[str] = ("auto",),
    seed: int = 0,
    bins: int = 20,
    columns: Mapping[str, str] | None = None,
) -> Results:
    """Fit each calibrator on the validation rows of a table of predictions, measure on its test rows.

    The last calibrator is the one whose predictions are written. Without a split, half of the labelled rows are drawn.
    """
    y, notes = table.labels.numpy(), list(table.notes)
    split = table.split
    if split is None:
        split, note = drawn(y, seed)
        notes.append(note)
    edge_index = None if edges is None else read_edges(edges, table.ids, columns)
    final = None if final_layer is None else read_final_layer(final_layer)
    out = outputs_of(table.logits, y, split, edge_index, final)
    out.graph.class_names = list(table.classes)
    study = fit(out, calibrators)
    name = list(study.recipes)[-1]
    last = study.fitted[name][0]
    remember(last.calibration, last.log_probs, table.layout, table.kind, table.classes, split)
    about = {
        "dataset": table.source.shards[0].parent.name if len(table.source.shards) > 1 else table.source.shards[0].name,
        "protocol": f"drawn with seed {seed}" if table.split is None else "as given",
        "source": ", ".join(str(shard) for shard in table.source.shards[:3]),
        "backbone": "predictions",
        "seeds": [seed],
        "classes": list(table.classes),
        "layout": table.layout.form,
        "kind": table.kind.name,
        "notes": notes,
    }
    return results_of(
        study,
        about,
        bins,
        last.calibration,
        partial(write_calibrated, table, last.log_probs, split=split),
    )


def rehearse_all(study: Study, methods: dict[str, Any], last: str) -> dict[str, Any] | None:
    """Add to each method what could be decided by it (first seed); the sentence of the calibrator named last.

    That choice is made before any test label is read, so that certification labels have one job.
    """
    for name, method in methods.items():
        method["decision"] = rehearse(study.log_probs(name)[0], study.graph.y, study.graph.test_mask)
    own = methods[last]["decision"]
    return None if own is None else {"method": last, "sentence": rehearsal_sentence(methods[last]["title"], own)}


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
