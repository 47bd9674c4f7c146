"""``graphcal report``: the page of results that were computed before."""

from __future__ import annotations

from pathlib import Path

import typer


def report(
    results: list[Path] = typer.Argument(..., help="results.json files, or folders that hold one."),
    out: Path = typer.Option(Path("report.html"), "--out", "-o", help="Where the page is written."),
) -> None:
    """Make the self-contained page of one or more results.

    graphcal report graphcal-report/results.json -o report.html
    """
    from graphcal.reports import report as page

    path = page(*results).write(out)
    typer.echo(f"Report: {path} ({path.stat().st_size / 1024:.0f} kB)")
