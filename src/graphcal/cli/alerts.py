"""``graphcal alerts``: turn one column of scores into a queue."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphcal.cli.arguments import EDGES, INCLUSION, JSON, LABELS, RANDOM_DRAW
from graphcal.cli.console import plain_console, print_summary
from graphcal.text import class_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from graphcal.alert_table import Alerts
    from graphcal.decisions.windows import WindowEstimate


def alerts(
    scores: Path = typer.Argument(..., help="Table with one score per row and labels where known; a file or a folder."),
    class_: str = typer.Option("", "--class", metavar="CLASS", help="Class that alerts look for (default: 1 or True)."),
    score: str = typer.Option("", metavar="COLUMN", help="Column of scores (default: score, prob, logit ...)."),
    kind: str = typer.Option(None, metavar="KIND", help="probs, logits or scores (default: by name or range)."),
    id_: str = typer.Option("", "--id", metavar="COLUMN", help="Column of ids (default: id, node_id ...)."),
    label: str = typer.Option("", metavar="COLUMN", help="Column of labels, empty where unknown (default: label)."),
    labels: Path = LABELS,
    edges: Path = EDGES,
    time: str = typer.Option("", metavar="COLUMN", help="Column of times."),
    fit_until: str = typer.Option(None, metavar="DATE", help="Use labels of rows up to this day only. Needs --time."),
    window: str = typer.Option("auto", metavar="NAME", help="Windows over time: day, week or month. Needs --time."),
    label_delay: str = typer.Option(
        None, metavar="SPAN", help="Time a label takes, as 30d: younger rows count as unlabelled. Needs --time."
    ),
    inclusion: str = INCLUSION,
    reviewed_above: float = typer.Option(
        None, metavar="SCORE", help="Labelling policy: every row with a higher score was labelled ..."
    ),
    random_share: float = typer.Option(None, metavar="SHARE", help="... and this share of the other rows at random."),
    random_draw: bool = RANDOM_DRAW,
    capacity: int = typer.Option(None, min=1, metavar="N", help="Rows that can be reviewed."),
    cost_alert: float = typer.Option(None, min=0.0, metavar="C", help="Cost of reviewing a row."),
    cost_miss: float = typer.Option(None, min=0.0, metavar="M", help="Cost of a missed positive row."),
    precision: str = typer.Option("0.9,0.5", metavar="SHARE,...", help="Target precisions to mark and to promise."),
    max_missed: float = typer.Option(0.05, metavar="SHARE", help="Share of the positives that closing may lose."),
    certainty: float = typer.Option(0.95, metavar="SHARE", help="Probability with which intervals and promises hold."),
    class_weight: float = typer.Option(
        None, metavar="W", help="Weight of the class in training, or how often negatives were thinned; it is undone."
    ),
    seed: int = typer.Option(0, min=0, metavar="N", help="Seed for ties and for the halves of labels with --edges."),
    out: Path = typer.Option(Path("graphcal-alerts"), metavar="FOLDER", help="Folder for the files."),
    json: bool = JSON,
) -> None:
    """Turn one column of scores into a queue: alerts, their precision, what is missed and what may be closed.

    Writes alerts.parquet (id, probability, rank, decision), calibrator.safetensors, report.html and results.json.

    Exit code 0: the labels carry the intervals. 1: they contradict the stated draw. 2: bad input. 3: they carry estimates only.

    graphcal alerts scores.parquet --capacity 400
    graphcal alerts scores.parquet --class fraud --cost-alert 20 --cost-miss 900
    graphcal alerts scores.parquet --time day --label-delay 30d --capacity 400
    """
    from graphcal.files import check_writable
    from graphcal.tables.score_column import duration, look

    targets = [share_of(part, "--precision") for part in precision.split(",") if part.strip()]
    share_of(str(max_missed), "--max-missed")
    share_of(str(certainty), "--certainty")
    if (cost_alert is None) != (cost_miss is None):
        raise ValueError("--cost-alert and --cost-miss go together: pass both.")
    if (reviewed_above is None) != (random_share is None):
        raise ValueError("--reviewed-above and --random-share go together: pass both.")
    if random_share is not None:
        share_of(str(random_share), "--random-share")
    if (label_delay or fit_until) and not time:
        raise ValueError("--label-delay and --fit-until need the column of times. Pass --time COLUMN.")
    if window != "auto" and not time:
        raise ValueError("--window needs the column of times. Pass --time COLUMN.")
    if label_delay and not label_delay.replace(".", "").isdigit():
        duration(label_delay)
    column = look(scores, score, label, labels, class_, kind, [name for name in (time, id_) if name], inclusion)
    check_writable(out)

    from graphcal.alert_table import alerts_of_table

    result = alerts_of_table(
        scores, column, id_=id_, label=label, labels=labels, edges=edges, time=time, inclusion=inclusion,
        fit_until=fit_until, label_delay=label_delay, window=window, reviewed_above=reviewed_above, random_share=random_share,
        random_draw=random_draw, capacity=capacity, cost_alert=cost_alert, cost_miss=cost_miss, precisions=targets,
        max_missed=max_missed, certainty=certainty, class_weight=class_weight, seed=seed,
    )  # fmt: skip
    result.save(out)
    if json:
        typer.echo(json_format.dumps(result.to_dict()))
    else:
        _show(result, out)
    stated = random_draw or result.evidence.design == "known chances"
    raise typer.Exit(0 if result.evidence.carries else 1 if stated else 3)


def share_of(text: str, option: str) -> float:
    """A share strictly between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise ValueError(f"{option} must lie between 0 and 1, got {text.strip()}; 0.5 means 50 %.")
    return value


