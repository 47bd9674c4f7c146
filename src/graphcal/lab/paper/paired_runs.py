"""Compare every method with TS, paired over runs, by ECE, NLL and Brier score, if predictions were not kept.

Version 0.1 kept one line per run and no log-probabilities, so the paired test on nodes cannot be made for its tables. The fair
tables keep them for the test nodes; on all unlabelled nodes (``all_``) they too have one line per run. What a run file allows is
a test over runs: for each row the differences d_r of a method and TS, run by run,

    t = mean(d) / (sd(d) / √R),    Student's t with R - 1 degrees of freedom,    Holm over the methods of the row.

It says whether another training would change the sign on *these* nodes, and nothing of other nodes: it finds far more than
a test on nodes. Runs with other splits share test nodes, and their p-values are too small still; such tables are marked. Where
every unlabelled node is a test node (Chameleon, Squirrel) the fair tables are tested on nodes, and not here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields

import numpy as np
from scipy import stats

from graphcal.lab.bench.comparisons import LEVEL
from graphcal.lab.bench.document import Block, Grid, Heading, Text, cells, markdown, paragraph
from graphcal.lab.bench.presets import preset_titles, read_preset
from graphcal.lab.paper.run_files import Row, RunFiles
from graphcal.metrics.comparison import holm
from graphcal.metrics.names import metric_of

ON_TEST, ON_ALL = ("ece", "nll", "brier"), ("all_ece", "all_nll", "all_brier")
OLDER = ("table-gcn", "table-gat", "table-ablation", "table-hetero", "table-backbones", "scar", "gats-protocol")
TABLES = {**dict.fromkeys(OLDER, ON_TEST), **dict.fromkeys(("fair", "fair-gat", "fair-backbones"), ON_ALL)}
SAME_RECIPE = "scar-recipe-ts"  # the network of SCAR's recipe with TS: what SCAR is to be held against
OF_SAME_RECIPE = ("scar-paper", "scar-eq10", "scar-clc", "scar-clc-ts", "scar-nlc", "scar-nlc-fitted", "scar-fitted")


@dataclass(frozen=True)
class PairedRuns:
    """A method minus its reference in one row."""

    table: str
    row: str
    metric: str
    method: str
    reference: str
    difference: str
    p: str  # corrected by Holm

    @property
    def better(self) -> bool:
        return float(self.p) < LEVEL and float(self.difference) < 0

    @property
    def worse(self) -> bool:
        return float(self.p) < LEVEL and float(self.difference) > 0


def paired_p(differences: np.ndarray) -> float:
    """Two-sided, of no mean difference over runs."""
    if len(differences) < 2 or not differences.any():
        return 1.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue) if differences.std() else 0.0


def reference_of(method: str, there: set[str]) -> str:
    """TS on the method's own network, where the row has it."""
    return SAME_RECIPE if method in OF_SAME_RECIPE and SAME_RECIPE in there else "ts"


def compared_in_row(runs: RunFiles, table: str, row: Row) -> Iterator[PairedRuns]:
    there = set(runs.methods(table, row))
    methods = [m for m in runs.methods(table, row) if m != reference_of(m, there)]
    for metric in TABLES[table]:
        gaps = {
            m: runs.at(table, row, m, metric) - runs.at(table, row, reference_of(m, there), metric) for m in methods
        }
        for (m, gap), p in zip(gaps.items(), holm([paired_p(gap) for gap in gaps.values()])):
            row_name = " ".join(value for _, value in row)
            yield PairedRuns(table, row_name, metric, m, reference_of(m, there), f"{gap.mean():.6f}", f"{p:.6f}")


def rows_of(runs: RunFiles, table: str) -> list[Row]:
    """The rows with TS; of a fair table, those with unlabelled nodes that are no test nodes."""
    rows = runs.rows(table, "ts")
    if TABLES[table] == ON_TEST:
        return rows
    return [row for row in rows if (runs.at(table, row, "ts", "all_ece") != runs.at(table, row, "ts", "ece")).any()]


def all_tests(runs: RunFiles) -> list[PairedRuns]:
    return [test for table in TABLES for row in rows_of(runs, table) for test in compared_in_row(runs, table, row)]


def csv_of(tests: list[PairedRuns]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(PairedRuns)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(test) for test in tests)
    return text.getvalue()


def _counted(tests: list[PairedRuns], metric: str) -> str:
    mean = float(np.mean([float(test.difference) for test in tests]))
    better, worse = sum(test.better for test in tests), sum(test.worse for test in tests)
    return f"{mean:+.{metric_of(metric.removeprefix('all_')).digits}f} ({better} ✓, {worse} ✗)"


def _title(metric: str) -> str:
    return metric_of(metric.removeprefix("all_")).title


def page(runs: RunFiles, tests: list[PairedRuns]) -> str:
    """The text of paired-runs.md: for each table and method, how many rows it is better and worse in."""
    blocks: list[Block] = [
        Heading(1, "Paired tests over runs"),
        paragraph(
            "Version 0.1 kept no predictions, so its tables cannot be tested on nodes; the tables that can are in "
            "archives.sha256, with p-values in NAME-tests.csv. These, the fair tables, keep predictions of the test nodes "
            "only; what they say of all unlabelled nodes is tested here. Each method is held against TS run by run: a "
            "paired t-test over runs, Holm over the methods of a row. **This test is about trainings, not about nodes**: it "
            "says whether another seed would change the sign on these nodes, and finds more than a test on nodes does. "
            "Made by `python -m graphcal.lab.paper`; every p-value is in paired-runs.csv."
        ),
    ]
    for metrics, title in ((ON_TEST, "Test nodes"), (ON_ALL, "All unlabelled nodes")):
        tables = [table for table in TABLES if TABLES[table] == metrics and table in preset_titles()]
        body = [line for table in tables for line in _lines(runs, table, tests)]
        header = ["table", "method", "against", "rows", *map(_title, metrics)]
        blocks += [Heading(2, title), Grid(header, body, (0, 1, 2))]
    overlap = [t for t in TABLES if t in preset_titles() and runs.splits(t, rows_of(runs, t)) > 1]
    blocks.append(
        paragraph(
            "Mean difference (rows better ✓, rows worse ✗, 5 %). Each run has another split, and these overlap, in "
            f"{', '.join(overlap)}."
        )
    )
    return markdown(blocks)


def _lines(runs: RunFiles, table: str, tests: list[PairedRuns]) -> Iterator[list[Text]]:
    """A line of the page for each method that the preset still has."""
    titles, methods = runs.titles(table), read_preset(table).methods
    mine = [test for test in tests if test.table == table and test.method in methods]
    for method in dict.fromkeys(test.method for test in mine):
        of = [test for test in mine if test.method == method]
        counts = [_counted([test for test in of if test.metric == metric], metric) for metric in TABLES[table]]
        yield cells([table, titles[method], titles[of[0].reference], str(len({test.row for test in of})), *counts])
