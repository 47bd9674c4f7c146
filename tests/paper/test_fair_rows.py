"""Which rows have the fair columns: counted from the run files, a row only with every column and every run."""

from __future__ import annotations

import shutil
from pathlib import Path

from graphcal.bench.presets import read_preset
from graphcal.paper.fair_rows import grid_of_fair_rows, is_complete, places
from graphcal.paper.run_files import RunFiles

RESULTS = Path(__file__).parents[2] / "results"


def test_the_rows_are_those_of_the_paper_that_can_be_had() -> None:
    assert len(list(places(read_preset("table-gcn"), ("corafull",)))) == 9
    gat = list(places(read_preset("table-gat"), ("corafull",)))
    assert len(gat) == 9
    assert {place["backbone"] for place in gat} == {"gat"}
    hetero = list(places(read_preset("table-hetero"), ("arxiv-year",)))
    assert {place["dataset"] for place in hetero} == {"chameleon", "squirrel"}


def test_a_row_that_lacks_one_run_is_not_run(tmp_path: Path) -> None:
    for path in RESULTS.glob("fair-*-runs.csv"):
        shutil.copy(path, tmp_path)
    text = (RESULTS / "fair-runs.csv").read_text(encoding="utf-8").splitlines()
    preset, place = read_preset("fair"), {"dataset": "cora", "labels_per_class": 20, "backbone": "gcn"}
    assert is_complete(RunFiles(RESULTS), preset, place)
    lost = next(k for k, line in enumerate(text) if line.startswith("cora,20,gcn,scar-fit,"))
    (tmp_path / "fair-runs.csv").write_text("\n".join(text[:lost] + text[lost + 1 :]) + "\n", encoding="utf-8")
    assert not is_complete(RunFiles(tmp_path), preset, place)
    gcn = grid_of_fair_rows(RunFiles(tmp_path)).body[0]
    assert "cora 20 gcn" in gcn[3].words
    assert "cora 20 gcn" in grid_of_fair_rows(RunFiles(RESULTS)).body[0][2].words
