"""Write a model card in Markdown from results.json: training, calibration error, and the backtest of decisions.

It starts with the YAML block that Hugging Face reads (``model-index``: https://huggingface.co/docs/hub/model-cards), so the file
can be the README.md of a model repository. Values are JSON, which YAML contains.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphcal.files import file_errors
from graphcal.metrics.names import METRICS
from graphcal.records import checked, read_results, results_file
from graphcal.reports import wording

INDEXED = ("accuracy", "ece", "nll", "brier")
SHOWN = ("accuracy", "ece", "ece_floor", "nll", "brier")


def model_card(results: dict[str, Any] | str | Path) -> str:
    """Return the card of one record, or of the results.json at a path."""
    if isinstance(results, dict):
        return _card(checked(results, "results"))
    path = results_file(results)
    record = read_results(path)
    with file_errors(path, "results of which a model card can be made"):
        return _card(record)


def _card(results: dict[str, Any]) -> str:
    methods, best = results["methods"], wording.best_name(results)
    name = f"{results.get('backbone') or 'predictions'} on {results.get('dataset', 'your graph')}"
    title = f"{name}, {wording.label(best, methods[best])}"
    return "\n".join(
        [
            front_matter(results, title, methods[best]),
            f"# {title}\n",
            str(results.get("verdict") or wording.verdict(results)) + "\n",
            *decision_section(results),
            "## Measured\n",
            table(methods),
            *run_section(results),
        ]
    )


def front_matter(results: dict[str, Any], title: str, method: dict[str, Any]) -> str:
    """The YAML block: one task, one dataset, its metrics as fractions."""
    metrics = [
        {"type": key, "name": METRICS[key].title, "value": round(value, 5)}
        for key in INDEXED
        if (value := wording.mean_of(method, key)) is not None
    ]
    dataset = str(results.get("dataset", "your graph"))
    split = {"args": {"protocol": results["protocol"]}} if results.get("protocol") else {}
    result = {
        "task": {"type": "graph-ml", "name": "Node classification"},
        "dataset": {"name": dataset, "type": dataset, "split": "test", **split},
        "metrics": metrics,
    }
    lines = [
        "---",
        "library_name: graphcal",
        'tags: ["graph-ml", "node-classification", "calibration"]',
        "model-index:",
    ]
    lines += [f"- name: {json.dumps(title)}", "  results:", f"  - {json.dumps(result)}", "---\n"]
    return "\n".join(lines)


def decision_section(results: dict[str, Any]) -> list[str]:
    sentence = wording.backtest_sentence(results)
    return [] if sentence is None else ["## Backtest of automatic decisions\n", f"{sentence}\n"]


def table(methods: wording.Methods) -> str:
    columns = [METRICS[key] for key in SHOWN if any(wording.mean_of(m, key) is not None for m in methods.values())]
    lines = ["| method | " + " | ".join(metric.heading for metric in columns) + " |", "|---" * (1 + len(columns)) + "|"]
    for name, method in methods.items():
        cells = (metric.text(wording.mean_of(method, metric.key)) for metric in columns)
        lines.append(f"| {wording.label(name, method)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def run_section(results: dict[str, Any]) -> list[str]:
    nodes, seeds = results.get("nodes") or {}, results.get("seeds") or []
    facts = [", ".join(f"{count:,} {part}" for part, count in nodes.items()) + " nodes"] if nodes else []
    of_runs = f"means over {len(seeds)} seeds" if len(seeds) > 1 else "one run"
    facts += [f"{of_runs}, {results.get('bins', 20)} bins"] if seeds else []
    facts += [f"`{results['command']}`"] if results.get("command") else []
    facts += [f"graphcal {results['graphcal']}"] if results.get("graphcal") else []
    limits = (
        "Calibration and decisions hold for nodes like the test nodes. New data may differ: `graphcal watch` compares it with "
        "what was seen here."
    )
    return ["## How it was measured\n", *(f"- {fact}" for fact in facts), "", "## Limits\n", limits, ""]
