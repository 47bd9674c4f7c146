"""Where do our tables agree with the published ones? Reads results/*.csv, writes results/agreement.md.

    python -m graphcal.paper.agreement            # write
    python -m graphcal.paper.agreement --check    # fail when the file is not what the tables give

A cell agrees when the two means are not further apart than both standard deviations together. For every entry of an uncalibrated
model, of TS and of SCAR with its published settings that does not agree, the experiments are searched for one in which it does.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from graphcal.bench.document import Block, Grid, Heading, cells, markdown, paragraph
from graphcal.bench.presets import read_preset
from graphcal.files import write_atomically

EXPLAINED = ("uncal", "ts", "scar-paper")  # methods whose exceptions are searched for in the experiments
TABLES = ("table",)
EXPERIMENTS = (
    "table",
    "exceptions",
    "optimisers",
    "base",
)  # a table is one too: it has rows for both models called GAT

# What the paper calls it: graph, labels per class, backbone, metric, and the mean and sd as printed.
PaperEntry = tuple[str, str, str, str, str, str]


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
    mean: float
    sd: float
    floor: float
    published: tuple[str, str]  # mean and sd, as printed

    @property
    def gap(self) -> float:
        """Ours minus published."""
        return self.mean - float(self.published[0])

    @property
    def agrees(self) -> bool:
        return abs(self.gap) <= self.sd + float(self.published[1])

    @property
    def ours(self) -> str:
        return f"{self.mean:.2f} ± {self.sd:.2f}"

    @property
    def paper(self) -> PaperEntry:
        """Filtered graphs stand beside the entries of the graphs, both models called GAT beside one."""
        graph, backbone = self.dataset.removesuffix("-filtered"), self.backbone.removesuffix("-cagcn")
        return graph, self.labels_per_class, backbone, self.metric, *self.published

    @property
    def described(self) -> str:
        """Its table and column, and the graph or model where that is not what the paper calls it."""
        graph, _, backbone, *_ = self.paper
        other = [ours for ours, paper in ((self.dataset, graph), (self.backbone, backbone)) if ours != paper]
        return f"{self.table}: {', '.join([*other, self.title])}"


def read_cells(folder: Path, kinds: Sequence[str] = TABLES) -> list[Compared]:
    """Every cell of every table of these kinds that has both our value and a published one."""
    compared = []
    for path in sorted(folder.glob("*.csv")):
        if path.name.endswith("-runs.csv") or path.stem.split("-")[0] not in kinds:
            continue
        metric = read_preset(path.stem).metric
        with path.open(encoding="utf-8") as file:
            lines = [line for line in csv.DictReader(file) if line["published_mean"] and int(line["runs"]) > 0]
        compared += [_compared(path.stem, metric, line) for line in lines]
    return compared


def _compared(table: str, metric: str, line: dict[str, str]) -> Compared:
    place = (line["dataset"], line.get("labels_per_class", ""), line.get("backbone", ""))
    ours = (float(line[f"{metric}_mean"]), float(line[f"{metric}_sd"]), float(line["ece_floor_mean"]))
    published = (line["published_mean"], line["published_sd"])
    return Compared(table, metric, *place, line["method"], line["title"], *ours, published)


def count_by_method(compared: Iterable[Compared]) -> Grid:
    groups: dict[tuple[str, str], list[Compared]] = {}
    for cell in compared:
        groups.setdefault((cell.table, cell.title), []).append(cell)
    body = []
    for (table, title), group in groups.items():
        gaps = [cell.gap for cell in group]
        mean, size = sum(gaps) / len(gaps), sum(map(abs, gaps)) / len(gaps)
        agree = sum(cell.agrees for cell in group)
        body.append(cells([table, title, str(len(group)), str(agree), f"{mean:+.2f}", f"{size:.2f}"]))
    return Grid(["table", "method", "cells", "agree", "mean difference", "mean absolute difference"], body, range(2))


def list_exceptions(compared: Iterable[Compared]) -> Grid:
    body = []
    for cell in compared:
        if cell.agrees:
            continue
        place = ", ".join(filter(None, (cell.dataset, cell.labels_per_class, cell.backbone)))
        floor = f"{cell.floor:.2f}" if cell.metric == "ece" else ""
        published = " ± ".join(cell.published)
        body.append(cells([cell.table, place, cell.title, cell.ours, published, f"{cell.gap:+.2f}", floor]))
    return Grid(["table", "place", "method", "ours", "published", "difference", "floor"], body, range(3))


def list_experiments(compared: Iterable[Compared], tried: Iterable[Compared]) -> Grid:
    """A line for every entry that does not agree in its table: the closest experiment in which it does."""
    ways: dict[PaperEntry, dict[object, Compared]] = {}
    for cell in tried:  # the same numbers are the same experiment, shown in two tables
        experiment = (cell.dataset, cell.backbone, cell.mean, cell.sd, cell.floor)
        ways.setdefault(cell.paper, {}).setdefault(experiment, cell)
    body = []
    for paper, cell in {c.paper: c for c in compared if c.method in EXPLAINED and not c.agrees}.items():
        graph, labels, backbone, metric, mean, sd = paper
        words = (graph, labels, backbone, cell.title, "accuracy" if metric == "accuracy" else "")
        agreeing = sorted((way for way in ways[paper].values() if way.agrees), key=lambda way: abs(way.gap))
        closest = [agreeing[0].described, agreeing[0].ours] if agreeing else ["none", ""]
        name = " ".join(filter(None, words))
        body.append(cells([name, f"{mean} ± {sd}", *closest, str(len(ways[paper])), str(len(agreeing))]))
    return Grid(["published entry", "published", "closest that agrees", "ours there", "columns", "agree"], body, (0, 2))


def agreement(folder: Path) -> str:
    """The text of agreement.md, from the tables in a folder."""
    compared = read_cells(folder)
    agree = sum(cell.agrees for cell in compared)
    blocks: list[Block] = [
        Heading(1, "Agreement with the published tables"),
        paragraph(
            f"Made by `python -m graphcal.paper.agreement` from the tables in this folder. {agree} of {len(compared)} cells "
            "that have a published value agree with it: the two means are not further apart than both standard deviations "
            "together. Differences are ours minus published, in percentage points."
        ),
        count_by_method(compared),
        Heading(2, "Cells that do not agree"),
        list_exceptions(compared),
        Heading(2, "Experiments on them"),
        paragraph(
            "Entries of uncalibrated models, TS and SCAR with its published settings that do not agree in every row of the "
            "tables: in how many columns it stands (the tables' own among them), in how many it agrees, and the closest. "
            "Agreement in one of many is a likeness and no proof; docs/reproduction.md says what speaks for it."
        ),
        list_experiments(compared, read_cells(folder, EXPERIMENTS)),
    ]
    return markdown(blocks)


def main(
    folder: Path = typer.Argument(Path("results"), help="The folder of tables."),  # noqa: B008
    check: bool = typer.Option(
        False, "--check", help="Write nothing; fail when agreement.md is not what the tables give."
    ),
) -> None:
    text, path = agreement(folder), folder / "agreement.md"
    if not check:
        write_atomically(path, text)
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{path} is not what the tables give: run python -m graphcal.paper.agreement")


if __name__ == "__main__":
    typer.run(main)
