"""Judge every claim of the paper by one rule: claims.toml says what is claimed, the run files say what was measured.

    always     holds: all rows speak for it;  does not hold: a third or more speak against it;  holds in part otherwise
    average    d_g = mean difference of graph g, positive in the claim's direction;  interval = mean(d) ± t sd(d) / √G
               holds: above zero;  does not hold: below zero;  not decided: zero is inside
    exact      holds: all parts are right;  does not hold: none is;  holds in part otherwise

Label rates and networks of one graph share test nodes, so a graph is the unit of an average. The rule judges the direction;
the size of a difference stands beside the verdict. The kind of a claim follows from its wording.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from graphcal.files import read_toml
from graphcal.lab.bench.comparisons import bias
from graphcal.lab.bench.document import Block, Grid, Heading, cells, markdown, paragraph
from graphcal.lab.paper.details import detail_lines
from graphcal.lab.paper.run_files import RunFiles, printed_means
from graphcal.metrics.names import metric_of

HOLDS, PART, NOT, OPEN, UNTESTED = "holds", "holds in part", "does not hold", "not decided", "cannot be tested"
VERDICTS = (HOLDS, PART, NOT, OPEN, UNTESTED)
KINDS = ("always", "average", "exact", "untested")

Gaps = list[tuple[str, float]]  # (graph, difference), positive: speaks for the claim


@cache
def read_claims() -> dict[str, Any]:
    with resources.as_file(resources.files("graphcal.lab.paper") / "claims.toml") as path:
        return read_toml(path)


# --------------------------------------------------------------------------------------------------------------- the rule


@dataclass(frozen=True)
class Verdict:
    word: str
    share: str = ""  # rows, interval or parts behind the word


def always(gaps: Sequence[float]) -> Verdict:
    """Judge a claim about every row."""
    agree, rows = sum(gap > 0 for gap in gaps), len(gaps)
    word = HOLDS if agree == rows else NOT if 3 * (rows - agree) >= rows else PART
    return Verdict(word, f"{agree}/{rows}")


def average(by_graph: Sequence[float]) -> Verdict:
    """Judge a claim about a mean: Student's interval over graphs."""
    d = bias(by_graph)
    word = HOLDS if d.low > 0 else NOT if d.high < 0 else OPEN
    return Verdict(word, f"{d.mean:+.2f} [{d.low:+.2f}, {d.high:+.2f}], {d.entries} graphs")


def exact(parts: Sequence[bool]) -> Verdict:
    """Judge a theorem or a printed number by its parts."""
    return Verdict(HOLDS if all(parts) else PART if any(parts) else NOT, f"{sum(parts)}/{len(parts)}")


# ----------------------------------------------------------------------------------------------------------- the evidence


def _rows(runs: RunFiles, one: Mapping[str, Any], methods: Sequence[str]) -> list[tuple[str, Any]]:
    """(table, row) of a set of rows that have all the methods."""
    sets = read_claims()["rows"]
    return [
        (part["table"], row)
        for part in sets[one["on"]]
        for row in runs.rows(part["table"], *methods, **{k: v for k, v in part.items() if k != "table"})
    ]


def _mean(runs: RunFiles, table: str, row: Any, method: str, metric: str) -> float:
    if metric == "seconds":
        return runs.seconds[dict(row)["dataset"], method]
    return float(runs.at(table, row, method, metric).mean())


