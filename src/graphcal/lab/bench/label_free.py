"""Accuracy of windows without labels on real graphs: `graphcal.estimate` beside four other estimates.

    python -m graphcal.lab.bench.label_free --out DIR --write results      # resumable: a file per graph in DIR

A GCN is trained on 20 labels per class. 500 labels (at most two fifths of their part of the graph) are drawn at random from the
other nodes, and the accuracy of windows of the rest is estimated:

    no shift    random nodes
    region      four disjoint unions of communities
    degree      the lowest quarter, lower half, upper half and highest quarter by degree
    prior       classes are thinned at random

Two harder rows have labels from one part of the graph only:

    unlabelled regions    labels from one half of the communities, windows of communities of the other half
    unlabelled degrees    labels from the lower or the upper half of the degrees, windows from the other half and its far end

Others: mean confidence after temperature scaling (TS), the same after isotonic regression on the labels (CBPE), the share of
nodes above the confidence that as large a share of labelled nodes exceeds as are right (ATC), and accuracy of the labelled nodes
plus the difference of mean confidences (DoC). Each estimate is compared with the accuracy of the predictions it is about.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
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
from graphcal.decisions.estimates import MOST_OUTSIDE, estimate
from graphcal.files import write_atomically
from graphcal.graphs import structure
from graphcal.methods import GraphScaling, TemperatureScaling
from graphcal.study import blinded_outputs

Array = NDArray[Any]
GRAPHS = (
    "cora", "citeseer", "cora_ml", "chameleon", "squirrel", "chameleon-filtered", "squirrel-filtered", "facebook_pages", "pubmed",
    "photo", "blogcatalog", "tolokers", "computers", "cs", "physics",
)  # fmt: skip
PLAIN, HARD = ("no shift", "region", "degree"), ("unlabelled regions", "unlabelled degrees")
GATES = {"no shift": 0.9, "region": 0.9, "degree": 0.8}  # coverage that was asked for before the run
MODES = {
    "keep": "## Predictions of the model\n\nAll estimates are about the model's predictions.\n",
    "free": "## Predictions that calibration may change\n\n`graphcal` is about these, the others are about the model's.\n",
}
OTHERS = ("ts", "cbpe", "atc", "doc")
LABELS, NODES, MOST, FEWEST, EPOCHS, CERTAINTY, OTHER_SEED = 500, 500, 2000, 50, 200, 0.9, 1000
FIELDS = (
    "graph", "predictions", "shift", "window", "nodes", "accuracy", "estimate", "low", "high", "without_shift_low",
    "without_shift_high", "outside", "accuracy_model", *OTHERS,
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


def cases(
    out: Outputs, pool: Array, y: Array, rng: np.random.Generator
) -> Iterator[tuple[Array, dict[str, list[Array]]]]:
    """Labelled nodes, and windows for each shift, as node numbers."""
    nodes = rng.permutation(np.flatnonzero(pool))

    def drawn(part: Array) -> Array:
        return rng.permutation(part)[: min(LABELS, 2 * len(part) // 5)]

    labelled = drawn(nodes)
    rest = np.setdiff1d(nodes, labelled)
    size = min(NODES, len(rest) // 2)
    like = [rng.choice(rest, size, replace=False) for _ in range(4)]
    thinned = []
    for _ in range(4):
        keep = rng.uniform(0.1, 1, int(y.max()) + 1)
        thinned.append(rng.permutation(rest[rng.random(len(rest)) < keep[y[rest]]])[:size])
    facts = structure(out.graph)
    part = communities(facts.edge_index.cpu(), out.num_nodes, (1.0,), seed=OTHER_SEED)[0]
    order = rng.permutation(np.unique(part[nodes]))
    covered = np.cumsum([(part[nodes] == c).sum() for c in order])
    first = np.isin(part, order[covered <= max(len(nodes) // 2, covered[0])])
    degree = facts.degree.cpu().numpy() + rng.random(out.num_nodes)  # ties at random
    mixed = rest[np.argsort(rng.spawn(1)[0].random(len(rest)))]
    regions, degrees = unions(part[mixed], order), quarters(degree[mixed])
    yield (
        labelled,
        {
            "no shift": like,
            "prior": thinned,
            "region": [mixed[window][:MOST] for window in regions if window.sum() >= FEWEST],
            "degree": [mixed[window][:MOST] for window in degrees],
        },
    )
    low = degree <= np.median(degree[nodes])
    for half in (first, ~first):
        here, there = nodes[half[nodes]], nodes[~half[nodes]]
        if min(len(here), len(there)) < 100:
            continue
        sides = rng.random(len(order)) < 0.5
        windows = [there[np.isin(part[there], order[side])] for side in (sides, ~sides)]
        yield drawn(here), {"unlabelled regions": [window[:MOST] for window in windows if len(window) >= FEWEST]}
    for half in (low, ~low):
        here, there = nodes[half[nodes]], nodes[~half[nodes]]
        far = there[np.argsort(degree[there])]
        far = far[len(far) // 2 :] if half is low else far[: len(far) // 2]
        yield drawn(here), {"unlabelled degrees": [there[:NODES], rng.permutation(far)[:NODES]]}


def unions(part: Array, order: Array) -> list[Array]:
    """Four disjoint masks (n,) of whole communities: each in turn joins the smallest.

    >>> [mask.astype(int).tolist() for mask in unions(np.array([5, 6, 7, 8, 8, 9]), np.array([8, 5, 6, 7, 9]))]
    [[0, 0, 0, 1, 1, 0], [1, 0, 0, 0, 0, 1], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
    """
    masks = [np.zeros(len(part), bool) for _ in range(4)]
    for community in order:
        masks[int(np.argmin([mask.sum() for mask in masks]))] |= part == community
    return masks


def quarters(degree: Array) -> list[Array]:
    """Masks (n,) of the lowest quarter, lower half, upper half and highest quarter."""
    lower, middle, upper = np.quantile(degree, [0.25, 0.5, 0.75])
    return [degree <= lower, degree <= middle, degree > middle, degree > upper]


def rows_of(graph: str, split: int, mode: str) -> Iterator[dict[str, Any]]:
    """Every window of a graph, with graph scaling that keeps predictions or not."""
    import graphcal
    from graphcal.lab.training import Training

    data = graphcal.lab.load(graph, "per-class", split=split)
    out = graphcal.lab.train(data, "gcn", Training(epochs=EPOCHS, patience=50), seeds=[split])[0].outputs
    y, rng = data.y.numpy(), np.random.default_rng(split)
    for labelled, windows in cases(out, (data.val_mask | data.test_mask).numpy(), y, rng):
        seen = copy(out.graph)
        on = torch.zeros(len(y), dtype=torch.bool)
        on[labelled] = True
        seen.val_mask, seen.test_mask = on, ~on & ~data.train_mask
        (view,) = blinded_outputs([replace(out, graph=seen)])
        calibration = GraphScaling(sets=True, predictions=mode).fit(view, on=on)
        with torch.no_grad():
            conf, pred = TemperatureScaling().fit(view, on=on)(view).double().exp().max(1)
            right = (calibration(view).argmax(1) == data.y).numpy()
        for shift, number, window in ((s, k, w) for s, some in windows.items() for k, w in enumerate(some)):
            one = estimate(calibration, view, torch.from_numpy(window), CERTAINTY)
            plain = one.accuracy.low + one.widening, one.accuracy.high - one.widening
            yield {
                "graph": graph, "predictions": mode, "shift": shift, "window": number, "nodes": len(window),
                "accuracy": right[window].mean(),
                "estimate": one.accuracy.value, "low": one.accuracy.low, "high": one.accuracy.high,
                "without_shift_low": plain[0], "without_shift_high": plain[1],
                "outside": one.outside,
                "accuracy_model": (pred.numpy() == y)[window].mean(),
                **label_free(conf.numpy(), pred.numpy() == y, labelled, window),
            }  # fmt: skip


def run(out: Path, graphs: Sequence[str], modes: Sequence[str], splits: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for split in range(splits):
        for graph, mode in product(graphs, modes):
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


def mean_errors(rows: list[dict[str, Any]]) -> list[float]:
    """Mean absolute error of graphcal and of the others, each about its predictions."""
    others = [fmean(abs(row[name] - row["accuracy_model"]) for row in rows) for name in OTHERS]
    return [fmean(abs(row["estimate"] - row["accuracy"]) for row in rows), *others]


def with_interval(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["outside"] <= MOST_OUTSIDE]


def coverage(rows: list[dict[str, Any]], low: str = "low", high: str = "high") -> float:
    return fmean(row[low] - 1e-9 <= row["accuracy"] <= row[high] + 1e-9 for row in rows)


def cells(rows: list[dict[str, Any]]) -> str:
    """Windows, mean errors in points, windows without an interval, coverage and half-width of the others."""
    some = with_interval(rows)

    def band(low: str, high: str) -> str:
        if not some:
            return ""
        return f"{100 * coverage(some, low, high):.0f} % / {50 * fmean(row[high] - row[low] for row in some):.1f}"

    first, *others = (f"{100 * error:.1f}" for error in mean_errors(rows))
    bands = band("without_shift_low", "without_shift_high"), band("low", "high")
    refused = str(len(rows) - len(some))
    return " | ".join([str(len(rows)), first, *others, refused, *bands])


def gates(rows: list[dict[str, Any]]) -> str:
    """One sentence per gate: met or missed."""
    lines = []
    for shift, least in GATES.items():
        share = coverage(with_interval([row for row in rows if row["shift"] == shift]))
        verdict = "met" if share >= least else "missed"
        lines.append(f"- Coverage, {shift}, at least {100 * least:.0f} %: {verdict}, {100 * share:.1f} %.")
    first, *others = mean_errors([row for row in rows if row["shift"] in PLAIN])
    verdict, best = "met" if first < min(others) else "missed", min(others)
    lines.append(
        f"- Mean error below all others: {verdict}, {100 * first:.2f} points against {100 * best:.2f} of the best."
    )
    return "\n".join(lines)


def weakest(rows: list[dict[str, Any]]) -> str:
    """The graph with the lowest coverage over the windows of the gates."""
    some = with_interval([row for row in rows if row["shift"] in PLAIN])
    share = {
        graph: coverage([row for row in some if row["graph"] == graph]) for graph in {row["graph"] for row in some}
    }
    graph = min(sorted(share), key=lambda name: share[name])
    return f"Lowest coverage of a graph: {100 * share[graph]:.0f} % ({graph})."


def page(rows: list[dict[str, Any]]) -> str:
    """The records as Markdown."""
    title = (
        "| windows | number | graphcal | TS | CBPE | ATC | DoC | no interval | without shift term | interval |\n|---|"
        + "---|" * 9
    )
    parts = [HEAD.format(windows=len(rows), graphs=len({row["graph"] for row in rows}))]
    for mode, heading in MODES.items():
        some = [row for row in rows if row["predictions"] == mode]
        if not some:
            continue
        by_shift = {shift: [row for row in some if row["shift"] == shift] for shift in (*PLAIN, "prior", *HARD)}
        lines = {shift: f"| {shift} | {cells(of_shift)} |" for shift, of_shift in by_shift.items()}
        together = f"| {', '.join(PLAIN)} | {cells([row for row in some if row['shift'] in PLAIN])} |"
        parts += [
            heading,
            title,
            *(lines[shift] for shift in PLAIN),
            together,
            lines["prior"],
            "",
            gates(some),
            "",
            weakest(some),
        ]
        parts += ["\nLabels from one part of the graph only:\n", title, *(lines[shift] for shift in HARD), ""]
    return "\n".join(parts).rstrip() + "\n"


HEAD = """# Accuracy without labels: mean error and coverage of 90 % intervals

Remake: `python -m graphcal.lab.bench.label_free --out DIR --write results` (resumable). Every window is in `label-free.csv`.

`graphcal.estimate` against mean confidence after temperature scaling (TS), CBPE (isotonic regression), ATC and DoC: mean absolute
error of the accuracy of a window, in points; number of windows to which `estimate` gives no interval, because more than half of
their nodes lie in communities or at degrees where nothing was labelled; of the other windows, the share of 90 % intervals that
hold the accuracy, and their mean half-width in points, without and with the term for windows that differ. {windows} windows of
{graphs} graphs, GCN, at most 500 labels.

Labels are a random draw of all nodes. Windows are random nodes (no shift), unions of communities (region), quarters and halves by
degree (degree), or random nodes thinned by class, which nobody told the estimates (prior). In the last two rows labels come from
one half of the communities or of the degrees, and windows lie in the other half.

What was decided when. The rule of the estimate and its interval was developed on ten of these graphs, before. In a first run
regions and degrees were those of the last two rows only: 97 %, 82 % and 75 % of the intervals held (no shift, regions, degrees),
and the mean error was 4.65 points against 4.31 of CBPE, so three of the four gates below were missed. The gates come from a study
with random labels (it also cut by agreement of neighbours, which is not done here). So windows with random labels were added, and
intervals are refused where nothing was labelled. Windows of one graph share a model. Measured before intervals of counts were
extended for rare events (see sets.md), which can only make them wider.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("label-free"), help="folder for records")
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--predictions", choices=MODES, action="append", help="free unless given; repeat it for both")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--write", type=Path, help="folder for label-free.md and label-free.csv")
    options = parser.parse_args()
    run(options.out, options.graphs.split(","), options.predictions or ["free"], options.splits)
    rows = read(options.out)
    if options.write:
        write_atomically(options.write / "label-free.md", page(rows))
        write_atomically(options.write / "label-free.csv", as_csv(rows))
    else:
        print(page(rows))


if __name__ == "__main__":
    main()
