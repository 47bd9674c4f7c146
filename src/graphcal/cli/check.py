"""``graphcal check``: check calibration and set the exit code (for CI)."""

from __future__ import annotations

import json as json_format
from pathlib import Path

import typer

from graphcal.cli.arguments import CLASSES, JSON, KIND, LABELS, SOURCE, TABLE_COLUMNS, column_names, predictions_in
from graphcal.cli.console import plain_console, print_line, print_summary
from graphcal.text import plural

SCHEMA = 1  # of the JSON
EXIT = {"pass": 0, "fail": 1, "unknown": 3}


def check(
    predictions: Path = typer.Argument(
        ...,
        help="Table with `label` and prob_0.., logit_0.. or log_prob_0..: Parquet, CSV, Arrow or npz; a file or a folder; "
        "or what `graphcal run` wrote.",
    ),
    max_ece: float = typer.Option(
        0.05, min=0.0, max=1.0, metavar="SHARE", help="Largest calibration error that is acceptable, as a fraction."
    ),
    confidence: float = typer.Option(
        0.95, min=0.5, max=0.9999, metavar="SHARE", help="How certain the answer must be."
    ),
    bins: int = typer.Option(
        20,
        min=1,
        metavar="N",
        help="Equal-width bins of the confidence; of two classes, bins of equal counts of the probability of class 1.",
    ),
    labels: Path = LABELS,
    split: str = typer.Option(
        None,
        metavar="COLUMN|FILE",
        help="Column or file that says train, val, test: rows that trained or fitted are left out.",
    ),
    kind: str = KIND,
    classes: str = CLASSES,
    source: str = SOURCE,
    columns: str = TABLE_COLUMNS,
    json: bool = JSON,
) -> None:
    """Check calibration and set the exit code (for CI).

    0: yes, with that certainty. 1: measurably not. 2: bad input. 3: too few nodes to tell (and how many it would take).

    Two classes: the probability of class 1 is judged, and its mean against the share of class 1. More: the confidence.

    graphcal check predictions.parquet --max-ece 0.05 --confidence 0.95
    """
    import torch

    from graphcal.metrics.gate import judge
    from graphcal.tables.reading import read_table

    if max_ece <= 0 or max_ece >= 1:
        raise ValueError(f"--max-ece must lie between 0 and 1, got {max_ece}; 0.05 means 5 points")
    table = read_table(predictions_in(predictions), kind, None, classes, labels, column_names(columns), split, source)
    measured, used = table.labelled, 0
    if table.split is not None:
        fitted = torch.as_tensor(table.split.train | table.split.val)
        measured, used = measured & ~fitted, int((measured & fitted).sum())
    if not measured.any():
        raise ValueError(f"{predictions}: no labelled row is left to measure on; {used:,} trained or fitted the model")
    left_out = int((~table.labelled).sum())
    judgement = judge(table.log_probs[measured].double(), table.labels[measured], max_ece, confidence, bins)
    if json:
        counts = {"left_out": left_out, "fitted": used, "bins": bins}
        typer.echo(json_format.dumps({"schema": SCHEMA, **judgement.to_dict(), **counts}))
    else:
        for note in table.notes:
            print_line(f"Note: {note}.", stderr=True)
        rows: list[tuple[str, str]] = [(judgement.outcome, judgement.sentence())]
        if left_out:
            rows.append(("left out", f"{plural(left_out, 'row')} without a label"))
        if used:
            rows.append(("left out", f"{plural(used, 'row')} that trained or fitted the model"))
        print_summary(plain_console(), rows)
    raise typer.Exit(EXIT[judgement.outcome])
