"""The main job: a graph -> train -> calibrate -> measure, with everything a reader needs to believe the table.

`run` gives one `Results`: accuracy, ECE with its interval, the floor that sampling puts under any ECE, NLL and Brier of the
uncalibrated model and of each calibrator, over several seeds. Calibrators see a graph without test labels.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

import graphcal
from graphcal import metrics
from graphcal.core import Calibration, Outputs, Recipe, blinded
from graphcal.datasets import load
from graphcal.explanation import explain
from graphcal.methods import CALIBRATORS
from graphcal.reports import report_data, write
from graphcal.training import Run, Training, published, train

METRICS = ("accuracy", "ece", "ece_floor", "ece_excess", "nll", "brier")


@dataclass(frozen=True)
class Results:
    """What `run` found, as one JSON-able record (``results.json`` holds exactly this)."""

    record: dict[str, Any]

    def value(self, method: str, metric: str) -> float:
        """Mean over seeds, as a fraction."""
        return float(self.record["methods"][method][metric]["mean"])

    @property
    def sentence(self) -> str:
        return str(self.record["sentence"])

    def save(self, folder: str | Path) -> Path:
        """Write ``results.json`` and ``report.html``; gives the path of the page."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".results.json.{os.getpid()}"
        partial.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, folder / "results.json")
        write(self.record, folder / "report.html")
        return folder / "report.html"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td>"
            + "".join(
                f"<td>{100 * self.value(name, m):.2f}</td>" for m in ("accuracy", "ece", "ece_floor", "ece_excess")
            )
            + "</tr>"
            for name in self.record["methods"]
        )
        head = "<tr><th>method</th><th>accuracy %</th><th>ECE %</th><th>floor %</th><th>excess %</th></tr>"
        return f"<p>{self.sentence}</p><table>{head}{rows}</table>"


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
    progress: Callable[[str, int, int], None] | None = None,
) -> Results:
    """Train ``backbone`` once a seed, fit each calibrator on the validation nodes, measure on the test nodes.

    ``progress(stage, done, total)`` is called while training and while calibrating.
    """
    recipes = {name: calibrator(name) for name in dict.fromkeys(["none", *calibrators])}
    data = load(dataset, protocol, labels_per_class, split) if isinstance(dataset, str) else dataset
    seeds = list(seeds)
    settings = published("cagcn", backbone, data.get("name"), labels_per_class)
    chosen = training or settings.training
    if final_weight_decay is not None:
        chosen = replace(chosen, final_weight_decay=final_weight_decay)

    def trained(epoch: int, epochs: int, running: int) -> None:
        if progress:
            progress(f"training {len(seeds)} seeds together, {running} still learning", epoch, epochs)

    started = time.perf_counter()
    runs = train(data, settings.backbone, chosen, seeds, progress=trained)
    train_seconds = time.perf_counter() - started
    methods = _calibrate_and_measure(data, runs, recipes, bins, progress)
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
        "versions": versions(),
        "methods": methods,
    }
    return Results({**record, "sentence": sentence(record)})


def calibrator(name: str) -> Recipe:
    if name not in CALIBRATORS:
        raise ValueError(f"unknown calibrator {name!r}; choose from {', '.join(CALIBRATORS)}")
    return CALIBRATORS[name]()


