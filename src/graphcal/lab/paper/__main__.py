"""Write every page that is made of the committed results, or check that none would change.

python -m graphcal.lab.paper                   # answer, claims, agreement, paired tests, leaderboard, report
python -m graphcal.lab.paper --check           # write nothing; fail where a page is not what the run files give
python -m graphcal.lab.paper --pdf scar.pdf    # the report as PDF as well: needs chromium and the package markdown
"""

from __future__ import annotations

from pathlib import Path

import typer

from graphcal.files import write_atomically
from graphcal.lab.paper.agreement import agreement
from graphcal.lab.paper.answer import filled
from graphcal.lab.paper.claims import claims
from graphcal.lab.paper.leaderboard import leaderboard
from graphcal.lab.paper.paired_runs import all_tests, csv_of, page
from graphcal.lab.paper.report import report, write_pdf
from graphcal.lab.paper.run_files import RunFiles


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
