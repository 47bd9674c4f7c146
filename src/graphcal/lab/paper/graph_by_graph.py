"""SCAR against temperature scaling on the same network, graph by graph, by five measures.

Rows of one graph share test nodes, so a graph is the unit: the differences of its three label rates are averaged, with the
interval that the scatter over runs gives (`graphcal.lab.bench.equivalence`). It holds for these test nodes; what other nodes
would say is the business of the paired tests (`graphcal bench audit`).
"""

from __future__ import annotations

from graphcal.lab.bench.document import Grid, cells
from graphcal.lab.bench.equivalence import LEVEL, MeanDifference, Sample, combine, welch
from graphcal.lab.paper.run_files import RunFiles
from graphcal.metrics.names import metric_of

GRAPHS = ("cora", "citeseer", "pubmed")
MEASURES = {"ece": "ECE", "nll": "NLL", "brier": "Brier", "all_ece": "ECE, all nodes", "all_nll": "NLL, all nodes"}


def difference(runs: RunFiles, table: str, a: str, b: str, metric: str, graph: str, backbone: str) -> MeanDifference:
    """a minus b on one graph, its label rates together."""
    rows = runs.rows(table, a, b, dataset=graph, backbone=backbone)

    def sample(row: object, method: str) -> Sample:
        values = runs.at(table, row, method, metric)  # type: ignore[arg-type]
        return Sample(float(values.mean()), float(values.std(ddof=1)), len(values))

    return combine([welch(sample(row, a), sample(row, b)) for row in rows])


def grid_by_graph(runs: RunFiles) -> Grid:
    """SCAR with its published settings minus TS on the same recipe."""
    body = []
    for table, backbone in (("table-gcn", "gcn"), ("table-gat", "gat")):
        for graph in GRAPHS:
            line = [backbone, graph]
            for metric in MEASURES:
                found = difference(runs, table, "scar-paper", "scar-recipe-ts", metric, graph, backbone)
                digits = metric_of(metric.removeprefix("all_")).digits
                low, high = found.interval()
                mark = "" if found.p >= LEVEL else " ✓" if found.value < 0 else " ✗"
                line.append(f"{found.value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]{mark}")
            body.append(cells(line))
    return Grid(["network", "graph", *MEASURES.values()], body, range(2))
