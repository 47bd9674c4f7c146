"""The committed run files, results/NAME-runs.csv: one line per run, read once, asked by place and method.

    runs = RunFiles(Path("results"))
    runs.values("table-gcn", "ts", "ece", dataset="cora", labels_per_class=20)       ten values, in percent
    runs.means("table-gcn", "ts", "ece")                                             one mean for each row that has the method

Rows are the values of the table's axes (graph, labels, backbone, and what a figure varies), in the order of the file.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from graphcal.files import read_toml
from graphcal.metrics.names import metric_of

Row = tuple[tuple[str, str], ...]  # (axis, value) in the order of the file


class RunFiles:
    """A folder of run files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tables: dict[str, dict[tuple[Row, str], list[dict[str, str]]]] = {}

    def _table(self, name: str) -> dict[tuple[Row, str], list[dict[str, str]]]:
        if name not in self._tables:
            with (self.folder / f"{name}-runs.csv").open(encoding="utf-8") as file:
                reader = csv.DictReader(file)
                axes = list(reader.fieldnames or ())[: list(reader.fieldnames or ()).index("method")]
                grouped: dict[tuple[Row, str], list[dict[str, str]]] = {}
                for line in reader:
                    row = tuple((axis, line[axis]) for axis in axes)
                    grouped.setdefault((row, line["method"]), []).append(line)
            self._tables[name] = grouped
        return self._tables[name]

    def rows(self, table: str, *methods: str, **where: object) -> list[Row]:
        """Rows that have every one of the methods, and these values."""
        wanted = {axis: _several(value) for axis, value in where.items()}
        rows = dict.fromkeys(row for row, _ in self._table(table))
        return [
            row
            for row in rows
            if all((row, method) in self._table(table) for method in methods)
            and all(dict(row)[axis] in values for axis, values in wanted.items())
        ]

    def methods(self, table: str, row: Row) -> list[str]:
        """The methods of a row, in the order of the file."""
        return [method for row_key, method in self._table(table) if row_key == row]

    def splits(self, table: str, rows: Sequence[Row]) -> int:
        """Number of splits of the runs of these rows; 1: the same test nodes everywhere."""
        groups = [lines for (row, _), lines in self._table(table).items() if row in rows]
        return max(len({line["split"] for line in lines}) for lines in groups)

    def titles(self, table: str) -> dict[str, str]:
        """Method -> title, as in the table of the runs, which may have columns that its preset has no more."""
        with (self.folder / f"{table}.csv").open(encoding="utf-8") as file:
            return {line["method"]: line["title"] for line in csv.DictReader(file)}

    def at(self, table: str, row: Row, method: str, metric: str) -> np.ndarray:
        """One value per run, in percent where the metric is a share; ``all_ece``: on all unlabelled nodes."""
        scale = metric_of(metric.removeprefix("all_")).scale if metric != "changed" else 1.0
        return np.array([scale * float(line[metric]) for line in self._table(table)[row, method]])

    def values(self, table: str, method: str, metric: str, **where: object) -> np.ndarray:
        """The runs of all rows that have these values, one after another."""
        return np.concatenate([self.at(table, row, method, metric) for row in self.rows(table, method, **where)])

    def means(self, table: str, method: str, metric: str, with_: Sequence[str] = (), **where: object) -> np.ndarray:
        """One mean for each row that has the method (and those of ``with_``)."""
        rows = self.rows(table, method, *with_, **where)
        return np.array([self.at(table, row, method, metric).mean() for row in rows])

    def gaps(self, table: str, a: str, b: str, metric: str, **where: object) -> np.ndarray:
        """Mean of ``a`` minus mean of ``b``, for each row that has both."""
        gaps: np.ndarray = self.means(table, a, metric, [b], **where) - self.means(table, b, metric, [a], **where)
        return gaps

    @cached_property
    def seconds(self) -> dict[tuple[str, str], float]:
        """(graph, method) -> seconds of one core for one model with its search and fit, from fig-runtime-seconds.csv."""
        with (self.folder / "fig-runtime-seconds.csv").open(encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        parts = ("train", "search", "fit", "apply")
        return {(line["dataset"], line["method"]): sum(float(line[part]) for part in parts) for line in lines}


@cache
def _published() -> dict[str, Any]:
    with resources.as_file(resources.files("graphcal.lab.paper") / "published.toml") as path:
        return read_toml(path)


def printed_means(table: str, column: str, graphs: Sequence[str] = ()) -> np.ndarray:
    """A column of a table of the paper, as printed, in the order of its rows; rows that lack it are left out."""
    tree = _published()[table]
    rows = [row for graph, rates in tree.items() if not graphs or graph in graphs for row in rates.values()]
    return np.array([row[column][0] for row in rows if column in row])


def _several(value: object) -> set[str]:
    return {str(one) for one in value} if isinstance(value, (list, tuple)) else {str(value)}
