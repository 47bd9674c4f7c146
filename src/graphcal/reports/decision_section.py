"""The page's section of decisions: a backtest on labelled test nodes, at the error target that a slider moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcal.decisions.rehearsal import rehearsal_sentence
from graphcal.reports import wording
from graphcal.reports.records import TABLE

TARGET = 0.05  # where the slider starts


def unit_of(results: Mapping[str, Any]) -> str:
    return "rows" if results.get("backbone") == TABLE else "nodes"


def backtest_sentence(results: Mapping[str, Any]) -> str | None:
    """Return the backtest of the chosen method in words; None where it has none."""
    chosen = wording.best_name(results)
    method, seeds = results["methods"][chosen], results.get("seeds") or []
    if not method.get("decision"):
        return None
    title = wording.label(chosen, method) + (", first seed" if len(seeds) > 1 else "")
    return rehearsal_sentence(title, method["decision"], unit_of(results))


def decisions_of(results: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the section shows and its script draws; None where no method has a decision."""
    decisions = {k: m["decision"] for k, m in results["methods"].items() if m.get("decision")}
    if not decisions:
        return None
    best = wording.best_name(results)
    chosen = best if best in decisions else next(iter(decisions))
    curve, unit = decisions[chosen]["curve"], unit_of(results)
    at = min(range(len(curve["targets"])), key=lambda k: abs(curve["targets"][k] - TARGET))
    decided, total = curve["decided"][at], curve["total"]
    return {
        "methods": {k: {"curve": d["curve"]} for k, d in decisions.items()},
        "chosen": chosen,
        "unit": unit,
        "steps": len(curve["targets"]) - 1,
        "at": at,
        "said": {
            "target": f"{100 * curve['targets'][at]:g} %",
            "any": decided > 0,
            "approved": f"{decided:,}",
            "nodes": f"{total:,}",
            "width": f"{300 * decided / total:.1f}",
            "sentence": rehearsal_sentence(wording.label(chosen, results["methods"][chosen]), decisions[chosen], unit),
        },
    }
