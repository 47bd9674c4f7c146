"""Answer whether SCAR reproduces and is better: five sentences and six numbers, from the committed run files.

results/README.md and docs/reproduction.md hold them between <!-- answer --> and <!-- /answer -->, the second also SCAR against
TS by graph between <!-- graphs --> and <!-- /graphs -->. `python -m graphcal.lab.paper` writes them.

Rows of one graph share test nodes, so a graph is the unit: the differences of its three label rates are averaged, with the
interval that the scatter over runs gives (`graphcal.lab.bench.comparisons`). It holds for these test nodes; what other nodes
would say is the business of the paired tests (`graphcal bench audit`).
"""

from __future__ import annotations

from pathlib import Path

from graphcal.lab.bench.comparisons import LEVEL, MeanDifference, Sample, bias, combine, welch
from graphcal.lab.bench.document import Grid, cells, markdown
from graphcal.lab.paper.agreement import distinct, read_cells
from graphcal.lab.paper.claims import count_verdicts
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
                summary = difference(runs, table, "scar-paper", "scar-recipe-ts", metric, graph, backbone)
                digits = metric_of(metric.removeprefix("all_")).digits
                low, high = summary.interval()
                mark = "" if summary.p >= LEVEL else " ✓" if summary.value < 0 else " ✗"
                line.append(f"{summary.value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]{mark}")
            body.append(cells(line))
    return Grid(["network", "graph", *MEASURES.values()], body, range(2))


def answer(folder: Path) -> str:
    """Five sentences and six numbers, in Markdown."""
    runs = RunFiles(folder)
    scar = [
        entry.compared
        for entry in distinct(read_cells(folder))
        if entry.where in ("table-gcn", "table-gat") and entry.compared.method == "scar-paper"
    ]
    above = bias([cell.gap.value for cell in scar])
    equivalent = [cell.verdict for cell in scar].count("equivalent")
    lower = [graph.capitalize() for graph in GRAPHS if all(_lower(runs, t, graph, net) for t, net in SAME_NETWORK)]
    lost = [
        float(runs.gaps(table, "scar-recipe", "scar-paper", "accuracy", backbone=net).mean())
        for table, net in SAME_NETWORK
    ]
    sentences = [
        f"SCAR's published ECEs nearly reproduce: {equivalent} of {len(scar)} are equivalent within one point, but "
        f"{above.above} lie above the published value, by {above.mean:.2f} on average.",
        "On the same network its ECE is below that of temperature scaling (TS) on average, significantly on "
        f"{' and '.join(lower)} only.",
        "Its NLL and Brier score are worse than those of TS, and it costs "
        f"{min(lost):.1f} to {max(lost):.1f} points of accuracy.",
        f"Of the paper's claims {count_verdicts(runs)}.",
        "Use TS, fitted exactly; with edges and some hundred validation labels use graph-scaling, which is ours and "
        "judged elsewhere.",
    ]
    metrics = {"ece": 2, "nll": 3, "accuracy": 1}
    body = [
        cells(
            [title, *(f"{runs.means('table-gcn', m, metric).mean():.{digits}f}" for metric, digits in metrics.items())]
        )
        for title, m in (("SCAR, published settings", "scar-paper"), ("TS", "scar-recipe-ts"))
    ]
    grid = Grid(["nine rows of Table 1, SCAR's recipe", *(metric_of(metric).heading for metric in metrics)], body)
    return "\n".join(sentences) + "\n\n" + markdown([grid]).rstrip("\n")


SAME_NETWORK = (("table-gcn", "gcn"), ("table-gat", "gat"))


def _lower(runs: RunFiles, table: str, graph: str, net: str) -> bool:
    """Is the ECE of SCAR significantly below that of TS on a graph?"""
    gap = difference(runs, table, "scar-paper", "scar-recipe-ts", "ece", graph, net)
    return gap.p < LEVEL and gap.value < 0


def fill(text: str, name: str, content: str, where: Path) -> str:
    """The text with what stands between <!-- name --> and <!-- /name --> replaced."""
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, opened, rest = text.partition(opening)
    _, ended, after = rest.partition(closing)
    if not opened or not ended:
        raise ValueError(f"{where} has no place for the {name}: {opening} ... {closing}")
    return f"{before}{opening}\n\n{content}\n\n{closing}{after}"


def filled(path: Path, folder: Path) -> str:
    """A page with what the run files say."""
    text = fill(path.read_text(encoding="utf-8"), "answer", answer(folder), path)
    if "<!-- graphs -->" in text:
        text = fill(text, "graphs", markdown([grid_by_graph(RunFiles(folder))]).rstrip("\n"), path)
    return text
