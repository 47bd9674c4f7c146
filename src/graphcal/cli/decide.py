"""``graphcal decide``: which nodes may be acted on alone, which need a person, with what promise."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.arguments import CLASSES, KIND, SOURCE, TABLE_COLUMNS, column_names, predictions_in
from graphcal.cli.console import plain_console

if TYPE_CHECKING:
    from graphcal.decisions.curves import RiskCurve
    from graphcal.decisions.outcomes import Outcome

EXIT = {"decided": 0, "none": 1, "too few labels": 3}


def decide(
    predictions: Path = typer.Argument(
        ...,
        help="Table of predictions, a file or a folder, as `graphcal check` reads it; or what `graphcal run` wrote.",
    ),
    max_error: float = typer.Option(
        0.05, metavar="SHARE", help="Largest share of errors among the nodes decided automatically."
    ),
    certainty: float = typer.Option(0.95, metavar="SHARE", help="How certain the promise must be."),
    class_: str = typer.Option(
        "", "--class", metavar="CLASS", help="Select this class instead: nodes that may be taken as members of it."
    ),
    min_precision: float = typer.Option(
        0.9, metavar="SHARE", help="With --class: smallest share of members among the selected nodes."
    ),
    budget: int = typer.Option(
        0, min=0, metavar="N", help="How many nodes a person can look at: name the most worthwhile ones."
    ),
    sets: float = typer.Option(
        0.0, min=0.0, max=1.0, metavar="SHARE", help="Add prediction sets with this coverage, for example 0.9."
    ),
    certify: float = typer.Option(
        1.0,
        min=0.0,
        max=1.0,
        metavar="SHARE",
        help="Share of the labelled rows that certify; 0.5 draws half of them at random, the rest is decided.",
    ),
    promise: str = typer.Option(
        "pool",
        metavar="NAME",
        help="What is promised: pool (of these nodes), future (of nodes to come), average (over draws).",
    ),
    random_draw: bool = typer.Option(
        False,
        "--random-draw",
        metavar="",
        help="I state that the labelled rows were drawn at random: makes the promise a guarantee.",
    ),
    labels: Path = typer.Option(
        None, metavar="FILE", help="Table of id and label, where labels are in a file of their own."
    ),
    split: str = typer.Option(
        "",
        metavar="COLUMN|FILE",
        help="Column or file that says train, val, test: rows that trained or fitted do not certify.",
    ),
    time: str = typer.Option(
        "",
        metavar="COLUMN",
        help="Column with a time: are labelled rows as old as the others? Found where it is dated.",
    ),
    strata: str = typer.Option(
        "", metavar="COLUMN", help="Column of groups, where labelled rows were drawn at random within each of them."
    ),
    classes: str = CLASSES,
    kind: str = KIND,
    source: str = SOURCE,
    columns: str = TABLE_COLUMNS,
    seed: int = typer.Option(0, metavar="N", help="Seed of the draw with --certify."),
    out: Path = typer.Option(
        Path("decisions.parquet"), "--out", "-o", metavar="FILE", help="Where the decision on every node is written."
    ),
    json: bool = typer.Option(False, "--json", metavar="", help="Print everything as JSON."),
) -> None:
    """Which nodes can be decided automatically, and which need a person?

    Rows with a label certify the promise: they must not have trained, stopped or calibrated the model. All others are decided.
    The labelled rows are compared with the others first: where they visibly were not drawn at random, nothing is promised.
    Exit code 0: some nodes can be decided. 1: none, and more labels would not help. 2: bad input. 3: none with so few labels.

    graphcal decide predictions.parquet --max-error 0.05
    graphcal decide preds.parquet --class fraud --min-precision 0.9 --random-draw
    graphcal decide graphcal-report --certify 0.5
    """
    from graphcal.decisions.outcomes import decide_rows
    from graphcal.files import check_writable
    from graphcal.tables.reading import read_table

    check_writable(out.parent)
    names = column_names(columns)
    table = read_table(predictions_in(predictions), kind, None, classes, labels, names, split or None, source)
    used = None if table.split is None else table.split.train | table.split.val
    outcome = decide_rows(
        table.log_probs,
        table.labels,
        used=used,
        names=table.classes,
        max_error=1 - min_precision if class_ else max_error,
        certainty=certainty,
        promise=promise,
        positive=class_ or None,
        share=certify,
        random_draw=random_draw,
        budget=budget or None,
        coverage=sets or None,
        seed=seed,
        time=table.times(time),
        strata=table.column(strata).to_numpy() if strata else None,
    )
    outcome.write(out, table.ids, table.classes)
    if json:
        typer.echo(json_format.dumps({**outcome.to_dict(), "notes": [*table.notes, *outcome.notes], "file": str(out)}))
    else:
        _show(outcome, [*table.notes, *outcome.notes], out)
    raise typer.Exit(EXIT[outcome.answer])


def _show(outcome: Outcome, notes: list[str], out: Path) -> None:

    console = plain_console(soft_wrap=True)
    decision = outcome.decision
    console.print(decision.sentence, style="bold")
    nothing = not decision.num_approved and decision.positive is None
    target = outcome.curve.next_target(decision.max_error) if nothing else None
    if target is not None:
        console.print(
            f"A target of at most {100 * target[0]:g} % errors would decide {target[1]:,} nodes: --max-error {target[0]:g}. "
            "A promise holds for a target that was chosen beforehand."
        )
    for row in decision.classes:
        console.print(f"  {row.text}.")
    if outcome.members is not None:
        console.print(outcome.members_text)
    if outcome.looks is not None:
        console.print(outcome.looks.sentence)
    if outcome.sets is not None:
        facts = outcome.sets.to_dict()
        low, high = (f"{100 * end:.1f}" for end in facts["band"])
        console.print(
            f"Prediction sets cover {100 * facts['coverage']:g} % on average over draws ({low} to {high} % for these labels, "
            f"90 % band); they hold {facts['mean_size']:.2f} classes on average, {100 * facts['single']:.0f} % hold one."
        )
    console.print(_table(outcome.curve))
    for note in notes:
        console.print(note, style="dim")
    console.print(f"Decisions: {out}")


def _table(curve: RiskCurve) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("most confident", "nodes", "confidence from", "errors seen", f"{100 * curve.certainty:g} % interval"):
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