def _show(result: Alerts, out: Path) -> None:
    console = plain_console()
    first, *rest = result.summary
    print_summary(console, [first])
    console.print()
    console.print(threshold_table(result))
    interval = f"In brackets: {100 * result.closing.certainty:g} % intervals, each row of the table on its own."
    console.print(interval if result.evidence.carries else "All figures are estimates.", style="dim")
    console.print()
    if result.windows:
        print_windows(console, result.windows, class_title(result.positive))
        for one in result.windows:
            if one.drift:
                console.print(f"* {one.name}: scores have changed; {one.drift}", style="dim")
        console.print()
    files = "alerts.parquet, calibrator.safetensors, report.html, results.json"
    print_summary(console, [*rest, ("Saved", f"{out}/ ({files})")])


def threshold_table(result: Alerts) -> Table:
    """The thresholds, at most 80 columns wide."""
    from rich.table import Table

    from graphcal.decisions.alerts import thousands

    costs = result.threshold.cost is not None
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("rows sent", "precision", "found", "missed", *["cost"] * costs, ""):
        table.add_column(title, justify="right" if title else "left", no_wrap=bool(title))
    for row in result.thresholds:
        cost = [thousands(row.cost)] if costs and row.cost is not None else []
        cells = (f"{row.rows:,}", row.precision.text(), row.recall.text(), f"{row.missed:,.0f}", *cost)
        table.add_row(*cells, ", ".join(row.marks), style="bold" if row.rows == result.threshold.rows else None)
    return table


def print_windows(console: Console, windows: Sequence[WindowEstimate], positive: str) -> None:
    """Print the rows sent and the expected positives, precision and recall of each window, at most 80 columns wide."""
    from rich.table import Table

    from graphcal.decisions.alerts import thousands

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("window", "sent", f"expected {positive}"[:20], "precision", "found"):
        table.add_column(title, justify="left" if title == "window" else "right", no_wrap=title != "window")
    for one in windows:
        shares = ["-" if share is None else share.text() for share in (one.precision, one.recall)]
        table.add_row(one.name + " *" * bool(one.drift), thousands(one.sent), one.expected.count_text(), *shares)
    console.print(table)
