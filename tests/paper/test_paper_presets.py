"""Every table and figure of the paper has a preset; presets expand, and their settings are the published ones."""

from __future__ import annotations

import json

import pytest

from graphcal.bench.expansion import expand
from graphcal.bench.presets import matches, preset_titles, read_preset

PAPER = [
    "table-gcn", "table-gat", "table-ablation", "table-accuracy", "table-hetero", "table-backbones", "fig-reliability",
    "fig-histograms", "fig-global-decay", "fig-decay-sweep", "fig-alpha-beta", "fig-runtime", "gats-protocol", "calibrators",
    "scar",
]  # fmt: skip


def test_every_table_and_figure_of_the_paper_has_a_preset() -> None:
    assert set(PAPER) <= preset_titles().keys()
    assert all(preset_titles().values())


@pytest.mark.parametrize("name", preset_titles())
def test_every_preset_expands_to_cells_that_are_plain_data(name: str) -> None:
    preset = read_preset(name)
    slots = list(expand(preset, runs=1))
    assert slots
    for slot in slots[:: max(1, len(slots) // 20)]:
        assert json.loads(json.dumps(slot.cell.to_dict()))["calibrator"] == slot.cell.calibrator
    for entry in preset.published:
        unknown = set(entry["values"]) - set(preset.methods)
        assert not unknown, f"{unknown} are no columns"
    for remark in preset.remarks:
        assert any(matches(remark["where"], {**slot.row, "method": slot.method}) for slot in slots), remark


def test_scar_stands_in_separate_columns_and_the_base_model_has_its_own() -> None:
    for name in ("table-gcn", "table-gat"):
        assert {"scar-paper", "scar-recipe", "scar-val", "scar"} <= set(read_preset(name).methods)
    row = {"dataset": "cora", "labels_per_class": 20, "backbone": "gcn"}
    cells = {slot.method: slot.cell for slot in expand(read_preset("table-gcn"), 1) if slot.row == row}
    assert (cells["scar-paper"].settings["alpha"], cells["scar-paper"].settings["beta"]) == (2e-4, 2e-3)
    assert cells["scar-paper"].group.training["final_weight_decay"] == 1e-4
    assert cells["scar-recipe"].group.training["final_weight_decay"] == 5e-4
    assert cells["scar-recipe"].calibrator == "none"
    assert len(cells["scar-val"].groups) == 4
    assert cells["scar"].group == cells["uncal"].group


def test_a_preset_of_your_own_may_extend_one_of_the_paper(tmp_path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "exceptions"\ntitle = "Mine"\nmethods = ["uncal"]\npublished = []\n')
    mine = read_preset(str(tmp_path / "mine.toml"))
    assert (mine.name, mine.title, mine.runs) == ("mine", "Mine", read_preset("exceptions").runs)
    assert [slot.cell.calibrator for slot in expand(mine, 1)] == ["none"]
