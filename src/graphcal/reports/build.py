"""One self-contained page from plain results: no network, opens from disk, under a megabyte.

`build(results)` returns the HTML. The page's numbers are embedded as JSON; `page.js` draws from them, so that method and
binning can be switched where the page is read. Style and script are files beside this one, inlined when the page is made.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, select_autoescape

from graphcal.metrics.compare import holm
from graphcal.reports import verdict as words

METRICS = (
    ("accuracy", "Accuracy", "percent", "share of right predictions"),
    ("ece", "ECE", "percent", "expected calibration error: mean distance between confidence and accuracy"),
    ("ece_floor", "Floor", "percent", "the ECE a perfectly calibrated model would show on this many nodes"),
    ("ece_excess", "Excess", "percent", "ECE minus its floor: the part that calibration can repair"),
    ("nll", "NLL", "number", "mean negative log-probability of the true class"),
    ("brier", "Brier", "number", "mean squared distance between probabilities and the truth"),
    ("fit_seconds", "Fit", "seconds", "time to fit the calibrator"),
)


def source(name: str) -> str:
    return (files("graphcal.reports") / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    env = Environment(loader=FunctionLoader(source), autoescape=select_autoescape(default=True), trim_blocks=True)
    env.filters["percent"] = words.percent
    return env


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def finite(value: Any) -> Any:
    """The same structure with NaN and infinity as null, which JSON has."""
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def shown(value: float | None, kind: str) -> str:
    if value is None:
        return "–"
    seconds = f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
    return {"percent": f"{100 * value:.2f}", "number": f"{value:.4f}", "seconds": seconds}[kind]


def cell(method: dict[str, Any], metric: str, kind: str) -> dict[str, Any]:
    raw = method.get(metric)
    value = words.mean_of(method, metric)
    sd = raw.get("sd") if isinstance(raw, dict) else None
    return {"value": value, "text": shown(value, kind), "sd": None if sd is None else shown(float(sd), kind)}


def rows(methods: dict[str, Any], columns: list[tuple[str, str, str, str]]) -> list[dict[str, Any]]:
    """The method table: one row a method, numbers as text and as sortable values, and the small bar of its ECE."""
    widest = max((words.interval_of(m) or (0, 0))[1] for m in methods.values())
    scale = max([widest, *(words.mean_of(m, "ece") or 0 for m in methods.values()), 1e-9]) * 1.05
    table, change = [], changes(methods)
    for name, method in methods.items():
        ece, floor = words.mean_of(method, "ece"), words.mean_of(method, "ece_floor")
        pair = words.interval_of(method)
        table.append(
            {
                "name": name,
                "label": words.label(name),
                "note": method.get("note") or "",
                "change": change.get(name),
                "cells": [cell(method, key, kind) for key, _, kind, _ in columns],
                "bar": None
                if ece is None
                else {
                    "ece": 100 * ece / scale,
                    "floor": None if floor is None else 100 * floor / scale,
                    "interval": None if pair is None else [100 * p / scale for p in pair],
                    "text": f"ECE {words.percent(ece)}"
                    + ("" if floor is None else f", floor {words.percent(floor)}")
                    + (
                        ""
                        if pair is None
                        else f", true error between {words.points(pair[0])} and {words.percent(pair[1])}"
                    ),
                },
            }
        )
    return table


def changes(methods: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The paired difference of each method's ECE to the uncalibrated model, p-values corrected by Holm."""
    pairs = {k: ((m.get("measurement") or {}).get("against") or {}).get("ece") for k, m in methods.items()}
    known = {k: pair for k, pair in pairs.items() if pair}
    return {
        k: {
            "value": pair["difference"],
            "text": f"{100 * pair['difference']:+.1f}",
            "detail": f"[{100 * pair['low']:+.1f}, {100 * pair['high']:+.1f}] {words.p_text(p)}",
        }
        for (k, pair), p in zip(known.items(), holm([pair["p"] for pair in known.values()]))
    }


def facts(results: dict[str, Any]) -> list[tuple[str, str]]:
    """What was run: everything that is needed to run it again."""
    nodes, seeds = results.get("nodes") or {}, results.get("seeds") or []
    found = {
        "Data": results.get("dataset"),
        "Protocol": results.get("protocol"),
        "Backbone": results.get("backbone"),
        "Nodes": ", ".join(f"{n:,} {part}" for part, n in nodes.items()) if isinstance(nodes, dict) else nodes,
        "Seeds": f"{len(seeds)}: {', '.join(map(str, seeds))}" if isinstance(seeds, list) else seeds,
        "Binning": f"{results.get('bins', 20)} equal-width bins (lo, hi], 0 and 1 included",
        "Training": ", ".join(f"{k} {v}" for k, v in (results.get("training") or {}).items() if v is not None),
        "Versions": ", ".join(f"{k} {v}" for k, v in (results.get("versions") or {}).items()),
        "Command": results.get("command"),
    }
    return [(k, str(v)) for k, v in found.items() if v]


def build(results: dict[str, Any]) -> str:
    """The report page of a results dictionary (results.json) as one HTML document."""
    methods = results.get("methods")
    if not isinstance(methods, dict) or not methods:
        raise ValueError(
            "results has no methods: expected {'methods': {NAME: {METRIC: {'mean': ...}}}}, got keys "
            f"{sorted(map(str, results))}"
        )
    results = finite(results)
    methods = results["methods"]
    columns = [c for c in METRICS if any(words.mean_of(m, c[0]) is not None for m in methods.values())]
    drawn = {k: m["measurement"] for k, m in methods.items() if m.get("measurement")}
    before, best = words.before_name(methods), words.best_name(methods)
    name = " · ".join(str(results[k]) for k in ("dataset", "backbone") if results.get(k)) or "Calibration"
    return (
        environment()
        .get_template("template.html.j2")
        .render(
            title=name,
            verdict=words.verdict(results),
            sentence=results.get("sentence"),
            answers=words.answers(results),
            columns=columns,
            rows=rows(methods, columns),
            facts=facts(results),
            adjusted=len(changes(methods)),
            advice=[(words.label(k), m["advice"]) for k, m in drawn.items() if m.get("advice") and k in (before, best)],
            sliced=any(m.get("slices") for m in drawn.values()),
            changed=any(m.get("changed") for m in drawn.values()),
            before=before,
            best=best,
            labels={k: words.label(k) for k in methods},
            drawn=list(drawn),
            nodes=next((m["nodes"] for m in drawn.values()), None),
            binnings=list(next(iter(drawn.values()))["binnings"]) if drawn else [],
            chosen=next((m["bins"] for m in drawn.values()), None),
            css=source("page.css"),
            script=source("page.js"),
            data=embedded({"before": before, "labels": {k: words.label(k) for k in methods}, "methods": drawn}),
            version=results.get("graphcal"),
        )
    )


def write(results: dict[str, Any], path: str | Path) -> Path:
    """Write the page to `path` and return it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(build(results), encoding="utf-8")
    return path
