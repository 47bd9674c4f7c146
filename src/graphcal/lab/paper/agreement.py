"""Compare our tables with the published ones. Reads results/*.csv, writes results/agreement.md.

Every published number counts once. The paper's GAT numbers stand beside two networks in our tables, and its ablation repeats
rows of its main tables (twice with another value; the main table counts): such an entry is judged on the cell that stands for it
(`PublishedEntry.chosen`), and how many agree in all of their cells, or in at least one, is said beside. A cell is
`equivalent`, `differs` or `open` (`graphcal.lab.bench.comparisons`): both sides measured the same test nodes on citation graphs,
so the scatter over runs is all there is. The paper's ± is taken for the standard deviation of ten runs, as it says.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from graphcal.files import read_toml
from graphcal.lab.bench.comparisons import LEVEL, MARGIN, MeanDifference, Sample, bias, combine, welch
from graphcal.lab.bench.document import Block, Grid, Heading, cells, markdown, paragraph
from graphcal.lab.bench.presets import read_preset, rows_of
from graphcal.metrics.comparison import holm

NARROW = 0.5  # points
PAPER_RUNS = 10
GRAPHS = ("cora", "citeseer", "pubmed")
COLUMNS = {"scar-paper": "scar", "scar-val": "scar", "scar-fit": "scar", "scar-clc": "clc", "scar-nlc": "nlc"}
TITLES = {"uncal": "Uncal.", "ts": "TS", "ms": "MS", "cagcn": "CaGCN", "gats": "GATS", "au-ls": "AU-LS", "dcgc": "DCGC",
          "scar": "SCAR", "clc": "+CLC", "nlc": "+NLC"}  # fmt: skip

ORDER = ("table-gcn", "table-gat", "table-ablation", "table-accuracy", "table-hetero", "table-backbones")  # as printed

Key = tuple[str, ...]  # graph, labels, backbone, metric, column, in the paper's words


@dataclass(frozen=True)
class Compared:
    """A cell of one of our tables that has a published value beside it."""

    table: str
    metric: str
    dataset: str
    labels_per_class: str  # empty where the table does not vary it
    backbone: str
    method: str
    title: str
    ours: Sample
    published: Sample
    printed: tuple[str, str]

    @property
    def gap(self) -> MeanDifference:
        """Ours minus published."""
        return welch(self.ours, self.published)

    @property
    def verdict(self) -> str:
        return self.gap.verdict(MARGIN)

    @property
    def within_deviations(self) -> bool:
        """The rule of version 0.1: not further apart than both standard deviations together."""
        return abs(self.gap.value) <= self.ours.sd + self.published.sd

    @property
    def column(self) -> str:
        return COLUMNS.get(self.method, self.method)

    @property
    def key(self) -> Key:
        axis_values = (self.dataset, self.labels_per_class or "20", self.backbone.removesuffix("-cagcn"))
        return (*axis_values, self.metric, self.column)


@dataclass(frozen=True)
class PublishedEntry:
    """A published number, and the cells of ours beside it."""

    cells: tuple[Compared, ...]

    @property
    def compared(self) -> Compared:
        """The network behind the published rows (gat-cagcn, where both are called GAT), in the table printed first."""
        return min(self.cells, key=lambda cell: (not cell.backbone.endswith("-cagcn"), ORDER.index(cell.table)))

    @property
    def where(self) -> str:
        """The paper's table."""
        return self.compared.table


def read_cells(folder: Path) -> list[Compared]:
    """Every cell of the paper's six tables that has both our value and a published one."""
    compared = []
    for path in sorted(path for name in ORDER if (path := folder / f"{name}.csv").exists()):
        metric = read_preset(path.stem).metric
        with path.open(encoding="utf-8") as file:
            lines = [line for line in csv.DictReader(file) if line["published_mean"] and int(line["runs"]) > 1]
        compared += [_compared(path.stem, metric, line) for line in lines]
    return compared


