"""What cross-fitting is worth: calibrators fitted on validation nodes, or on every labelled node predicted without itself.

    python benchmarks/cross_fitting.py                     # prints
    python benchmarks/cross_fitting.py --write results     # and writes cross-fitting.md

Validation nodes chose the epoch, so they are a little too good to calibrate on. `graphcal.lab.cross_fit` predicts every
labelled node by a replica that used it neither to train nor to stop; what is fitted there is applied to the
model trained on everything.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

import graphcal
from graphcal.core import Outputs
from graphcal.files import write_atomically
from graphcal.lab.training import published
from graphcal.metrics import ece

SETTINGS = [  # graph, protocol, training
    *((graph, "per-class", "cagcn") for graph in ("cora", "citeseer", "cora_ml", "photo", "chameleon")),
    ("cora", "gats", "gats"),
    ("citeseer", "gats", "gats"),
]
METHODS = {"ts": graphcal.TemperatureScaling(), "graph-scaling": graphcal.GraphScaling()}


def scores(calibration: graphcal.Calibration, out: Outputs) -> tuple[float, float]:
    """NLL and ECE % on the test nodes."""
    test = out.graph.test_mask
    log_probs, y = calibration(out)[test], out.graph.y[test]
    nll = -float(log_probs.gather(1, y[:, None]).mean())
    return nll, 100 * float(ece(log_probs, y, bins=20))


def measure(graph: str, protocol: str, recipe: str, splits: range) -> dict[str, tuple[float, float]]:
    """Means over splits, by method and what it was fitted on."""
    scored: dict[str, list[tuple[float, float]]] = {}
    for split in splits:
        data = graphcal.lab.load(graph, protocol, split=split)
        training = published(recipe, "gcn", graph).training
        out = graphcal.lab.train(data, "gcn", training, seeds=[split])[0].outputs
        crossed = graphcal.lab.cross_fit(data, "gcn", training, folds=5, seed=split)
        for name, method in METHODS.items():
            for where, (fitted_on, nodes) in {
                "validation": (out, data.val_mask),
                "cross-fit": (crossed.outputs, crossed.on),
            }.items():
                scored.setdefault(f"{name}, {where}", []).append(scores(method.fit(fitted_on, on=nodes), out))
    return {name: (fmean(x for x, _ in values), fmean(x for _, x in values)) for name, values in scored.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--write", type=Path, help="folder for cross-fitting.md")
    options = parser.parse_args()
    names = [f"{name}, {where}" for name in METHODS for where in ("validation", "cross-fit")]
    lines = [
        "# Cross-fitting",
        "",
        "NLL / ECE % on test nodes. Validation: fitted on the validation nodes, which also chose the epoch. Cross-fit: on",
        "every labelled node, training nodes too, each predicted by one of five replicas that did not see it",
        f"(`graphcal.lab.cross_fit`), and applied to the model trained on everything. GCN, means over {options.splits} splits.",
        "",
        "| graph | protocol | " + " | ".join(names) + " |",
        "| --- | --- |" + " ---: |" * len(names),
    ]
    for graph, protocol, recipe in SETTINGS:
        first = 10 if protocol == "per-class" else 5
        means = measure(graph, protocol, recipe, range(first, first + options.splits))
        cells = " | ".join(f"{means[name][0]:.4f} / {means[name][1]:.2f}" for name in names)
        lines.append(f"| {graph} | {protocol} | {cells} |")
        print(lines[-1], flush=True)
    lines += ["", "Made by `python benchmarks/cross_fitting.py --write results`.", ""]
    if options.write:
        write_atomically(options.write / "cross-fitting.md", "\n".join(lines))


if __name__ == "__main__":
    main()
