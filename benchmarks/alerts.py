"""Alerts beside scikit-learn, MAPIE and CBPE, and windows of time against their truth.

    python benchmarks/alerts.py --out results     # alerts.csv, alerts-windows.csv and alerts.md; about two minutes on one core
    python benchmarks/alerts.py --parts table     # writes alerts.md again

MAPIE is no dependency of graphcal: its lines are there if it can be imported. Debian's part is left out without its two files.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "decisions"))
from test_alerts import scored_rows, simulated

Array = np.ndarray
Record = dict[str, Any]
CAPACITY, TARGET, CERTAINTY = 300, 0.3, 0.95
TABLES, EDGE_TABLES, SEEDS = 20, 10, 5
DEBIAN = ("python", "science")  # classes, each against the rest
HEAD = ("table", "seed", "tool", "stated", "low", "high", "true", "promised_rows", "promised_true", "seconds")
WINDOW_HEAD = ("table", "seed", "window", "sent", "stated", "low", "high", "true", "drift")


class Table(NamedTuple):
    """One score per row, labels of some rows (-1 elsewhere), and the truth."""

    scores: Array
    y: Array
    truth: Array
    options: dict[str, Any]
    edges: Array | None = None

    @property
    def open(self) -> Array:
        """Unlabelled rows, highest score first."""
        rows = np.flatnonzero((self.y < 0) & ~self.options.get("training", np.zeros(len(self.y), bool)))
        return rows[np.argsort(-self.scores[rows], kind="stable")]


def tolokers(seed: int, edges: bool = False) -> Table:
    """Scores of a logistic regression with class weights; a fifth of the other workers has a label, drawn at random."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    import graphcal

    data = graphcal.lab.load("tolokers")
    x, truth = StandardScaler().fit_transform(data.x.numpy()), data.y.numpy() == 1
    order = np.random.default_rng(seed).permutation(len(truth))
    model = LogisticRegression(class_weight="balanced").fit(x[order[:3000]], truth[order[:3000]])
    training = np.isin(np.arange(len(truth)), order[:3000])
    y = np.where(np.isin(np.arange(len(truth)), order[3000 : 3000 + (len(truth) - 3000) // 5]), truth, -1)
    link = data.edge_index.numpy() if edges else None
    return Table(model.predict_proba(x)[:, 1], y, truth, {"training": training, "random_draw": True}, link)


def made(design: str, seed: int) -> Table:
    """A simulated table of 12,000 rows, 5 % positive, scores of a model with a class weight of 20."""
    scores, y, more, truth = simulated(np.random.default_rng(seed), design, 0.05)
    return Table(scores, y, truth, more)


TABLES_OF: dict[str, Callable[[int], Table]] = {
    "tolokers": tolokers,
    "tolokers, edges": lambda seed: tolokers(seed, edges=True),
    "simulated, random labels": lambda seed: made("random", seed),
    "simulated, known chances": lambda seed: made("chances", seed),
    "simulated, labels picked by score": lambda seed: made("picked", seed),
}

# Each tool returns (stated precision of the 300 highest open rows, low, high) and the open rows it promises, or None


def graphcal_alerts(table: Table) -> tuple[tuple[float | None, ...], Array | None]:
    import graphcal

    options = {**table.options, "edges": table.edges, "precisions": (TARGET,), "kind": "probs"}
    queue = graphcal.alerts(table.scores, table.y, capacity=CAPACITY, **options)
    share = queue.threshold.precision
    promised = np.flatnonzero((queue.rank > 0) & (queue.rank <= queue.promises[0].rows)) if queue.promises else None
    table.options["sent"] = queue.decision == "review"
    return (share.value, share.low, share.high), promised


def sklearn_calibrated(method: str) -> Callable[[Table], tuple[tuple[float | None, ...], Array | None]]:
    def run(table: Table) -> tuple[tuple[float | None, ...], Array | None]:
        prob = calibrated(table, method)[table.open]
        reached = np.flatnonzero(np.cumsum(prob) >= TARGET * np.arange(1, len(prob) + 1))
        return (float(prob[:CAPACITY].mean()), None, None), table.open[: reached[-1] + 1] if len(reached) else None

    return run


def calibrated(table: Table, method: str) -> Array:
    """Probabilities (N,) by `CalibratedClassifierCV` of scikit-learn around the score."""
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class Score(ClassifierMixin, BaseEstimator):
        def __init__(self) -> None:
            self.classes_ = np.array([0, 1])

        def fit(self, x: Array, y: Array) -> Score:
            return self

        def decision_function(self, x: Array) -> Array:
            return np.log(x[:, 0]) - np.log1p(-x[:, 0])

        def predict(self, x: Array) -> Array:
            return (x[:, 0] > 0.5).astype(int)

    labelled, x = table.y >= 0, table.scores[:, None]
    model = CalibratedClassifierCV(FrozenEstimator(Score()), method=method, ensemble=False)
    return np.asarray(model.fit(x[labelled], table.y[labelled]).predict_proba(x)[:, 1])


def sklearn_curve(table: Table) -> tuple[tuple[float | None, ...], Array | None]:
    """`precision_recall_curve` of the labelled rows, read at the score of the last row that is sent."""
    from sklearn.metrics import precision_recall_curve

    labelled = table.y >= 0
    precision, _, cut = precision_recall_curve(table.y[labelled], table.scores[labelled])
    at = min(int(np.searchsorted(cut, table.scores[table.open[CAPACITY - 1]])), len(cut) - 1)
    reached = np.flatnonzero(precision[:-1] >= TARGET)
    promised = table.open[table.scores[table.open] >= cut[reached[0]]] if len(reached) else None
    return (float(precision[at]), None, None), promised


def cbpe(table: Table) -> tuple[tuple[float | None, ...], Array | None]:
    """Confidence-based estimate: mean of isotonic probabilities, with the binomial spread of the rows sent."""
    (value, _, _), promised = sklearn_calibrated("isotonic")(table)
    assert value is not None
    spread = 1.96 * float(np.sqrt(value * (1 - value) / CAPACITY))
    return (value, max(value - spread, 0.0), min(value + spread, 1.0)), promised


def mapie(table: Table) -> tuple[tuple[float | None, ...], Array | None]:
    """Binary risk control of MAPIE: the lowest of 100 thresholds with a target precision, 95 % certain."""
    import warnings

    from mapie.risk_control import BinaryClassificationController

    labelled, x = table.y >= 0, table.scores[:, None]
    control = BinaryClassificationController(
        lambda x: np.column_stack([1 - x[:, 0], x[:, 0]]), "precision", TARGET, CERTAINTY,
        list_predict_params=np.quantile(table.scores, np.linspace(0.5, 0.999, 100)),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        control.calibrate(x[labelled], table.y[labelled])
    valid = np.asarray(control.valid_predict_params)
    return (None, None, None), table.open[table.scores[table.open] >= valid.min()] if valid.size else None


TOOLS: dict[str, Callable[[Table], tuple[tuple[float | None, ...], Array | None]]] = {
    "graphcal alerts": graphcal_alerts,
    "scikit-learn, CalibratedClassifierCV, sigmoid": sklearn_calibrated("sigmoid"),
    "scikit-learn, CalibratedClassifierCV, isotonic": sklearn_calibrated("isotonic"),
    "scikit-learn, precision_recall_curve": sklearn_curve,
    "CBPE, written by hand": cbpe,
    "MAPIE, binary risk control": mapie,
}


def comparison(tables: int) -> Iterator[Record]:
    """Every tool on every table."""
    for name, make in TABLES_OF.items():
        for seed in range(min(tables, EDGE_TABLES) if "edges" in name else tables):
            table = make(seed)
            for tool, run in TOOLS.items():
                if "edges" in name and not tool.startswith("graphcal"):
                    continue  # they read no edges: as on tolokers
                start = time.process_time()
                try:
                    (stated, low, high), promised = run(table)
                except ModuleNotFoundError as missing:
                    print(f"{tool} is left out: {missing}", file=sys.stderr)
                    continue
                seconds = time.process_time() - start
                sent = table.options.pop("sent", None)
                rows = table.open[:CAPACITY] if sent is None else np.flatnonzero(sent)
                hits = None if promised is None or not len(promised) else table.truth[promised].mean()
                values = (name, seed, tool, stated, low, high, table.truth[rows].mean())
                yield dict(zip(HEAD, (*values, 0 if promised is None else len(promised), hits, seconds)))


# Windows


def window_record(table: str, seed: int, window: Any, truth: float | None) -> Record:
    share = window.precision
    values = (table, seed, window.name, window.sent, share.value, share.low, share.high, truth, window.drift)
    return dict(zip(WINDOW_HEAD, values))


def windows_inside(name: str, seed: int, queue: Any, times: Array, truth: Array) -> Iterator[Record]:
    """Windows that `alerts` printed for the unlabelled rows of its table."""
    from graphcal.decisions.windows import cut_windows

    rows_of = dict(cut_windows(times, len(times), "month"))
    for one in queue.windows:
        if one.precision is not None:
            rows = rows_of[one.name]
            yield window_record(name, seed, one, truth[rows[queue.decision[rows] == "review"]].mean())


def random_windows(seed: int) -> Iterator[Record]:
    """Tolokers has no times: eight random windows, with and without edges."""
    import graphcal

    for name, edges in (("tolokers, random windows", False), ("tolokers, random windows, edges", True)):
        table = tolokers(seed, edges)
        times = np.random.default_rng(seed).integers(0, 8, len(table.y))
        options = {**table.options, "edges": table.edges, "kind": "probs"}
        queue = graphcal.alerts(table.scores, table.y, capacity=800, time=times, **options)
        yield from windows_inside(name, seed, queue, times, table.truth)


def drifting_months(seed: int) -> Iterator[Record]:
    """Six simulated months, labels of a quarter of the first five; the sixth may change."""
    import graphcal

    rng = np.random.default_rng(seed)
    for change in ("none", "more high scores", "scores rise, positives do not", "positives fall, scores do not"):
        odds, truth = scored_rows(rng, 0.05, 30_000)
        day = rng.integers(0, 180, len(odds))
        last = day >= 151  # June
        if change == "more high scores":  # what a score means stays
            odds = odds + 1.0 * last
            truth = rng.random(len(odds)) < 1 / (1 + np.exp(-odds))
        elif change == "scores rise, positives do not":
            odds = odds + 1.5 * last
        elif change == "positives fall, scores do not":
            truth &= ~last | (rng.random(len(odds)) < 0.4)
        times = np.datetime64("2026-01-01") + day.astype("timedelta64[D]")
        y = np.where((rng.random(len(odds)) < 0.25) & ~last, truth, -1)
        older = graphcal.alerts(odds[~last], y[~last], kind="logits", capacity=800, time=times[~last], window="month")
        name = f"simulated months, change: {change}"
        if change == "none":
            yield from windows_inside("simulated months, labelled period", seed, older, times[~last], truth[~last])
        yield from later_windows(name, seed, older, odds[last], truth[last], {"June": np.arange(int(last.sum()))})


def later_windows(
    name: str, seed: int, queue: Any, odds: Array, truth: Array, windows: dict[str, Array]
) -> Iterator[Record]:
    """Windows of rows that came later, as `graphcal score` and `graphcal watch` see them: without labels."""
    import torch

    from graphcal.decisions.windows import QueueEstimate

    logits = torch.from_numpy(np.column_stack([np.zeros_like(odds), odds]))
    log_probs = queue.calibration.log_probs(logits, logits[:, :0])
    reference = queue.calibration.fitted_on["reference"]
    estimate = QueueEstimate.from_dict(reference["alerts"])
    for window, rows in windows.items():
        from graphcal.decisions import watch

        (report,) = watch(reference, log_probs[torch.from_numpy(rows)]).windows
        sent = estimate.sends(log_probs[torch.from_numpy(rows), 1].exp().numpy())
        assert report.alerts is not None
        if sent.any():
            one = report.alerts
            yield {**window_record(name, seed, one, truth[rows[sent]].mean()), "window": window}


def debian_windows(seed: int, fit_on: str = "debian-bullseye", later: str = "debian-bookworm") -> Iterator[Record]:
    """A section of Debian against the rest: model and labels from bullseye, windows from bookworm.

    Logistic regression with class weights on the words of a package and the mean of those of its neighbours, trained on 6,000
    packages; a tenth of the others is labelled at random. Bookworm's packages that trained the model are left out.
    """
    from sklearn.linear_model import LogisticRegression

    import graphcal

    old, new = release(fit_on), release(later)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(old["labels"]))
    train = order[:6000]
    fresh = np.flatnonzero(~np.isin(new["names"], old["names"][train]))
    in_old = np.isin(new["names"][fresh], old["names"])
    for section in DEBIAN:
        is_old, is_new = (one["labels"] == list(one["class_names"]).index(section) for one in (old, new))
        model = LogisticRegression(class_weight="balanced", C=0.3, max_iter=200).fit(old["x"][train], is_old[train])
        training = np.isin(np.arange(len(order)), train)
        y = np.where(np.isin(np.arange(len(order)), order[6000 : 6000 + len(order) // 10]), is_old, -1)
        options = {"training": training, "kind": "logits", "random_draw": True}
        queue = graphcal.alerts(model.decision_function(old["x"]), y, capacity=1500, **options)
        rows, parts = np.arange(len(fresh)), rng.integers(0, 10, len(fresh))
        windows = {"all": rows, "new packages": rows[~in_old], "packages of bullseye": rows[in_old]}
        windows |= {f"random tenth {k}": rows[parts == k] for k in range(10)}
        odds = model.decision_function(new["x"][fresh])
        yield from later_windows(f"Debian, {section}", seed, queue, odds, is_new[fresh], windows)


def release(name: str) -> dict[str, Any]:
    """Arrays of a release, with features x (N, 4000): words, and mean words of the neighbours."""
    import scipy.sparse as sp

    file = np.load(Path(os.environ["GRAPHCAL_DATA"]) / f"{name}.npz")
    words = sp.csr_matrix(
        (file["feat_data"], file["feat_indices"], file["feat_indptr"]), shape=tuple(file["feat_shape"])
    )
    src, dst = file["edge_index"]
    link = sp.csr_matrix((np.ones(len(src)), (dst, src)), shape=(words.shape[0],) * 2)
    degree = np.maximum(np.asarray(link.sum(axis=1)).ravel(), 1)
    x = sp.hstack([words, sp.diags(1 / degree) @ link @ words]).tocsr()
    names = [str(name, "ascii") for name in file["class_names"]]
    return {"x": x, "labels": file["labels"], "names": file["names"], "class_names": names}


# The page


def comparison_lines(records: list[Record]) -> Iterator[str]:
    groups = defaultdict(list)
    for record in records:
        groups[record["table"], record["tool"]].append(record)
    for table in dict.fromkeys(record["table"] for record in records):
        yield f"\n### {table.capitalize()}\n"
        head = f"interval holds | width | promises {100 * TARGET:g} % | rows | broken"
        yield f"| tool | says | in truth | error | {head} | seconds |"
        yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
        for (name, tool), group in groups.items():
            if name != table:
                continue
            true, stated = [r["true"] for r in group], [r["stated"] for r in group]
            has_estimate = stated[0] is not None
            error = [abs(s - t) for s, t in zip(stated, true)] if has_estimate else []
            banded = [r for r in group if r["low"] is not None]
            kept = [r["low"] <= r["true"] <= r["high"] for r in banded]
            promised = [r for r in group if r["promised_rows"]]
            broken = [r["promised_true"] < TARGET for r in promised]
            cells = [
                tool,
                f"{100 * fmean(stated):.1f} %" if has_estimate else "–",
                f"{100 * fmean(true):.1f} %" if has_estimate else "–",
                f"{100 * fmean(error):.1f}" if has_estimate else "–",
                f"{sum(kept)} of {len(kept)}" if banded else "no interval",
                f"{100 * median(r['high'] - r['low'] for r in banded):.0f}" if banded else "–",
                f"{len(promised)} of {len(group)}",
                f"{fmean(r['promised_rows'] for r in promised):,.0f}" if promised else "–",
                f"{sum(broken)} of {len(promised)}" if promised else "–",
                f"{median(r['seconds'] for r in group):.2f}",
            ]
            yield f"| {' | '.join(cells)} |"


def window_lines(records: list[Record]) -> Iterator[str]:
    yield "| table | windows | announced as drift | others | expected precision inside its interval | mean error in points |"
    yield "|---|--:|--:|--:|--:|--:|"
    for table in dict.fromkeys(record["table"] for record in records):
        group = [r for r in records if r["table"] == table]
        quiet = [r for r in group if not r["drift"] and r["low"] is not None]
        inside = sum(r["low"] - 1e-9 <= r["true"] <= r["high"] + 1e-9 for r in quiet)
        error = f"{100 * fmean(abs(r['stated'] - r['true']) for r in quiet):.1f}" if quiet else "–"
        share = f"{inside} of {len(quiet)} ({100 * inside / len(quiet):.0f} %)" if quiet else "–"
        announced = sum(bool(r["drift"]) for r in group)
        yield f"| {table} | {len(group)} | {announced} | {len(quiet)} | {share} | {error} |"


def page(compared: list[Record], windows: list[Record]) -> str:
    tools = {record["tool"] for record in compared}
    without = [tool for tool in TOOLS if tool not in tools]
    left_out = f" Not run, because it was not installed: {', '.join(without)}." if without else ""
    target = f"{100 * TARGET:g} %"
    debian = any(r["table"].startswith("Debian") for r in windows)
    return f"""# Alerts beside other tools, and windows against their truth

Remake: `python benchmarks/alerts.py --out results`. Every figure is of unlabelled rows, whose labels no tool saw.

## What each tool says about the {CAPACITY} highest rows

Each table {TABLES} times ({EDGE_TABLES} with edges), with new labels.

- *says*, *in truth*: mean precision of the {CAPACITY} rows that are sent; *error*: mean distance of the two in points;
- *interval holds*: tables in which the truth lies in the 95 % interval; *width*: its median, in points;
- *promises {target}*: tables in which the tool names rows with at least this precision; *rows*: how many; *broken*: in how many
  of these tables it is lower. graphcal and MAPIE promise it with 95 % certainty; the others expect it;
- *seconds*: processor time of one table, imports excluded.{left_out}
{chr(10).join(comparison_lines(compared))}

MAPIE and scikit-learn take labels as a random draw. graphcal compares labelled rows with the others first: where they were picked
by the score and nobody says how, it gives estimates without an interval and promises nothing.

## Windows

Expected precision of the rows above the threshold, without labels of the window, against its truth. Windows of tolokers and of
the labelled period are parts of the table that `graphcal alerts` read. June and Debian's windows are later rows, as
`graphcal score` and `graphcal watch` see them. Windows that are announced as drift are counted apart.

{chr(10).join(window_lines(windows))}

"More high scores" keeps what a score means; it is announced all the same. "Positives fall, scores do not" cannot be seen by
anyone without labels of the window; `watch` tests the expected precision as soon as there are some.
{"Debian: model and labels from bullseye, windows from bookworm." if debian else "Debian was not run: its files were not there."}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--parts", default="tools,windows,debian,table", help="which parts to run again")
    parser.add_argument("--tables", type=int, default=TABLES)
    args = parser.parse_args()
    parts, files = args.parts.split(","), (args.out / "alerts.csv", args.out / "alerts-windows.csv")
    if "tools" in parts:
        write_csv(files[0], HEAD, list(comparison(args.tables)))
    old = read_csv(files[1]) if files[1].exists() else []
    debian = [r for r in old if r["table"].startswith("Debian")]
    others = [r for r in old if not r["table"].startswith("Debian")]
    if "windows" in parts:
        others = [r for part in (random_windows, drifting_months) for s in range(SEEDS) for r in part(s)]
    if "debian" in parts:
        debian = [r for seed in range(SEEDS) for r in debian_windows(seed)]
    write_csv(files[1], WINDOW_HEAD, others + debian)
    (args.out / "alerts.md").write_text(page(read_csv(files[0]), read_csv(files[1])))


def write_csv(path: Path, head: tuple[str, ...], records: list[Record]) -> None:
    short = lambda v: "" if v is None else f"{v:.4g}" if isinstance(v, float) else v  # noqa: E731
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(head)
        lines.writerows([short(record[name]) for name in head] for record in records)


def read_csv(path: Path) -> list[Record]:
    """Records with numbers as numbers and empty cells as None."""
    words = ("table", "tool", "window", "drift")
    with path.open() as file:
        lines = csv.DictReader(file)
        return [{k: v if k in words else float(v) if v else None for k, v in line.items()} for line in lines]


if __name__ == "__main__":
    main()
