"""The committed tables are what the presets say: their columns, titles and published values."""

from __future__ import annotations

import csv
import re
import statistics
from pathlib import Path

import pytest

import graphcal.lab.paper
from graphcal.lab.bench.files import ADDED, EXPORTED, FIRST
from graphcal.lab.bench.presets import preset_titles, read_preset
from graphcal.lab.bench.publication import page_of
from graphcal.lab.bench.tabulation import printed
from graphcal.metrics.names import metric_of

RESULTS = Path(__file__).parents[3] / "results"
# Columns that were measured and have gone since: graph-scar and settings of graph scaling's first edition.
RETIRED = {
    "graph-scar", "graph-scar-no-pull", "graph-scaling-no-pull", "graph-scaling-labels", "no-pull", "no-neighbours", "no-classes",
    "no-facts",
}  # fmt: skip


TITLES = preset_titles()


def of_this_preset(path: Path) -> bool:
    """Were the runs made with the axes that the preset has today?"""
    header = path.read_text(encoding="utf-8").partition("\n")[0].split(",")
    return path.stem in TITLES and set(read_preset(path.stem).axes) <= set(header)


TABLES = sorted(path for path in RESULTS.glob("*.csv") if of_this_preset(path))


def test_every_preset_of_the_paper_has_its_table() -> None:
    """Presets that are not this folder's have tests of their own."""
    folder = Path(graphcal.lab.paper.__file__).parent / "presets"
    of_paper = {path.stem for path in folder.glob("*.toml")} & TITLES.keys()
    assert len(of_paper) > 15
    assert of_paper <= {path.stem for path in TABLES}


def columns_of(path: Path) -> set[str]:
    with path.open(encoding="utf-8") as file:
        return {line["method"] for line in csv.DictReader(file)}


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_columns_titles_and_published_values_are_those_of_the_preset(path: Path) -> None:
    preset = read_preset(path.stem)
    assert columns_of(path) - set(preset.methods) <= RETIRED
    with path.open(encoding="utf-8") as file:
        for line in (line for line in csv.DictReader(file) if line["method"] in preset.methods):
            method, cell = line["method"], {axis: _like(line[axis], values) for axis, values in preset.axes.items()}
            assert line["title"] == preset.title_of(method)
            value, _ = printed(preset, cell, method)
            assert (line["published_mean"], line["published_sd"]) == tuple(f"{v:.2f}" for v in value or ()) or (
                value is None and not line["published_mean"]
            )


@pytest.mark.slow_cases("blind", "calibrators", "optimisers", "table-accuracy", "table-gat")
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_the_page_is_what_its_files_give_and_carries_a_commit(path: Path) -> None:
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert text == page_of(RESULTS, path.stem)[f"{path.stem}.md"], "run graphcal bench pages results"
    assert re.search(r"\bcommit [0-9a-f]{7,}", text)
    sections = max(1, len(read_preset(path.stem).summary.get("section", ())))
    assert len(re.findall(r"(?m)^\| -", text)) <= 2 * sections, "one or two tables; the rest is CSV"


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_the_numbers_are_those_that_are_exported_today(path: Path) -> None:
    """All of them, or those that were exported when the table was made."""
    runs = path.with_name(f"{path.stem}-runs.csv")
    for file, parts in ((path, ("_mean", "_sd")), (runs, ("",))):
        header = file.read_text(encoding="utf-8").splitlines()[0].split(",")
        exported = EXPORTED if any(f"{m}{parts[0]}" in header for m in ADDED) else FIRST
        columns = [f"{m}{part}" for m in exported for part in parts]
        assert [name for name in header if name in columns] == columns
        assert {f"all_{name}" for name in columns} <= set(header)


@pytest.mark.slow_cases("blind")
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_means_and_deviations_are_those_of_the_runs(path: Path) -> None:
    runs: dict[tuple[str, ...], list[dict[str, str]]] = {}
    with path.with_name(f"{path.stem}-runs.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            axes = list(line)[: list(line).index("split")]
            runs.setdefault(tuple(line[axis] for axis in axes), []).append(line)
    with path.open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if int(line["runs"])]
    assert len(lines) == len(runs)
    for line in lines:
        of_line = runs[tuple(line[axis] for axis in list(line)[: list(line).index("title")])]
        assert len(of_line) == int(line["runs"])
        for name in ("ece", "accuracy", "nll", "all_ece"):
            scale = metric_of(name.removeprefix("all_")).scale
            values = [scale * float(run[name]) for run in of_line]
            assert float(line[f"{name}_mean"]) == pytest.approx(statistics.fmean(values), abs=1e-3)
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            assert float(line[f"{name}_sd"]) == pytest.approx(spread, abs=1e-3)


def test_no_result_of_ours_is_called_scar() -> None:
    """Version 0.1 measured its graph-aware form under the name of SCAR's default."""
    for path in RESULTS.glob("*-runs.csv"):
        with path.open(encoding="utf-8") as file:
            called_scar = "scar" in {line["method"] for line in csv.DictReader(file)}
        assert not called_scar or path.stem.startswith(("calibrators-", "blind")), path  # those measured the paper's


def _like(text: str, values: object) -> object:
    """The value of the axis that is written so."""
    return next(value for value in values if str(value) == text)  # type: ignore[attr-defined]