def _compared(table: str, metric: str, line: dict[str, str]) -> Compared:
    ours = Sample(float(line[f"{metric}_mean"]), float(line[f"{metric}_sd"]), int(line["runs"]))
    printed = line["published_mean"], line["published_sd"]
    axis_values = line["dataset"], line.get("labels_per_class", ""), line.get("backbone", "")
    published = Sample(float(printed[0]), float(printed[1]), PAPER_RUNS)
    return Compared(table, metric, *axis_values, line["method"], line["title"], ours, published, printed)


def distinct(compared: Iterable[Compared]) -> list[PublishedEntry]:
    """Each published number once, in the order of the paper's tables and columns."""
    groups: dict[Key, list[Compared]] = {}
    for cell in compared:
        groups.setdefault(cell.key, []).append(cell)
    entries = [PublishedEntry(tuple(group)) for group in groups.values()]
    columns = list(TITLES)
    return sorted(entries, key=lambda entry: (ORDER.index(entry.where), columns.index(entry.compared.column)))


def count_published() -> int:
    """Distinct numbers in the paper's six tables."""
    with resources.as_file(resources.files("graphcal.lab.paper") / "published.toml") as path:
        tables = read_toml(path)
    keys = set()
    for table, axes in tables["axes"].items():
        backbone = table if table in ("gcn", "gat") else ""
        for axis_values, row in rows_of(tables[table], len(axes)):
            at = dict(zip(axes, axis_values))
            what = "accuracy" if table == "accuracy" else "ece"
            name = (at["dataset"], at.get("labels_per_class", 20), at.get("backbone", backbone), what)
            keys |= {(*name, column) for column in row}
    return len(keys)


def tally(entries: Sequence[PublishedEntry]) -> Counter[str]:
    """Counts of entries that are equivalent, differ, or are open; and by stricter, looser and older rules."""
    compared = [entry.compared for entry in entries]
    count = Counter(cell.verdict for cell in compared)
    count["narrow"] = sum(cell.gap.verdict(NARROW) == "equivalent" for cell in compared)
    count["welch"] = sum(cell.gap.p >= LEVEL for cell in compared)
    count["deviations"] = sum(cell.within_deviations for cell in compared)
    count["all"] = sum(all(cell.verdict == "equivalent" for cell in entry.cells) for entry in entries)
    count["any"] = sum(any(cell.verdict == "equivalent" for cell in entry.cells) for entry in entries)
    count["holm"] = sum(p < LEVEL for p in holm([cell.gap.p for cell in compared]))
    return count


# --------------------------------------------------------------------------------------------------------------- printing


def by_method(entries: Sequence[PublishedEntry]) -> Grid:
    """Counts, bias with its interval, and the sign test, for every column of every table of the paper."""
    groups: dict[tuple[str, str], list[Compared]] = {}
    for entry in entries:
        groups.setdefault((entry.where, entry.compared.column), []).append(entry.compared)
    body = []
    for (table, column), group in groups.items():
        verdicts, summary = Counter(cell.verdict for cell in group), bias([cell.gap.value for cell in group])
        interval = f"{summary.mean:+.2f} [{summary.low:+.2f}, {summary.high:+.2f}]"
        counts = [str(len(group)), *(str(verdicts[name]) for name in ("equivalent", "open", "differs"))]
        body.append(cells([table, TITLES[column], *counts, interval, f"{summary.above}", f"{summary.p_sign:.2g}"]))
    header = ["table", "method", "entries", "equivalent", "open", "differ", "bias [95 %]", "above", "sign test p"]
    return Grid(header, body, range(2))


def by_graph(entries: Sequence[PublishedEntry], table: str) -> Grid:
    """Ours minus published for each method and graph: the rows of a graph together, with the 95 % interval."""
    groups: dict[str, dict[str, list[MeanDifference]]] = {}
    for entry in entries:
        if entry.where == table:
            compared = entry.compared
            groups.setdefault(compared.column, {}).setdefault(compared.dataset, []).append(compared.gap)
    body = []
    for column, graphs in groups.items():
        line = []
        for graph in GRAPHS:
            summary = combine(graphs[graph])
            low, high = summary.interval()
            line.append(f"{summary.value:+.2f} [{low:+.2f}, {high:+.2f}]" + ("" if summary.p >= LEVEL else " ≠"))
        body.append(cells([TITLES[column], *line]))
    return Grid(["method", *GRAPHS], body)


