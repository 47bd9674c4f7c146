"""The files of a finished (or half-finished) preset.

NAME.md NAME.csv NAME-runs.csv NAME.tex NAME.html    the same bytes whenever the same records are there
NAME.svg                                             a figure, where the preset is one
NAME-seconds.md                                      how long it took: different every time
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from graphcal.bench.costs import clock
from graphcal.bench.exports import csv_of_methods, csv_of_runs, latex
from graphcal.bench.figures import figure_of
from graphcal.bench.markdown import markdown, seconds_markdown
from graphcal.bench.page import page
from graphcal.bench.records import write_atomically
from graphcal.bench.tables import Table
from graphcal.plots.figure import svg


def write_outputs(table: Table, folder: Path) -> list[Path]:
    """Write every form of the table into the folder; gives the paths."""
    name, figure = table.preset.name, figure_of(table)
    drawing = None if figure is None else svg(figure)
    texts = {
        f"{name}.md": markdown(table),
        f"{name}.csv": csv_of_methods(table),
        f"{name}-runs.csv": csv_of_runs(table),
        f"{name}.tex": latex(table),
        f"{name}.html": page(table, drawing),
        f"{name}-seconds.md": seconds_markdown(table),
    }
    if drawing is not None:
        texts[f"{name}.svg"] = drawing
    return _written(texts, folder)


def _written(texts: dict[str, str], folder: Path) -> list[Path]:
    for file, text in texts.items():
        write_atomically(folder / file, text.encode())
    return [folder / file for file in texts]


def computing_seconds(table: Table) -> float:
    """Seconds of one core behind the table; a training that several methods share is counted once."""
    trained: dict[tuple[str, str], float] = {}
    total = 0.0
    for row in table.rows:
        for entry in row.entries.values():
            for record in entry.records:
                run = str(record.spec["run"])
                trained |= {(base, run): float(seconds) for base, seconds in record.seconds["trained"].items()}
                total += record.seconds["fit"] + record.seconds["apply"]
    return total + sum(trained.values())


def publish(table: Table, command: str, folder: Path) -> list[Path]:
    """The table for people, with the command that makes it, the time it took and the machine's shape."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = next((e.records[0].versions for row in table.rows for e in row.entries.values() if e.records), {})
    made = [
        "## How it was made",
        "",
        f"    {command}",
        "",
        f"Computing time: {clock(computing_seconds(table))} of one core. Machine: {os.cpu_count()} cores, {memory:.0f} GB, "
        f"{platform.machine()}, no GPU. " + ", ".join(f"{k} {v}" for k, v in versions.items()) + ".",
        "",
    ]
    text = markdown(table) + "\n" + "\n".join(made) + "\n" + seconds_markdown(table).replace("# ", "## ", 1)
    name, figure = table.preset.name, figure_of(table)
    if figure is not None:
        text = text.replace("\n\n", f"\n\n![{table.preset.title}]({name}.svg)\n\n", 1)
    texts = {f"{name}.md": text, f"{name}.csv": csv_of_methods(table), f"{name}-runs.csv": csv_of_runs(table)}
    if figure is not None:
        texts[f"{name}.svg"] = svg(figure)
    return _written(texts, folder)
