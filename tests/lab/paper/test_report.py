"""The committed pages of the reproduction are what the run files give."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import fmean, stdev

import pytest

from graphcal.lab.paper.__main__ import main, pages

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"


def test_the_committed_pages_are_up_to_date_and_a_change_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pages(ROOT)
    assert {path.name for path in made} >= {"README.md", "claims.md", "agreement.md", "leaderboard.csv", "report.md"}
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m graphcal.lab.paper"
    page = tmp_path / "page.md"
    monkeypatch.setattr("graphcal.lab.paper.__main__.pages", lambda root: {page: "a"})
    with pytest.raises(SystemExit, match="page.md is not what the run files give"):
        main(tmp_path, check=True, pdf=None)
    main(tmp_path, check=False, pdf=None)
    main(tmp_path, check=True, pdf=None)


def test_an_interval_is_students_over_runs() -> None:
    with (RESULTS / "leaderboard.csv").open(encoding="utf-8") as file:
        line = next(line for line in csv.DictReader(file) if line["method"] == "ts" and int(line["runs"]) > 1)
    with (RESULTS / "blind-runs.csv").open(encoding="utf-8") as file:
        axes = list(line)[: list(line).index("method")]
        runs = [r for r in csv.DictReader(file) if all(r[a] == line[a] for a in [*axes, "method"])]
    values = [float(run["nll"]) for run in runs]
    assert float(line["nll"]) == pytest.approx(fmean(values), abs=1e-4)
    t = {2: 12.706, 3: 4.303, 5: 2.776, 10: 2.262}[len(values)]
    half = t * stdev(values) / len(values) ** 0.5
    assert float(line["nll_high"]) == pytest.approx(fmean(values) + half, abs=2e-4)


def test_the_report_has_the_parts_of_a_reproducibility_paper() -> None:
    text = (RESULTS / "report.md").read_text(encoding="utf-8")
    for part in ("Scope", "Method", "Results", "What was easy", "What was hard", "Remaking it"):
        assert f"\n## {part}\n" in text