def _calibrate_and_measure(
    data: Data,
    runs: Sequence[Run],
    recipes: dict[str, Recipe],
    bins: int,
    progress: Callable[[str, int, int], None] | None,
) -> dict[str, Any]:
    blind = blinded(data)
    test, y = data.test_mask, data.y[data.test_mask]
    methods: dict[str, Any] = {}
    before: list[Tensor] = []  # the uncalibrated model comes first
    for name, chosen in recipes.items():
        scores: dict[str, list[float]] = {metric: [] for metric in METRICS}
        seconds: list[float] = []
        after: list[Tensor] = []
        first: Calibration | None = None  # the first seed's, for the explanations
        for done, one in enumerate(runs):
            if progress:
                progress(f"calibrating with {name}", done, len(runs))
            seen = replace(one.outputs, graph=blind)
            started = time.perf_counter()
            fitted = chosen.fit(seen, on=data.val_mask)
            seconds.append(time.perf_counter() - started)
            first = fitted if first is None else first
            log_probs = fitted(seen).detach()
            after.append(log_probs)
            for metric, value in measured(log_probs[test], y, bins).items():
                scores[metric].append(value)
        before = before or after
        drawn = report_data(after, data.y, test, bins, graph=data, before=before)
        if first is not None:
            _explain_changes(drawn.get("changed", []), replace(runs[0].outputs, graph=blind), first)
        methods[name] = {
            **{metric: spread(values) for metric, values in scores.items()},
            "ece_interval": drawn["ece_interval"],
            "fit_seconds": statistics.median(seconds),
            "recipe": repr(chosen),
            "fitted": repr(fitted),
            "measurement": drawn,
        }
    return methods


def _explain_changes(changed: list[dict[str, Any]], out: Outputs, fitted: Calibration) -> None:
    """Add to each of the nodes that changed most why it has its confidence, in the first seed (Eq. 8 of the SCAR paper)."""
    if out.final is None or out.final.weight is None or out.hidden is None:
        return
    for node in changed:
        found = explain(out, node["node"], fitted)
        terms = [[name, round(value, 3)] for name, value in found.lead_terms]
        node["explanation"] = {"sentence": found.sentence, "terms": terms}


def measured(log_probs: Tensor, y: Tensor, bins: int) -> dict[str, float]:
    ece, floor = metrics.ece(log_probs, y, bins), metrics.ece_floor(log_probs, bins)
    return {
        "accuracy": metrics.accuracy(log_probs, y),
        "ece": ece,
        "ece_floor": floor,
        "ece_excess": ece - floor,
        "nll": metrics.nll(log_probs, y),
        "brier": metrics.brier(log_probs, y),
    }


def spread(values: Sequence[float]) -> dict[str, Any]:
    sd = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "sd": sd, "values": list(values)}


def versions() -> dict[str, str]:
    import torch_geometric

    return {
        "graphcal": graphcal.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
    }


SMALL = 0.005  # an excess of less than half a point is not worth a sentence about repair


def sentence(record: dict[str, Any]) -> str:
    """The verdict in words: was it miscalibrated, which way, what repaired how much of it, and what noise hides the rest."""
    methods, test = record["methods"], record["nodes"]["test"]
    excess = {name: method["ece_excess"]["mean"] for name, method in methods.items()}
    repairable = excess["none"]
    noise = f"sampling noise of {test:,} test nodes"
    if repairable < SMALL:
        return (
            f"The model is as well calibrated as {test:,} test nodes can show: its ECE is within half a point of the "
            f"{100 * methods['none']['ece_floor']['mean']:.1f} points that {noise} alone would give."
        )
    others = {name: value for name, value in excess.items() if name != "none"}
    if not others:
        return f"Calibration could repair {100 * repairable:.1f} points of ECE; the rest is {noise}."
    best = min(others, key=lambda name: others[name])
    repaired = repairable - others[best]
    label = best.upper() if best in ("scar", "ts", "ets", "vs", "ms") else best
    if repaired <= 0:
        return f"No calibrator tried repaired any of the {100 * repairable:.1f} points of ECE that exceed {noise}."
    if others[best] < SMALL:
        return (
            f"{label} repaired all of the {100 * repairable:.1f} points that calibration can repair; what is left "
            f"is {noise}."
        )
    return (
        f"{label} repaired {100 * repaired:.1f} of the {100 * repairable:.1f} points that calibration can repair; "
        f"the floor of {100 * methods[best]['ece_floor']['mean']:.1f} points below that is {noise}."
    )
