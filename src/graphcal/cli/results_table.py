"""The table of `graphcal run` and `calibrate`, as wide as the terminal allows: columns are left out, numbers are never cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphcal.metrics.names import METRICS

if TYPE_CHECKING:
    from rich.table import Table

SPREAD = ("accuracy", "ece", "nll", "brier")  # shown with their standard deviation over seeds
DIGITS = {"nll": 3, "brier": 3, "true_error": 1}
# What is given up, in this order, until the table fits: a standard deviation (±) or a whole column.
GIVEN_UP = ("±brier", "±nll", "±accuracy", "brier", "±ece", "ece_floor", "accuracy", "true_error", "ece_interval")


def columns_of(record: dict[str, Any], width: int) -> dict[str, list[str]]:
    """Heading -> cells; the first column are the methods."""
    one_run = len(record["seeds"]) == 1
    left_out = {f"±{key}" for key in SPREAD} if one_run else set()
    columns = _columns(record, left_out)
    for step in GIVEN_UP:
        if _width(columns) <= width:
            break
        left_out.add(step)
        columns = _columns(record, left_out)
    return columns


def results_table(record: dict[str, Any], width: int) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    columns = columns_of(record, width)
    for place, heading in enumerate(columns):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in zip(*columns.values()):
        table.add_row(*row)
    return table


def _columns(record: dict[str, Any], left_out: set[str]) -> dict[str, list[str]]:
    methods = record["methods"]
    columns = {"method": ["uncalibrated" if name == "none" else name for name in methods]}
    for key in ("accuracy", "ece", "true_error", "ece_interval", "ece_floor", "nll", "brier"):
        if key not in left_out:
            cells = [_cell(method, key, key in SPREAD and f"±{key}" not in left_out) for method in methods.values()]
            columns[_heading(key)] = cells
    return columns


def _heading(key: str) -> str:
    if key == "ece_interval":
        return "95 %"
    return METRICS[key].heading if key in ("accuracy", "ece") else METRICS[key].title


def _cell(method: dict[str, Any], key: str, spread: bool) -> str:
    if key == "ece_interval":
        low, high = method[key]
        return f"{100 * low:.1f}–{100 * high:.1f}"
    digits = DIGITS.get(key)
    if key == "true_error":
        return METRICS[key].text(method[key], digits)
    mean, sd = (METRICS[key].text(method[key][part], digits) for part in ("mean", "sd"))
    return f"{mean} ±{sd}" if spread else mean


def _width(columns: dict[str, list[str]]) -> int:
    return sum(max(map(len, [heading, *cells])) for heading, cells in columns.items()) + len(columns) - 1
