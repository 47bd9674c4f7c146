"""Accuracy of windows without labels on real graphs: `graphcal.estimate` beside four other estimates.

    python -m graphcal.lab.bench.label_free --out DIR --write results      # resumable: a file per graph in DIR

A GCN is trained on 20 labels per class. 500 labels (at most two fifths of their part of the graph) are drawn at random from the
other nodes, or from one part of them, and the accuracy of nodes elsewhere is estimated:

    no shift    labels from all nodes, windows of random nodes
    regions     labels from one half of the communities, windows of communities of the other half
    degree      labels from the lower or the upper half of the degrees, windows from the other half and from its far end
    prior       labels from all nodes, windows in which classes are thinned at random

Others: mean confidence after temperature scaling (TS), the same after isotonic regression on the labels (CBPE), the share of
nodes above the confidence that as large a share of labelled nodes exceeds as are right (ATC), and accuracy of the labelled nodes
plus the difference of mean confidences (DoC). Each estimate is compared with the accuracy of the predictions it is about.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphcal.communities import communities
from graphcal.core import Outputs
from graphcal.decisions.estimates import estimate
from graphcal.files import write_atomically
from graphcal.graphs import structure
from graphcal.methods import GraphScaling, TemperatureScaling
from graphcal.study import blinded_outputs

Array = NDArray[Any]
GRAPHS = (
    "cora", "citeseer", "cora_ml", "chameleon", "squirrel", "chameleon-filtered", "squirrel-filtered", "facebook_pages", "pubmed",
    "photo", "blogcatalog", "tolokers", "computers", "cs", "physics",
)  # fmt: skip
SHIFTS = ("no shift", "regions", "degree", "prior")
MODES = ("keep", "free")  # keep: the accuracy of the model's own predictions, as for the others
OTHERS = ("ts", "cbpe", "atc", "doc")
LABELS, NODES, EPOCHS, CERTAINTY, OTHER_SEED = 500, 500, 200, 0.9, 1000
FIELDS = (
    "graph", "predictions", "shift", "window", "nodes", "accuracy", "estimate", "low", "high", "without_shift_low",
    "without_shift_high", "accuracy_model", *OTHERS,
)  # fmt: skip


def label_free(conf: Array, right: Array, labelled: Array, window: Array) -> dict[str, float]:
    """The four other estimates from confidences after temperature scaling (N,)."""
    from sklearn.isotonic import IsotonicRegression

    seen, hits, new = conf[labelled], right[labelled], conf[window]
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(seen, hits.astype(float))
    cut = np.quantile(seen, 1 - hits.mean())
    return {
        "ts": float(new.mean()),
        "cbpe": float(isotonic.predict(new).mean()),
        "atc": float((new > cut).mean()),
        "doc": float(hits.mean() + new.mean() - seen.mean()),
    }


def cases(out: Outputs, pool: Array, y: Array, rng: np.random.Generator) -> Iterator[tuple[str, Array, list[Array]]]:
    """Shift, labelled nodes and windows, as node numbers."""
    nodes = rng.permutation(np.flatnonzero(pool))

    def drawn(part: Array) -> Array:
        return rng.permutation(part)[: min(LABELS, 2 * len(part) // 5)]

    labelled = drawn(nodes)
    rest = np.setdiff1d(nodes, labelled)
    size = min(NODES, len(rest) // 2)
    yield "no shift", labelled, [rng.choice(rest, size, replace=False) for _ in range(4)]
    thinned = []
    for _ in range(4):
        keep = rng.uniform(0.1, 1, int(y.max()) + 1)
        thinned.append(rng.permutation(rest[rng.random(len(rest)) < keep[y[rest]]])[:size])
    yield "prior", labelled, thinned
    facts = structure(out.graph)
    part = communities(facts.edge_index.cpu(), out.num_nodes, (1.0,), seed=OTHER_SEED)[0]
    order = rng.permutation(np.unique(part[nodes]))
    covered = np.cumsum([(part[nodes] == c).sum() for c in order])
    first = np.isin(part, order[covered <= max(len(nodes) // 2, covered[0])])
    degree = facts.degree.cpu().numpy() + rng.random(out.num_nodes)  # ties at random
    low = degree <= np.median(degree[nodes])
    for half in (first, ~first):
        here, there = nodes[half[nodes]], nodes[~half[nodes]]
        if min(len(here), len(there)) < 100:
            continue
        sides = rng.random(len(order)) < 0.5
        windows = [there[np.isin(part[there], order[side])] for side in (sides, ~sides)]
        yield "regions", drawn(here), [window[: 4 * NODES] for window in windows if len(window) >= 50]
    for half in (low, ~low):
        here, there = nodes[half[nodes]], nodes[~half[nodes]]
        far = there[np.argsort(degree[there])]
        far = far[len(far) // 2 :] if half is low else far[: len(far) // 2]
        yield "degree", drawn(here), [there[:NODES], rng.permutation(far)[:NODES]]


def rows_of(graph: str, split: int, mode: str) -> Iterator[dict[str, Any]]:
    """Every window of a graph, with graph scaling that keeps predictions or not."""
    import graphcal as gc
    from graphcal.lab.training import Training

    data = gc.lab.load(graph, "per-class", split=split)
    out = gc.lab.train(data, "gcn", Training(epochs=EPOCHS, patience=50), seeds=[split])[0].outputs
    y, rng = data.y.numpy(), np.random.default_rng(split)
    for shift, labelled, windows in cases(out, (data.val_mask | data.test_mask).numpy(), y, rng):
        seen = copy(out.graph)
        on = torch.zeros(len(y), dtype=torch.bool)
        on[labelled] = True
        seen.val_mask, seen.test_mask = on, ~on & ~data.train_mask
        (view,) = blinded_outputs([replace(out, graph=seen)])
        calibration = GraphScaling(sets=True, predictions=mode).fit(view, on=on)
        with torch.no_grad():
            conf, pred = TemperatureScaling().fit(view, on=on)(view).double().exp().max(1)
            right = (calibration(view).argmax(1) == data.y).numpy()
        for number, window in enumerate(windows):
            one = estimate(calibration, view, torch.from_numpy(window), CERTAINTY)
            plain = one.accuracy.low + one.widening, one.accuracy.high - one.widening
            yield {
                "graph": graph, "predictions": mode, "shift": shift, "window": number, "nodes": len(window),
                "accuracy": right[window].mean(),
                "estimate": one.accuracy.value, "low": one.accuracy.low, "high": one.accuracy.high,
                "without_shift_low": plain[0], "without_shift_high": plain[1],
                "accuracy_model": (pred.numpy() == y)[window].mean(),
                **label_free(conf.numpy(), pred.numpy() == y, labelled, window),
            }  # fmt: skip


def run(out: Path, graphs: tuple[str, ...], splits: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for split in range(splits):
        for graph, mode in product(graphs, MODES):
            path = out / f"{graph}-{split}-{mode}.csv"
            if path.exists():
                continue
            started = time.process_time()
            write_atomically(path, as_csv(list(rows_of(graph, split, mode))))
            print(f"{graph} {mode}: {time.process_time() - started:.0f} s", flush=True)


def as_csv(rows: list[dict[str, Any]]) -> str:
    lines = [
        ",".join(f"{row[name]:.5g}" if isinstance(row[name], float) else str(row[name]) for name in FIELDS)
        for row in rows
    ]
    return "\n".join([",".join(FIELDS), *lines]) + "\n"


def read(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted(out.glob("*-*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                rows.append(
                    {
                        key: value if key in ("graph", "predictions", "shift") else float(value)
                        for key, value in row.items()
                    }
                )
    return rows


def cells(rows: list[dict[str, Any]]) -> list[str]:
    """Windows, mean errors in points, and coverage with half-width, of some rows."""
    errors = [fmean(abs(row["estimate"] - row["accuracy"]) for row in rows)]
    errors += [fmean(abs(row[name] - row["accuracy_model"]) for row in rows) for name in OTHERS]

    def band(low: str, high: str) -> str:
        covered = fmean(row[low] - 1e-9 <= row["accuracy"] <= row[high] + 1e-9 for row in rows)
        return f"{100 * covered:.0f} % / {50 * fmean(row[high] - row[low] for row in rows):.1f}"

    return [
        str(len(rows)),
        f"**{100 * errors[0]:.1f}**",
        *(f"{100 * error:.1f}" for error in errors[1:]),
        band("without_shift_low", "without_shift_high"),
        f"**{band('low', 'high')}**",
    ]


def page(rows: list[dict[str, Any]]) -> str:
    """The records as Markdown."""
    title = "| {} | windows | graphcal | TS | CBPE | ATC | DoC | without shift term | interval |\n|---|" + "---|" * 8
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    parts = [HEAD.format(windows=len(rows), graphs=len(graphs))]
    for mode, name in zip(MODES, ("Predictions of the model", "Predictions that calibration may change")):
        some = [row for row in rows if row["predictions"] == mode]
        if not some:
            continue
        three = [row for row in some if row["shift"] != "prior"]
        parts += [f"## {name}\n", title.format("shift")]
        for shift in SHIFTS:
            parts.append(f"| {shift} | " + " | ".join(cells([row for row in some if row["shift"] == shift])) + " |")
        parts.append("| no shift, regions, degree | " + " | ".join(cells(three)) + " |")
        parts += ["\nBy graph, without prior:\n", title.format("graph")]
        for graph in dict.fromkeys(row["graph"] for row in some):
            parts.append(f"| {graph} | " + " | ".join(cells([row for row in three if row["graph"] == graph])) + " |")
        parts.append("")
    return "\n".join(parts) + "\n"


HEAD = """# Accuracy without labels: mean error and coverage of 90 % intervals

