"""``graphcal plan``: how many random labels a promise needs, and where to draw them."""

from __future__ import annotations

import json as json_format
import math

import typer

from graphcal.cli.alerts import share_of
from graphcal.cli.console import plain_console, print_summary

SHARES = (0.0, 0.25, 0.5, 0.75)  # true error as a share of the target


def plan(
    max_error: float = typer.Option(..., metavar="SHARE", help="Largest share of errors that is to be promised."),
    certainty: float = typer.Option(0.95, metavar="SHARE", help="Probability with which the promise must hold."),
    power: float = typer.Option(0.8, metavar="SHARE", help="Chance that the labels suffice."),
    true_error: float = typer.Option(
        None, min=0.0, max=1.0, metavar="SHARE", help="Error rate that you expect there (default: several)."
    ),
    zone: float = typer.Option(
        1.0, metavar="SHARE", help="Share of all rows that the promise is about, if labels are drawn from all rows."
    ),
    json: bool = typer.Option(False, "--json", metavar="", help="Print the plan as JSON."),
) -> None:
    """Plan how many random labels a promise needs.

    "At most 5 % of these rows are wrong" (or: 95 % precise, or: 5 % of the positives are lost) takes this many random labels
    inside the set of rows that it is about. To close rows, count labelled positives instead of rows.

    graphcal plan --max-error 0.05
    graphcal plan --max-error 0.05 --true-error 0.02 --zone 0.3
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
    labels = [labels_for_power(max_error, certainty, rate / max_error, power) for rate in rates]
    rows = [{"true_error": rate, "labels": n, "drawn_from_all": math.ceil(n / zone)} for rate, n in zip(rates, labels)]
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
    console.print("true error  random labels in the zone" + "  drawn from all rows" * (zone < 1), style="bold")
    for row in rows:
        wide = f"{row['drawn_from_all']:>21,}" if zone < 1 else ""
        console.print(f"{percent(row['true_error']) + ' %':>10}  {row['labels']:>25,}{wide}")
    console.print()
    where = "at random, inside the rows that the promise is about. Labels elsewhere do not count towards it."
    print_summary(console, [("Draw", where)])
