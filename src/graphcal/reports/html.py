"""One self-contained page from plain results: no network, opens from disk, under a megabyte.

`build(results)` returns the HTML. The page's numbers are embedded as JSON; `page.js` draws from them, so that method and
binning can be switched where the page is read; `decisions.js` moves the error target, `map.js` draws the probability map.
Style and scripts are files beside this one, inlined as one block each when the page is made. A content security policy allows
them by the SHA-256 of their text, so that a script that gets into the page in any other way does not run.

`report` combines results first, and returns the page as a value.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, select_autoescape

from graphcal.files import file_errors, write_atomically
from graphcal.metrics.comparison import holm
from graphcal.metrics.floor import LabelLimit
from graphcal.metrics.names import METRICS, Metric
from graphcal.records import checked, read_results, results_file
from graphcal.reports import wording
from graphcal.reports.wording import best_name, label, verdict

CHARSET = '<meta charset="utf-8">'


def with_policy(page: str) -> str:
    """The page with its policy in the head, after the character set.

    >>> page = '<html><head><meta charset="utf-8"></head><body><script>draw()</script></body></html>'
    >>> "script-src 'sha256-" in with_policy(page)
    True
    """
    if CHARSET not in page:
        raise ValueError(f"a page needs {CHARSET} in its head, where the policy belongs")
    rules = [
        "default-src 'none'",
        f"script-src {_sources(page, 'script')}",
        f"style-src {_sources(page, 'style')}",
        "style-src-attr 'unsafe-inline'",  # the length of a bar
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    meta = f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(rules)}">'
    return page.replace(CHARSET, f"{CHARSET}\n{meta}", 1)


def _sources(page: str, tag: str) -> str:
    """The texts of all elements of that name, as hashes; 'none' without any."""
    texts = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page, flags=re.DOTALL)
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in dict.fromkeys(texts))
    return " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"


TABLE_METRICS = ("accuracy", "nll", "ece", "ece_floor", "true_error", "brier", "coverage_at_5", "worst_slice")
CHANGED = 5  # nodes that changed most
SCRIPTS = ("page.js", "decisions.js", "map.js")
DRAWN = ("binnings", "histogram", "slices")  # what the script needs of a method as it is


def source(name: str) -> str:
    return (files("graphcal.reports") / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    env = Environment(loader=FunctionLoader(source), autoescape=select_autoescape(default=True), trim_blocks=True)
    return env


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def cell(method: dict[str, Any], metric: Metric) -> dict[str, Any]:
    """Mean and sd of one metric, as text and as a sortable value."""
    raw, value = method.get(metric.key), wording.mean_of(method, metric.key)
    sd = (
        raw.get("sd") if isinstance(raw, dict) and len(raw.get("values", (0, 0))) > 1 else None
    )  # of one run there is none
    return {"value": value, "text": metric.text(value), "sd": None if sd is None else metric.text(float(sd))}


def bar(method: dict[str, Any], scale: float) -> dict[str, Any] | None:
    """The small bar of a method's ECE with floor and interval, in per cent of ``scale``; None without an ECE."""
    ece, floor, pair = (
        wording.mean_of(method, "ece"),
        wording.mean_of(method, "ece_floor"),
        wording.error_interval(method),
    )
    if ece is None:
        return None
    text = [f"ECE {wording.percent(ece)}"]
    if floor is not None:
        text.append(f"floor {wording.percent(floor)}")
    if pair is not None:
        text.append(f"true error between {wording.points(pair[0])} and {wording.percent(pair[1])}")
    return {
        "ece": 100 * ece / scale,
        "floor": None if floor is None else 100 * floor / scale,
        "interval": None if pair is None else [100 * end / scale for end in pair],
        "text": ", ".join(text),
    }


def rows(methods: wording.Methods, columns: list[Metric]) -> list[dict[str, Any]]:
    """The method table, a row per method."""
    widest = max((wording.error_interval(m) or (0, 0))[1] for m in methods.values())
    scale = max([widest, *(wording.mean_of(m, "ece") or 0 for m in methods.values()), 1e-9]) * 1.05
    change = changes(methods)
    return [
        {
            "name": name,
            "label": wording.label(name, method),
            "note": method.get("note") or "",
            "change": change.get(name),
            "cells": [cell(method, metric) for metric in columns],
            "bar": bar(method, scale),
        }
        for name, method in methods.items()
    ]


def unbroken(text: str) -> str:
    return text.replace(" ", "\u00a0")


