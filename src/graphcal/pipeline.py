"""The main job: a graph -> train -> study -> explanations -> decisions -> verdict, with all a reader needs to believe the table.

`run` gives one `Results`: what `graphcal.study` measured of the uncalibrated model and of each calibrator over several seeds,
why the nodes that changed most have their confidence, which test nodes could be decided alone, and the verdict in words.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch_geometric.data import Data

import graphcal
from graphcal.datasets import load
from graphcal.decisions.rehearsal import rehearsal_sentence, rehearse
from graphcal.explanation import explain_many
from graphcal.files import atomic_file, write_atomically
from graphcal.methods import CALIBRATORS
from graphcal.metrics import METRICS
from graphcal.reports import build, verdict
from graphcal.reports.maps import node_map
from graphcal.study import StageProgress, Study
from graphcal.training import Training, published, train
from graphcal.versions import installed_versions

SHOWN = ("accuracy", "ece", "ece_floor", "true_error")  # in a notebook cell


@dataclass(frozen=True)
class Results:
    """What `run` found, as one JSON-able record (``results.json`` holds exactly this)."""

    record: dict[str, Any]
    predictions: Any = field(
        default=None, repr=False, compare=False
    )  # Arrow table of the calibrator named last, first seed

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

    def save(self, folder: str | Path) -> Path:
        """Write ``results.json``, ``predictions.parquet`` and ``report.html``; gives the path of the page."""
        if self.predictions is not None:
            import pyarrow.parquet

            with atomic_file(Path(folder) / "predictions.parquet") as file:
                pyarrow.parquet.write_table(self.predictions, file)
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
    last = list(recipes)[-1]
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
        "decision": rehearse_all(study, methods, last),
        "map": map_of(study, last),
    }
    return Results({**record, "verdict": verdict(record)}, prediction_table(study, last))


def rehearse_all(study: Study, methods: dict[str, Any], last: str) -> dict[str, Any] | None:
    """Add to each method what could be decided by it (first seed); the sentence of the calibrator named last.

    That choice is made before any test label is read, so that certification labels have one job.
    """
    for name, method in methods.items():
        method["decision"] = rehearse(study.log_probs(name)[0], study.graph.y, study.graph.test_mask)
    own = methods[last]["decision"]
    return None if own is None else {"method": last, "sentence": rehearsal_sentence(methods[last]["title"], own)}


def map_of(study: Study, last: str) -> dict[str, Any]:
    """The probability map before and after the calibrator named last, first seed."""
    found = node_map(study.log_probs("none")[0], study.log_probs(last)[0], study.graph)
    return {"before": "none", "after": last, **found}


def prediction_table(study: Study, name: str) -> Any:
    """id, label, split and prob_0.. of every node, first seed: what `graphcal check` and `graphcal decide` read."""
    import pyarrow as pa

    graph, probs = study.graph, study.log_probs(name)[0].exp()
    split = np.full(len(probs), None, dtype=object)
    for part in ("train", "val", "test"):
        split[graph[f"{part}_mask"].numpy()] = part
    y = graph.y.numpy()
    columns = {
        "id": pa.array(np.arange(len(probs))),
        "label": pa.array(y, mask=y < 0),
        "split": pa.array(split.tolist(), pa.string()),
    }
    return pa.table(columns | {f"prob_{c}": pa.array(probs[:, c].numpy()) for c in range(probs.shape[1])})


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