def _several(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def differences(runs: RunFiles, one: Mapping[str, Any]) -> tuple[Gaps, str]:
    """a against b, or against a limit, in each row."""
    metric, ours = one["metric"], _several(one["a"])
    others, times = _several(one.get("b", ())), one.get("times", 1.0)
    sign = 1.0 if one["better"] == "higher" else -1.0
    gaps: Gaps = []
    values, ratios = [], []
    for table, row in _rows(runs, one, ours + others):
        b = min((_mean(runs, table, row, m, metric) for m in others), default=one.get("limit", 0.0))
        for method in ours:
            a = _mean(runs, table, row, method, metric)
            if one.get("skip_ties") and a == b:
                continue
            gaps.append((dict(row)["dataset"], sign * (a - times * b)))
            values.append(a - b if others else a)
            ratios.append(a / b if b else np.inf)
    if metric == "seconds" and others:
        return gaps, f"{min(ratios):.1f} to {max(ratios):.1f} times"
    digits = 1 if metric in ("seconds", "changed") else metric_of(metric).digits
    spread = f"{max(values):.0f} at most" if metric == "seconds" else f"{np.mean(values):+.{digits}f} on average"
    return gaps, spread


def curves(runs: RunFiles, one: Mapping[str, Any]) -> tuple[Gaps, str]:
    """The shape of a curve over an axis, one row per graph."""

    def curve(method: str) -> dict[str, list[tuple[str, float]]]:
        points: dict[str, list[tuple[str, float]]] = {}
        for table, row in _rows(runs, one, [method]):
            axis_values = dict(row)
            x = axis_values.get(one.get("axis", ""), "")
            points.setdefault(axis_values["dataset"], []).append((x, _mean(runs, table, row, method, one["metric"])))
        return points

    a = curve(one["a"])
    if one["shape"] in ("falls", "ends lower"):
        each_step = one["shape"] == "falls"
        heights = {graph: np.array([y for _, y in points]) for graph, points in a.items()}
        gaps = [(g, float((y[:-1] - y[1:]).min() if each_step else y[0] - y[-1])) for g, y in heights.items()]
        return gaps, "; ".join(f"{g} {', '.join(f'{y:.1f}' for _, y in points)}" for g, points in a.items())
    lowest = [{g: float(min(of, key=lambda p: p[1])[0]) for g, of in some.items()} for some in (a, curve(one["b"]))]
    text = ", ".join(f"{g} {lowest[0][g]:g} and {lowest[1][g]:g}" for g in a)
    return [(g, lowest[0][g] - lowest[1][g]) for g in a], text


def ordered(runs: RunFiles, one: Mapping[str, Any]) -> tuple[Gaps, str]:
    """Means in the order that is claimed; a row for each pair of neighbours."""
    means = {}
    for part in one["order"]:
        where = {k: v for k, v in part.items() if k not in ("name", "table", "method")}
        means[part["name"]] = float(runs.means(part["table"], part["method"], one["metric"], **where).mean())
    values = list(means.values())
    pairs = zip(list(means)[1:], values, values[1:])
    return [(name, b - a) for name, a, b in pairs], ", ".join(f"{name} {value:.2f}" for name, value in means.items())


def printed(one: Mapping[str, Any]) -> tuple[Gaps, str]:
    """A mean of the paper's own tables beside the number in its text."""
    published_gap = np.concatenate([printed_means(t, one["b"]) - printed_means(t, one["a"]) for t in one["printed"]])
    equal = round(float(published_gap.mean()), one["digits"]) == one["value"]
    return [("paper", 1.0 if equal else -1.0)], f"{published_gap.mean():.2f}, stated {one['value']:g}"


def find(runs: RunFiles, one: Mapping[str, Any]) -> tuple[Gaps, str]:
    """Evaluate an item of evidence: its rows, and a phrase for people."""
    if "printed" in one:
        gaps, text = printed(one)
        return gaps, f"{one['label']}: {text}"
    if "order" in one:
        gaps, text = ordered(runs, one)
        return gaps, f"{one['label']}: {text}"
    gaps, text = curves(runs, one) if "shape" in one else differences(runs, one)
    return gaps, f"{one['label']} in {sum(gap > 0 for _, gap in gaps)} of {len(gaps)} ({text})"


def judge(claim: Mapping[str, Any], runs: RunFiles) -> tuple[str, Verdict]:
    """The figures behind a claim, and its verdict."""
    if claim["kind"] not in KINDS:
        raise ValueError(f"{claim['where']}: kind {claim['kind']!r} is not one of {', '.join(KINDS)}.")
    judged = [find(runs, one) for one in claim.get("evidence", ())]
    phrases = [*(text for _, text in judged), *(part["says"] for part in claim.get("parts", ()))]
    if beside := [find(runs, one)[1] for one in claim.get("beside", ())]:
        phrases.append(f"beside: {'; '.join(beside)}")
    text = ": ".join(filter(None, (claim.get("note", ""), "; ".join(phrases))))
    gaps = [gap for some, _ in judged for gap in some]
    if claim["kind"] == "untested":
        return text, Verdict(UNTESTED)
    if claim["kind"] == "always":
        return text, always([gap for _, gap in gaps])
    if claim["kind"] == "average":
        graphs = dict.fromkeys(graph for graph, _ in gaps)
        return text, average([float(np.mean([gap for g, gap in gaps if g == graph])) for graph in graphs])
    parts = [part["holds"] for part in claim.get("parts", ())]
    return text, exact([*(all(gap > 0 for _, gap in some) for some, _ in judged), *parts])


# --------------------------------------------------------------------------------------------------------------- the page


def verdicts(runs: RunFiles) -> list[Verdict]:
    return [judge(claim, runs)[1] for claim in read_claims()["claim"]]


def grid_of_claims(runs: RunFiles) -> Grid:
    body = []
    for claim in read_claims()["claim"]:
        text, verdict = judge(claim, runs)
        word = f"**{verdict.word}**" + (f" ({verdict.share})" if verdict.share else "")
        command = f"`{claim['command']}`" if claim.get("command") else ""
        body.append(cells([claim["where"], claim["says"], claim["kind"], text, word, command]))
    return Grid(["where", "the paper says", "kind", "here", "verdict", "command"], body, range(6))


def count_verdicts(runs: RunFiles) -> str:
    count = Counter(verdict.word for verdict in verdicts(runs))
    plural = ("hold", "hold in part", "do not hold", "are not decided", "cannot be tested")
    return ", ".join(f"{count[word]} {words}" for word, words in zip(VERDICTS, plural))


def claims(folder: Path) -> str:
    """The text of claims.md."""
    runs = RunFiles(folder)
    blocks: list[Block] = [
        Heading(1, "The paper, claim by claim"),
        paragraph(
            "Every sentence of the SCAR paper (arXiv 2505.11335, later revision) that states a result. Of "
            f"{len(read_claims()['claim'])} claims {count_verdicts(runs)}. ECE and accuracy in points, 20 bins, ten "
            "runs, graphs Cora, Citeseer and Pubmed unless stated otherwise."
        ),
        paragraph(
            "**Rule.** *always*: holds if all rows agree, does not hold if a third or more speak against it, in part "
            "otherwise; the share stands beside the word. *average*: holds if the 95 % interval over graphs lies above "
            "zero (differences count positive in the claim's direction), does not hold if it lies below, and is not "
            "decided otherwise. *exact*: holds if all parts are right, does not hold if none is. The rule judges the "
            "direction; sizes stand in the column *here*."
        ),
        paragraph(
            "Made by `python -m graphcal.lab.paper` from the run files in this folder and "
            "src/graphcal/lab/paper/claims.toml; the command in the last column remakes the run files."
        ),
        grid_of_claims(runs),
        Heading(2, "In figures"),
        paragraph("\n".join(f"{number}. {line}" for number, line in enumerate(detail_lines(runs), 1))),
    ]
    return markdown(blocks)