def changes(methods: wording.Methods) -> dict[str, dict[str, Any]]:
    """The paired difference of each method's ECE to the uncalibrated model, p-values corrected by Holm."""
    pairs = {k: m["against"]["ece"] for k, m in methods.items() if m.get("against")}
    return {
        k: {
            "value": pair["difference"],
            "text": f"{100 * pair['difference']:+.1f}",
            "detail": f"[{100 * pair['low']:+.1f},\u00a0{100 * pair['high']:+.1f}] {unbroken(wording.p_text(p))}",
        }
        for (k, pair), p in zip(pairs.items(), holm([pair["p"] for pair in pairs.values()]))
    }


def advices(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Advice for the uncalibrated model and for the selected method."""
    methods, lines = results["methods"], []
    for name in dict.fromkeys((wording.before_name(methods), wording.best_name(results))):
        method = methods[name]
        interval = wording.error_interval(method)
        if method.get("limit") and interval is not None:
            limit = LabelLimit(**{field.name: method["limit"][field.name] for field in fields(LabelLimit)})
            lines.append((wording.label(name, method), wording.advice(limit, interval)))
    return lines


def chart_data(method: dict[str, Any], training: bool, unit: str) -> dict[str, Any]:
    """Data of one method for the page's script, positions and groups in words."""
    changed = [{**node, "why": wording.place_text(node, training)} for node in (method.get("changed") or [])[:CHANGED]]
    worst = wording.slice_text(method["worst"], unit) if method.get("worst") else None
    return {**{key: method[key] for key in DRAWN if method.get(key)}, "worst": worst, "changed": changed}


def setting_text(value: Any) -> str:
    """A setting as text; one that has settings of its own by its name and them."""
    if not isinstance(value, dict):
        return str(value)
    return " ".join([str(value.get("name", "")), *(f"{k}={v}" for k, v in value.items() if k != "name")]).strip()


def run_facts(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Facts of the run: everything that is needed to run it again."""
    nodes, seeds = results.get("nodes") or {}, results.get("seeds") or []
    of_a_table = results.get("input") == "table"  # no model was trained
    facts = {
        "Data": results.get("dataset"),
        "Split" if of_a_table else "Protocol": results.get("protocol"),
        "Backbone": results.get("backbone"),
        "Rows" if of_a_table else "Nodes": ", ".join(f"{n:,} {part}" for part, n in nodes.items())
        if isinstance(nodes, dict)
        else nodes,
        "Seeds": None
        if of_a_table
        else f"{len(seeds)}: {', '.join(map(str, seeds))}"
        if isinstance(seeds, list)
        else seeds,
        "Binning": f"{results.get('bins', 20)} equal-width bins (lo, hi], 0 and 1 included",
        "Training": ", ".join(
            f"{k} {setting_text(v)}" for k, v in (results.get("training") or {}).items() if v is not None
        ),
        "Versions": ", ".join(f"{k} {v}" for k, v in (results.get("versions") or {}).items()),
        "Command": results.get("command"),
    }
    return [(k, str(v)) for k, v in facts.items() if v]


def decisions_of(results: dict[str, Any]) -> dict[str, Any] | None:
    """Data of the section on decisions; None where no method has a backtest.

    The slider starts at the smallest error target that decides something.
    """
    trials = {k: m["decision"] for k, m in results["methods"].items() if m.get("decision")}
    if not trials:
        return None
    best = wording.best_name(results)
    name = best if best in trials else next(iter(trials))
    curve, unit = trials[name]["curve"], f"{wording.unit_of(results)}s"
    at = next((k for k, count in enumerate(curve["decided"]) if count), len(curve["targets"]) - 1)
    decided, total = curve["decided"][at], curve["total"]
    return {
        "methods": {k: {"curve": trial["curve"]} for k, trial in trials.items()},
        "method": name,
        "unit": unit,
        "steps": len(curve["targets"]) - 1,
        "at": at,
        "shown": {
            "target": f"{100 * curve['targets'][at]:g} %",
            "any": decided > 0,
            "approved": f"{decided:,}",
            "nodes": f"{total:,}",
            "width": f"{300 * decided / total:.1f}",
            "sentence": wording.backtest_text(results, name),
        },
    }


def build(results: dict[str, Any]) -> str:
    """The report page of a results dictionary (results.json) as one HTML document."""
    methods = results.get("methods")
    if not isinstance(methods, dict) or not methods:
        raise ValueError(
            "results has no methods: expected {'methods': {NAME: {METRIC: {'mean': ...}}}}, got keys "
            f"{sorted(map(str, results))}"
        )
    results = checked(results, "results")
    methods = results["methods"]
    columns = [
        METRICS[key] for key in TABLE_METRICS if any(wording.mean_of(m, key) is not None for m in methods.values())
    ]
    nodes, seeds = results.get("nodes"), results.get("seeds")
    training = bool(nodes.get("train", True)) if isinstance(nodes, dict) else True
    pictures = {k: chart_data(m, training, wording.unit_of(results)) for k, m in methods.items() if m.get("binnings")}
    labels = {k: wording.label(k, m) for k, m in methods.items()}
    before = wording.before_name(methods)
    first = methods[next(iter(pictures))] if pictures else {}
    decisions, node_map = decisions_of(results), results.get("map")
    one_run = isinstance(seeds, list) and len(seeds) == 1
    shown = {
        "oneRun": one_run,
        "unit": wording.unit_of(results),
        "before": before,
        "labels": labels,
        "methods": pictures,
    }
    shown |= {"decisions": {key: decisions[key] for key in ("methods", "unit")}} if decisions else {}
    shown |= {"map": node_map} if node_map else {}
    name = " · ".join(str(results[k]) for k in ("dataset", "backbone") if results.get(k))
    return with_policy(
        environment()
        .get_template("template.html.j2")
        .render(
            title=name or "Calibration",
            one_run=one_run,
            verdict=results.get("verdict") or wording.verdict(results),
            note="" if results.get("combined") else wording.choice_note(results),
            unit=wording.unit_of(results),
            columns=columns,
            rows=rows(methods, columns),
            facts=run_facts(results),
            adjusted=len(changes(methods)),
            advice=advices(results),
            counts=results.get("counts") or [],
            sliced=any(m.get("slices") for m in pictures.values()),
            changed=any(m.get("changed") for m in pictures.values()),
            before=before,
            best=wording.best_name(results),
            labels=labels,
            drawn=list(pictures),
            binnings=list(first.get("binnings", [])),
            selected_bins=first.get("bins"),
            css=source("page.css"),
            decisions=decisions,
            map=node_map,
            script="\n".join(source(name) for name in SCRIPTS),
            data=embedded(shown),
            version=results.get("graphcal"),
        )
    )


@dataclass(frozen=True)
class ReportPage:
    """A page that a notebook shows and `write` saves."""

    html: str

    def write(self, path: str | Path) -> Path:
        return write_atomically(path, self.html)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:60rem;border:0" title="graphcal report"></iframe>'


def run_name(results: Mapping[str, Any]) -> str:
    return " ".join(str(results[k]) for k in ("dataset", "backbone") if results.get(k)) or "results"


def combine(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One record from several. Runs of the same model on the same data share one table; others are named apart."""
    first = several[0]
    if len(several) == 1:
        return first
    same = all(all(r.get(k) == first.get(k) for k in ("dataset", "backbone", "protocol", "seeds")) for r in several)
    if same:
        methods = {k: m for r in reversed(several) for k, m in r["methods"].items()}
        order = list(dict.fromkeys(k for r in several for k in r["methods"]))
        return {**first, "methods": {k: methods[k] for k in order}, "verdict": None}
    names = [run_name(r) for r in several]
    names = [n if names.count(n) == 1 else f"{n} #{i + 1}" for i, n in enumerate(names)]
    methods = {
        f"{n}: {k}": {**m, "title": f"{n}: {label(k, m)}"}
        for n, r in zip(names, several)
        for k, m in r["methods"].items()
    }
    return {
        "combined": len(several),
        "verdict": " ".join(f"{n}: {r.get('verdict') or verdict(r)}" for n, r in zip(names, several)),
        "graphcal": first.get("graphcal"),
        "dataset": ", ".join(names),
        "bins": first.get("bins"),
        "versions": first.get("versions"),
        "command": "; ".join(str(r["command"]) for r in several if r.get("command")),
        "methods": methods,
        "chosen_method": f"{names[0]}: {best_name(first)}",
    }


def report(*results: Any) -> ReportPage:
    """Make a self-contained HTML page from results.

    Parameters
    ----------
    *results : dict, path or results of `graphcal.lab.run`
        One or more; a path leads to results.json or its folder.

    Returns
    -------
    ReportPage
        ``write(path)`` saves it; a notebook cell shows it.

    Examples
    --------
    >>> import graphcal
    >>> out = graphcal.example()
    >>> data = out.graph
    >>> measured = graphcal.evaluate(out.logits.log_softmax(-1), data.y, data.test_mask).to_dict()
    >>> page = graphcal.report({"dataset": "mine", "methods": {"none": measured}})  # a notebook cell shows it
    >>> page.html[:15], "under-confident" in page.html  # page.write("report.html") saves it
    ('<!doctype html>', True)
    """
    if not results:
        raise ValueError(
            "report needs at least one results record: a dictionary, a path, or what graphcal.lab.run returned"
        )
    records = [r if isinstance(r, dict) else r.record if hasattr(r, "record") else read_results(r) for r in results]
    paths = [str(results_file(r)) for r in results if isinstance(r, str | Path)]
    if not paths:
        return ReportPage(build(combine(records)))
    with file_errors(", ".join(paths), "results that can be shown"):
        return ReportPage(build(combine(records)))
