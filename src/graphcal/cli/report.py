"""``graphcal report``: the page, or the model card, of results that were computed before."""

from __future__ import annotations

from pathlib import Path

import typer

from graphcal.cli.console import print_line


def report(
    results: list[Path] = typer.Argument(..., help="results.json files, or folders that hold one."),
    out: Path = typer.Option(
        None, "--out", "-o", metavar="FILE", help="Where it is written: report.html, or README.md with --card."
    ),
    card: bool = typer.Option(
        False, "--card", help="Write a model card in Markdown with Hugging Face's model-index block."
    ),
) -> None:
    """Write a report page from one or more results, or the model card of one.

    graphcal report graphcal-report/results.json -o report.html
    graphcal report graphcal-report --card -o README.md
    """
    from graphcal.files import write_atomically
    from graphcal.reports import model_card
    from graphcal.reports import report as page

    if card:
        if len(results) != 1:
            raise ValueError(f"a model card is of one result; got {len(results)}")
        path = write_atomically(out or Path("README.md"), model_card(results[0]))
        print_line(f"Model card: {path}")
    else:
        path = page(*results).write(out or Path("report.html"))
        print_line(f"Report: {path} ({path.stat().st_size / 1024:.0f} kB)")
