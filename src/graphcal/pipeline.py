"""The main job: a graph -> train -> study -> explanations -> verdict, with everything a reader needs to believe the table.

`run` gives one `Results`: what `graphcal.study` measured of the uncalibrated model and of each calibrator over several seeds,
why the nodes that changed most have their confidence, and the verdict in words.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

import graphcal
from graphcal.datasets import load
from graphcal.explanation import explain_many
from graphcal.files import write_atomically
from graphcal.methods import CALIBRATORS
from graphcal.metrics import METRICS
from graphcal.reports import build, verdict
from graphcal.study import StageProgress, Study
from graphcal.training import Training, published, train
from graphcal.versions import installed_versions

SHOWN = ("accuracy", "ece", "ece_floor", "true_error")  # in a notebook cell


@dataclass(frozen=True)
class Results:
    """What `run` found, as one JSON-able record (``results.json`` holds exactly this)."""

    record: dict[str, Any]

    def value(self, method: str, metric: str) -> float:
        """Mean over seeds, as a fraction."""
        found = self.record["methods"][method][metric]
        return float(found["mean"] if isinstance(found, dict) else found)

    @property
    def verdict(self) -> str:
        """The result in words; the terminal and the page show the same."""
        return str(self.record["verdict"])

    def save(self, folder: str | Path) -> Path:
        """Write ``results.json`` and ``report.html``; gives the path of the page."""
        write_atomically(Path(folder) / "results.json", json.dumps(self.record, indent=1) + "\n")
        return write_atomically(Path(folder) / "report.html", build(self.record))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{METRICS[key].heading}</th>" for key in SHOWN)
        rows = "".join(
            f"<tr><td>{name}</td>"
            + "".join(f"<td>{METRICS[key].text(self.value(name, key))}</td>" for key in SHOWN)
            + "</tr>"
            for name in self.record["methods"]
        )
        return f"<p>{self.verdict}</p><table><tr><th>method</th>{head}</tr>{rows}</table>"


def run(
    dataset: str | Data = "citeseer",
    backbone: str = "gcn",
    calibrators: Sequence[str] = ("ts", "scar", "graph-scar"),
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

    ``progress(stage, done, total)`` is called while training and while calibrating.
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
    methods = study.to_dict(study.measure(data.test_mask, bins))
    explain_changes(study, methods)
    record = {
        "graphcal": graphcal.__version__,
        "dataset": data.get("name", "your graph"),
        "protocol": data.get("protocol", "as given"),
        "source": data.get("source", "as given"),
        "labels_per_class": labels_per_class,
        "split": split,
        "backbone": backbone,
        "training": asdict(chosen),
        "seeds": seeds,
        "nodes": {name: int(data[f"{name}_mask"].sum()) for name in ("train", "val", "test")},
        "bins": bins,
        "train_seconds": train_seconds,
        "versions": installed_versions(),
        "methods": methods,
    }
    return Results({**record, "verdict": verdict(record)})


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