def list_differences(entries: Iterable[PublishedEntry]) -> Grid:
    body = []
    for entry in entries:
        cell = entry.compared
        if cell.verdict != "differs":
            continue
        axis_values = ", ".join(filter(None, (cell.dataset, cell.labels_per_class, cell.backbone)))
        ours, gap = f"{cell.ours.mean:.2f} ± {cell.ours.sd:.2f}", cell.gap
        others = sum(other.verdict != "differs" for other in entry.cells)
        beside = f"{others} of {len(entry.cells)}" if len(entry.cells) > 1 else ""
        line = [
            cell.table,
            axis_values,
            cell.title,
            ours,
            " ± ".join(cell.printed),
            f"{gap.value:+.2f}",
            f"{gap.p:.2g}",
            beside,
        ]
        body.append(cells(line))
    return Grid(
        ["table", "place", "method", "ours", "published", "difference", "p", "cells that do not"], body, range(3)
    )


def agreement(folder: Path) -> str:
    """The text of agreement.md, from the tables in a folder."""
    compared = read_cells(folder)
    entries = distinct(compared)
    count, all_printed = tally(entries), count_published()
    tables = [table for table in ("table-gcn", "table-gat") if any(entry.where == table for entry in entries)]
    blocks: list[Block] = [
        Heading(1, "Agreement with the published tables"),
        paragraph(
            "Made by `python -m graphcal.lab.paper` from the tables in this folder. The paper's six tables hold "
            f"{all_printed} distinct numbers; {len(entries)} could be tested (CoraFull and Arxiv-year could not), in "
            f"{len(compared)} cells."
        ),
        paragraph(
            "**Rule.** An entry is *equivalent* when two one-sided tests at 5 % show the true difference to be within "
            f"±{MARGIN:g} point; it *differs* when Welch's test rejects equality at 5 % and equivalence is not shown; "
            "else it is *open*. The margin is one point because ten runs against ten cannot show more: with the typical "
            f"deviation of 0.57, equality within ±{NARROW:g} is shown only if the two means happen to be 0.06 apart."
        ),
        paragraph(
            f"**Count.** Of {len(entries)} entries {count['equivalent']} are equivalent, {count['open']} open, "
            f"{count['differs']} differ ({count['holm']} of all by Welch after Holm's correction). Within ±{NARROW:g}: "
            f"{count['narrow']}. Equivalent in every cell beside them: {count['all']}; in at least one: {count['any']}. "
            f"Not rejected by Welch: {count['welch']}. The rule of version 0.1 (means no further apart than both "
            f"deviations together) would accept {count['deviations']} of the same entries: it is 4.5 standard errors "
            "wide and accepts a true difference of one point seven times in ten."
        ),
        Heading(2, "Bias, method by method"),
        paragraph(
            "Differences are ours minus published, in percentage points; *above*: entries in which ours is higher. SCAR "
            "is our run with its published settings; in table-hetero and table-backbones, whose settings are not "
            "published, with its weights from a grid that ends at 5e-3 (see claims.md)."
        ),
        by_method(entries),
    ]
    for table in tables:
        blocks += [Heading(2, f"{table}, graph by graph"), by_graph(entries, table)]
    if tables:
        words = "The three label rates of a graph together, 95 % interval of their mean; ≠: differs from zero at 5 %."
        blocks.append(paragraph(words))
    blocks += [
        Heading(2, "Entries that differ"),
        paragraph(
            "*Cells that do not*: where an entry stands beside several cells of ours, in how many it is equivalent or "
            "open."
        ),
        list_differences(entries),
    ]
    return markdown(blocks)
