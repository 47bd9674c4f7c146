"""The page's section of decisions: which nodes may be decided at the error target that a slider moves."""

from __future__ import annotations

from typing import Any

TARGET = 0.05  # where the slider starts


def decisions_of(results: dict[str, Any]) -> dict[str, Any] | None:
    """What the section shows and its script draws; None where no method has a decision."""
    found = {k: m["decision"] for k, m in results["methods"].items() if m.get("decision")}
    if not found:
        return None
    said = results.get("decision") or {}
    chosen = said.get("method") if said.get("method") in found else next(reversed(found))
    own = found[chosen]
    at = min(range(len(own["curve"]["targets"])), key=lambda k: abs(own["curve"]["targets"][k] - TARGET))
    decided, total = own["curve"]["decided"][at], own["curve"]["total"]
    return {
        "methods": {k: {"curve": d["curve"]} for k, d in found.items()},
        "chosen": chosen,
        "steps": len(own["curve"]["targets"]) - 1,
        "at": at,
        "said": {
            "target": f"{100 * own['curve']['targets'][at]:g} %",
            "any": decided > 0,
            "approved": f"{decided:,}",
            "nodes": f"{total:,}",
            "width": f"{300 * decided / total:.1f}",
            "sentence": own["sentence"],
        },
        "note": note_on(own),
    }


def note_on(decision: dict[str, Any]) -> str:
    """What the decision stands on, and how it turned out where that is known."""
    text = f"{decision['labels']:,} certification nodes carry the promise."
    if decision.get("seed") is not None:
        text = (
            f"{decision['labels']:,} of the test nodes, drawn at random with seed {decision['seed']}, carry the promise; the "
            "others are decided."
        )
    if decision.get("errors") is None or not decision["approved"]:
        return text
    share = f"{100 * decision['max_error']:g} %"
    return f"{text} At {share}, {decision['errors']:,} of the {decision['approved']:,} decided nodes are in fact wrong."
