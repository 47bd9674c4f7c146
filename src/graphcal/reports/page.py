"""Combine results and show them: a report as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from graphcal.files import reading, write_atomically
from graphcal.records import read_results, results_file
from graphcal.reports.html import build
from graphcal.reports.wording import best_name, label, verdict


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
    with reading(", ".join(paths), "results that can be shown"):
        return ReportPage(build(combine(records)))