Remake: `python -m graphcal.lab.bench.label_free --out DIR --write results` (resumable).

`graphcal.estimate` against mean confidence after temperature scaling (TS), CBPE (isotonic regression), ATC and DoC: mean absolute
error of the accuracy of a window, in points; then the share of 90 % intervals that hold the accuracy, and their mean half-width
in points, without and with the term for windows that differ. {windows} windows of {graphs} graphs, GCN, at most 500 labels.
Labels are a random draw of all nodes (no shift, prior), or of one half of the communities or of the degrees, while windows lie
in the other half. In `prior`, windows are thinned by class; nobody told the estimates. "Predictions of the model": all estimates
are about the model's own predictions. "Predictions that calibration may change": `graphcal` is about the changed ones, the others
are about the model's. The rule was set before, on other runs; nothing was chosen here. Windows of one graph share a model.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("label-free"), help="folder for records")
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--write", type=Path, help="folder for label-free.md and label-free.csv")
    options = parser.parse_args()
    run(options.out, tuple(options.graphs.split(",")), options.splits)
    rows = read(options.out)
    if options.write:
        write_atomically(options.write / "label-free.md", page(rows))
        write_atomically(options.write / "label-free.csv", as_csv(rows))
    else:
        print(page(rows))


if __name__ == "__main__":
    main()
