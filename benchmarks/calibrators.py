"""Time fitting and applying every calibrator on the same trained models, in one run.

    python benchmarks/calibrators.py                     # cora and pubmed, a table
    python benchmarks/calibrators.py --json              # rows with graph, calibrator, fit_s, apply_s
    python benchmarks/calibrators.py --graphs citeseer --calibrators ts,scar,cagcn,gats

A GCN with CaGCN's recipe is trained once for each graph and seed. Facts of the graph that calibrators share (normalised
adjacency, hop distances) are computed before the clock starts, as they are once a graph. A time is the median over seeds of
the best of several repetitions: one where a fit takes seconds, five where it takes milliseconds.
"""

from __future__ import annotations

import json as json_format
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import typer


def main(
    graphs: str = typer.Option("cora,pubmed", help="Graphs, separated by commas (cora and others need GRAPHCAL_DATA)."),
    calibrators: str = typer.Option("", help="Calibrators, separated by commas; default: all."),
    seeds: int = typer.Option(1, min=1, help="Models for each graph."),
    json: bool = typer.Option(False, "--json", help="Print the rows as JSON."),
) -> None:
    """Seconds to fit and to apply each calibrator."""
    from graphcal.methods import CALIBRATORS

    names = [name.strip() for name in calibrators.split(",") if name.strip()] or list(CALIBRATORS)
    unknown = [name for name in names if name not in CALIBRATORS]
    if unknown:
        raise typer.BadParameter(f"unknown calibrator {unknown[0]!r}; choose from {', '.join(CALIBRATORS)}")
    rows = [row for graph in graphs.split(",") for row in measured(graph.strip(), names, seeds)]
    print(json_format.dumps(rows, indent=2)) if json else show(rows)


def measured(name: str, calibrators: list[str], seeds: int) -> list[dict[str, Any]]:
    """One row for each calibrator on one graph."""
    import graphcal
    from graphcal.methods import CALIBRATORS

    data = graphcal.lab.load(name)
    print(f"training {seeds} GCN on {name} ...", file=sys.stderr)
    outputs = [run.outputs for run in graphcal.lab.train(data, seeds=range(seeds))]
    facts = graphcal.structure(data)
    _ = facts.adjacency, facts.hops, facts.next_to_training, facts.degree, facts.neighbours
    rows = []
    for calibrator in calibrators:
        print(f"  {calibrator} ...", file=sys.stderr)
        recipe = CALIBRATORS[calibrator]()
        fit_s, apply_s = [], []
        for out in outputs:
            seconds, fitted = best_of(lambda out=out, recipe=recipe: recipe.fit(out, on=data.val_mask))
            fit_s.append(seconds)
            apply_s.append(best_of(lambda out=out, fitted=fitted: fitted(out))[0])
        rows.append(
            {
                "graph": name,
                "calibrator": calibrator,
                "fit_s": statistics.median(fit_s),
                "apply_s": statistics.median(apply_s),
            }
        )
    return rows


def best_of(action: Callable[[], Any], repeats: int = 5, budget: float = 0.5) -> tuple[float, Any]:
    """Seconds of the fastest of up to ``repeats`` calls, as long as they fit in ``budget`` seconds; and its result."""
    best, spent, result = float("inf"), 0.0, None
    for _ in range(repeats):
        start = time.perf_counter()
        result = action()
        taken = time.perf_counter() - start
        best, spent = min(best, taken), spent + taken
        if spent > budget:
            break
    return best, result


def show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for heading in ("graph", "calibrator", "fit", "apply", "fit, in units of scar"):
        table.add_column(heading, justify="left" if heading in ("graph", "calibrator") else "right")
    scar = {row["graph"]: row["fit_s"] for row in rows if row["calibrator"] == "scar"}
    for row in rows:
        unit = f"{row['fit_s'] / scar[row['graph']]:,.2f}" if row["graph"] in scar else ""
        fit, apply = (f"{1000 * row[key]:,.2f} ms" for key in ("fit_s", "apply_s"))
        table.add_row(row["graph"], row["calibrator"], fit, apply, unit)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
