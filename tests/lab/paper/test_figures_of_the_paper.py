"""The committed figures are what the committed files give, and the schematics show the equations."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from graphcal.lab.bench.figures import figure_of
from graphcal.lab.bench.files import read_table
from graphcal.lab.bench.presets import preset_titles, read_preset
from graphcal.lab.paper.schematics import CENTROIDS, NODES, confidence, draw_method, draw_node_level, pulled

ROOT = Path(__file__).parents[3]
FIGURES = [name for name in preset_titles() if name.startswith("fig-")]


@pytest.mark.slow_cases("fig-runtime", "fig-histograms", "fig-reliability", "fig-alpha-beta", "fig-decay-reliability")
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_from_files_and_committed(name: str) -> None:
    """Texts and panels are compared, not bytes: fonts and their metrics belong to the machine."""
    preset = read_preset(name)
    figure = figure_of(read_table(ROOT / "results", preset))
    assert figure is not None
    committed = (ROOT / "results" / f"{name}.svg").read_text(encoding="utf-8")
    letters = [
        ax.get_title(loc="left").split()[0] for ax in figure.axes if ax.get_visible() and ax.get_title(loc="left")
    ]
    assert letters == [chr(ord("a") + k) for k in range(len(letters))]
    shown = [text.get_text() for ax in figure.axes if ax.get_visible() for text in ax.texts]
    missing = [line for text in shown for line in text.split("\n") if line and line not in committed]
    assert not missing, f"run graphcal bench pages results: {missing[:3]}"


def test_a_table_read_back_has_the_numbers_of_its_files() -> None:
    table = read_table(ROOT / "results", read_preset("fig-runtime"))
    row = next(row for row in table.rows if row.axis_values["dataset"] == "cora")
    with (ROOT / "results" / "fig-runtime.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if (line["dataset"], line["method"]) == ("cora", "scar-paper")]
    assert row.entries["scar-paper"].mean("ece") == pytest.approx(float(lines[0]["ece_mean"]), abs=1e-3)
    assert sum(row.entries["uncal"].seconds(part) for part in ("train", "search", "fit", "apply")) == pytest.approx(
        0.5917
    )
    assert len(row.entries["ts"].records) == 10


def test_panels_share_their_axes() -> None:
    figure = figure_of(read_table(ROOT / "results", read_preset("fig-histograms")))
    assert figure is not None
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len({ax.get_ylim() for ax in shown}) == 1
    assert len({ax.get_xlim() for ax in shown}) == 1


def test_the_schematics_move_nodes_by_equation_9() -> None:
    moved = pulled(NODES, CENTROIDS, 0.35)
    pred = (NODES @ CENTROIDS.T).argmax(1)
    assert np.allclose(moved, 0.35 * CENTROIDS[pred] + 0.65 * NODES)
    assert ((moved @ CENTROIDS.T).argmax(1) == pred).all()
    assert confidence(moved, CENTROIDS).mean() > confidence(NODES, CENTROIDS).mean()
    for figure in (draw_method(), draw_node_level()):
        assert len(figure.axes) == 3
    for name in ("scar-method", "scar-node-level"):
        assert re.search("<svg", (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8"))
