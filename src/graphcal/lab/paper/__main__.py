"""Write every page that is made of the committed results, or check that none would change.

python -m graphcal.lab.paper                   # answer, claims, agreement, paired tests, leaderboard, report
python -m graphcal.lab.paper --check           # write nothing; fail where a page is not what the run files give
python -m graphcal.lab.paper --pdf scar.pdf    # the report as PDF as well: needs chromium and the package markdown
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer
from scipy import stats

from graphcal.files import write_atomically
from graphcal.lab.bench.files import csv_text
from graphcal.lab.paper.agreement import agreement
from graphcal.lab.paper.answer import filled
from graphcal.lab.paper.claims import claims
from graphcal.lab.paper.paired_runs import all_tests, csv_of, page
from graphcal.lab.paper.report import report, write_pdf
from graphcal.lab.paper.run_files import RunFiles

LEADERBOARD = ("nll", "ece", "brier", "accuracy")


def pages(root: Path) -> dict[Path, str]:
    """Path and text of every page, from the run files in ``root/results``."""
    folder = root / "results"
    runs = RunFiles(folder)
    tests = all_tests(runs)
    texts = {
        "claims.md": claims(folder),
        "agreement.md": agreement(folder),
        "paired-runs.md": page(runs, tests),
        "paired-runs.csv": csv_of(tests),
        "leaderboard.csv": leaderboard(folder),
        "report.md": report(folder),
    }
    with_answer = (folder / "README.md", root / "docs" / "reproduction.md")
    return {
        **{folder / name: text for name, text in texts.items()},
        **{path: filled(path, folder) for path in with_answer},
    }


def interval(values: np.ndarray) -> list[str]:
    """Mean, and both ends of Student's interval over runs; a single run has no interval."""
    mean, runs = float(values.mean()), len(values)
    half = float(stats.t.ppf(0.975, runs - 1) * values.std(ddof=1) / np.sqrt(runs)) if runs > 1 else float("nan")
    return [f"{mean:.4f}", *("" if half != half else f"{mean + sign * half:.4f}" for sign in (-1, 1))]


def leaderboard(folder: Path) -> str:
    """The text of leaderboard.csv: every method on every graph of the blind evaluation, ECE and accuracy in percent.

    The 95 % intervals are over splits: mean ± t sd / √R over the R runs of a method on a graph. Test nodes of the splits overlap,
    so they are about other splits of the same graph.
    """
    runs = RunFiles(folder)
    titles = runs.titles("blind")
    body = []
    for row in runs.rows("blind"):
        for method in runs.methods("blind", row):
            values = [runs.at("blind", row, method, metric) for metric in LEADERBOARD]
            numbers = [number for one in values for number in interval(one)]
            body.append([*(value for _, value in row), method, titles[method], str(len(values[0])), *numbers])
    axes = [axis for axis, _ in runs.rows("blind")[0]]
    columns = [f"{metric}{part}" for metric in LEADERBOARD for part in ("", "_low", "_high")]
    return csv_text([*axes, "method", "title", "runs", *columns], body)


def main(
    root: Path = typer.Argument(Path(), help="The folder that holds results/ and docs/."),  # noqa: B008
    check: bool = typer.Option(False, "--check", help="Write nothing; fail where a page would change."),
    pdf: Path = typer.Option(None, help="Also write the report here as PDF."),  # noqa: B008
) -> None:
    for path, text in pages(root).items():
        if not check:
            write_atomically(path, text)
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path} is not what the run files give. Run python -m graphcal.lab.paper.")
    if pdf is not None:
        write_pdf(report(root / "results"), root / "results", pdf)


if __name__ == "__main__":
    typer.run(main)
