"""``graphcal plan``: how many random labels a promise needs, and where to draw them."""

from __future__ import annotations

import json as json_format
import math
from pathlib import Path
from typing import Any

import typer

from graphcal.cli.alerts import share_of
from graphcal.cli.arguments import CLASSES, JSON, KIND, TABLE_COLUMNS, column_names, predictions_in
from graphcal.cli.console import plain_console, print_summary

SHARES = (0.0, 0.25, 0.5, 0.75)  # true error as a share of the target


def plan(
    predictions: Path = typer.Argument(
        None, help="Calibrated predictions, as `graphcal decide` reads them: names the rows to draw from."
    ),
    max_error: float = typer.Option(..., metavar="SHARE", help="Largest share of errors that is to be promised."),
    certainty: float = typer.Option(0.95, metavar="SHARE", help="Probability with which the promise must hold."),
    power: float = typer.Option(0.8, metavar="SHARE", help="Chance that the labels suffice."),
    true_error: float = typer.Option(
        None, min=0.0, max=1.0, metavar="SHARE", help="Error rate that you expect there (default: several)."
    ),
    zone: float = typer.Option(
        1.0, metavar="SHARE", help="Share of all rows that the promise is about, if labels are drawn from all rows."
    ),
    classes: str = CLASSES,
    kind: str = KIND,
    columns: str = TABLE_COLUMNS,
    json: bool = JSON,
) -> None:
    """Plan how many random labels a promise needs.

    "At most 5 % of these rows are wrong" (or: 95 % precise, or: 5 % of the positives are lost) takes this many random labels
    inside the set of rows that it is about. To close rows, count labelled positives instead of rows.

    With PREDICTIONS, each line names the rows to approve and to draw from: the largest set of confident rows without a label
    whose probabilities expect this error.

    graphcal plan --max-error 0.05
    graphcal plan --max-error 0.05 --true-error 0.02 --zone 0.3
    graphcal plan predictions.parquet --max-error 0.05
    """
    for value, option in ((max_error, "--max-error"), (certainty, "--certainty"), (power, "--power")):
        share_of(str(value), option)
    if not 0 < zone <= 1:
        raise ValueError(f"--zone must be above 0 and at most 1, got {zone:g}; 0.3 means 30 % of the rows.")
    if true_error is not None and true_error >= max_error:
        raise ValueError(
            f"--true-error {true_error:g} is not below --max-error {max_error:g}: no number of labels can show it."
        )

    from graphcal.decisions.alerts import percent
    from graphcal.decisions.bounds import labels_for_power

    rates = [share * max_error for share in SHARES] if true_error is None else [true_error]
    rows: list[dict[str, Any]] = []
    for rate in rates:
        n = labels_for_power(max_error, certainty, rate / max_error, power)
        rows.append({"true_error": rate, "labels": n, "drawn_from_all": math.ceil(n / zone)})
    if predictions is not None:
        from graphcal.decisions.thresholds import largest_zone
        from graphcal.tables.reading import read_table

        table = read_table(predictions_in(predictions), kind, None, classes, None, column_names(columns))
        log_probs = table.log_probs if table.y is None else table.log_probs[table.y < 0]
        conf = log_probs.double().exp().amax(dim=1).numpy()
        zones = [largest_zone(conf, rate) for rate in rates]
        rows = [
            {**row, "min_score": score, "rows": count, "drawn_from_all": math.ceil(row["labels"] * len(conf) / count)}
            for row, (score, count) in zip(rows, zones)
            if count > row["labels"]
        ]
        if not rows:
            raise ValueError(
                f"No set of rows is expected to have so few errors as --max-error {max_error:g} takes. Allow more errors, or "
                "check the calibration (graphcal check)."
            )
    if json:
        goal = {"max_error": max_error, "certainty": certainty, "power": power, "zone": zone}
        typer.echo(json_format.dumps({"schema": 1, **goal, "plan": rows}))
        return
    console = plain_console()
    about = (
        f"at most {100 * max_error:g} % errors, {100 * certainty:g} % certain, reached in {100 * power:g} % of draws"
    )
    print_summary(console, [("Promise", about)])
    console.print()
    where = "at random, inside the rows that the promise is about. Labels elsewhere do not count towards it."
    titles = [("true error", 10), ("random labels in the zone", 25)]
    if predictions is not None:
        titles = [("expected error", 14), ("from score", 10), ("rows", 9), ("random labels", 13)]
        where = (
            "at random, among the rows from that score on, and flag them. Then: graphcal decide --min-score SCORE --random-arm "
            f"COLUMN --max-error {max_error:g}"
        )
    if zone < 1 or predictions is not None:
        titles.append(("drawn from all rows", 19))
    console.print("  ".join(f"{title:>{width}}" for title, width in titles), style="bold")
    for row in rows:
        cells = [percent(row["true_error"]) + " %", f"{row['labels']:,}", f"{row['drawn_from_all']:,}"]
        if predictions is not None:
            cells[1:1] = [f"{row['min_score']:.3f}", f"{row['rows']:,}"]
        console.print("  ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, titles)))
    console.print()
    print_summary(console, [("Draw", where)])
