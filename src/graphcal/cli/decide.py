"""``graphcal decide``: choose the predictions that can be acted on without review."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.arguments import (
    CLASSES,
    INCLUSION,
    JSON,
    KIND,
    LABELS,
    RANDOM_DRAW,
    SOURCE,
    TABLE_COLUMNS,
    column_names,
    predictions_in,
)
from graphcal.cli.console import plain_console, print_summary

if TYPE_CHECKING:
    from graphcal.decisions.outcomes import Outcome
    from graphcal.decisions.thresholds import RiskCurve

EXIT = {"decided": 0, "none": 1, "too few labels": 3}


def decide(
    predictions: Path = typer.Argument(
        ...,
        help="Table of predictions, a file or a folder, as `graphcal check` reads it; or what `graphcal run` wrote.",
    ),
    max_error: float = typer.Option(
        0.05, metavar="SHARE", help="Largest share of errors among the rows decided automatically."
    ),
    certainty: float = typer.Option(0.95, metavar="SHARE", help="Probability with which the promise must hold."),
    class_: str = typer.Option("", "--class", metavar="CLASS", help="Select the members of this class instead."),
    min_precision: float = typer.Option(
        0.9, metavar="SHARE", help="With --class: smallest share of members among the selected rows."
    ),
    budget: int = typer.Option(
        0, min=0, metavar="N", help="Number of rows a person can review: rank the most worthwhile ones."
    ),
    sets: float = typer.Option(
        0.0, min=0.0, max=1.0, metavar="SHARE", help="Add prediction sets with this coverage, for example 0.9."
    ),
    certify: float = typer.Option(
        1.0,
        min=0.0,
        max=1.0,
        metavar="SHARE",
        help="Share of the labelled rows that check the promise; 0.5 draws half of them, the rest is decided.",
    ),
    promise: str = typer.Option(
        "pool",
        metavar="NAME",
        help="Rows that the promise covers: pool (these), future (new ones), average (over draws).",
    ),
    random_draw: bool = RANDOM_DRAW,
    labels: Path = LABELS,
    split: str = typer.Option(
        "",
        metavar="COLUMN|FILE",
        help="Column or file with train, val and test. Training and validation rows are left out.",
    ),
    time: str = typer.Option(
        "",
        metavar="COLUMN",
        help="Column with a time, to check that labelled rows are as old as the others (default: a date column).",
    ),
    strata: str = typer.Option(
        "", metavar="COLUMN", help="Column of groups, if labelled rows were drawn at random within each group."
    ),
    random_arm: str = typer.Option(
        "",
        metavar="COLUMN",
        help="Column of true or false: which labelled rows were drawn at random. They carry the promise.",
    ),
    inclusion: str = INCLUSION,
    min_score: float = typer.Option(
        None,
        min=0.0,
        max=1.0,
        metavar="SCORE",
        help="Decide only rows with at least this confidence (see `graphcal plan`); random labels may come from them alone.",
    ),
    classes: str = CLASSES,
    kind: str = KIND,
    source: str = SOURCE,
    columns: str = TABLE_COLUMNS,
    seed: int = typer.Option(0, metavar="N", help="Seed of the draw with --certify."),
    out: Path = typer.Option(
        Path("decisions.parquet"),
        "--out",
        "-o",
        metavar="FILE",
        help="Where to write the decision per row; the decision itself goes beside it, as .json.",
    ),
    json: bool = JSON,
) -> None:
    """Choose the predictions that can be acted on without review.

    Labelled rows check the promise; all other rows get a decision. Labelled rows must not have trained, stopped or calibrated
    the model. If they visibly are not a random sample of all rows, the command refuses.

    Exit code 0: some rows can be decided. 1: none, and more labels would not help. 2: bad input. 3: none with so few labels.

    graphcal decide predictions.parquet --max-error 0.05
    graphcal decide preds.parquet --class fraud --min-precision 0.9 --random-draw
    graphcal decide preds.parquet --random-arm drawn
    graphcal decide graphcal-report --certify 0.5
    """
    from graphcal.decisions.decision import Promise
    from graphcal.decisions.outcomes import decide_rows
    from graphcal.files import check_writable
    from graphcal.tables.reading import read_table

    terms = Promise(1 - min_precision if class_ else max_error, certainty, promise, random_draw, class_ or None)  # type: ignore[arg-type]
    check_writable(out.parent)
    names = column_names(columns)
    table = read_table(predictions_in(predictions), kind, None, classes, labels, names, split or None, source)
    used = None if table.split is None else table.split.train | table.split.val
    arm = None if not random_arm else table.flags(random_arm)
    others = None
    if arm is not None:
        others = (table.labels.numpy() >= 0) & ~arm
        if table.split is not None:
            others &= ~table.split.train
    outcome = decide_rows(
        table.log_probs,
        table.labels,
        terms,
        used=used,
        names=table.classes,
        share=certify,
        budget=budget or None,
        coverage=sets or None,
        seed=seed,
        time=table.times(time),
        strata=table.column(strata).to_numpy() if strata else None,
        random_arm=arm,
        others=others,
        inclusion=table.column(inclusion).to_numpy() if inclusion else None,
        min_score=min_score,
    )
    outcome.write(out, table.ids, table.classes)
    saved = outcome.decision.save(out.with_suffix(".json"))
    notes = [*table.notes, *outcome.notes]
    if json:
        files = {"file": str(out), "decision_file": str(saved)}
        typer.echo(json_format.dumps({**outcome.to_dict(), "notes": notes, **files}))
    else:
        _show(outcome, notes, out, saved)
    raise typer.Exit(EXIT[outcome.answer])


def _show(outcome: Outcome, notes: list[str], out: Path, saved: Path) -> None:
    console = plain_console()
    print_summary(console, outcome.summary)
    if outcome.decision.positive is None:
        console.print()
        console.print(_table(outcome.curve))
    console.print()
    for note in notes:
        console.print(f"Note: {note}.", style="dim")
    console.print(f"Saved: {out} (a decision per row), {saved} (the decision, for graphcal watch)", soft_wrap=True)


def _table(curve: RiskCurve) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("most confident", "rows", "confidence from", "errors seen", f"{100 * curve.certainty:g} % interval"):
        table.add_column(title, justify="right", no_wrap=True)
    wanted = [min(range(len(curve.coverage)), key=lambda t: abs(curve.coverage[t] - k / 10)) for k in range(1, 11)]
    for t in dict.fromkeys(wanted):
        seen = "–" if curve.error[t] != curve.error[t] else f"{100 * curve.error[t]:.1f} %"
        table.add_row(
            f"{100 * curve.coverage[t]:.0f} %",
            f"{curve.nodes[t]:,}",
            f"{curve.threshold[t]:.3f}",
            seen,
            f"{100 * curve.low[t]:.1f}–{100 * curve.high[t]:.1f} %",
        )
    return table
