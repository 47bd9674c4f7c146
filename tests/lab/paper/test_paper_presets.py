"""Every table and figure of the paper has a preset; presets expand, and their settings are the published ones."""

from __future__ import annotations

import json

import pytest

from graphcal.lab.bench.expansion import expand
from graphcal.lab.bench.presets import matches, preset_titles, read_preset
from graphcal.lab.bench.records import Cell

PAPER = [
    "table-gcn", "table-gat", "table-ablation", "table-accuracy", "table-hetero", "table-backbones", "fig-reliability",
    "fig-histograms", "fig-global-decay", "fig-decay-sweep", "fig-alpha-beta", "fig-runtime", "gats-protocol", "calibrators",
    "fair", "fair-gat", "fair-hetero", "fair-backbones",
]  # fmt: skip


def test_every_table_and_figure_of_the_paper_has_a_preset() -> None:
    assert set(PAPER) <= preset_titles().keys()
    assert all(preset_titles().values())


@pytest.mark.slow_cases("blind")
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


def cells_of(name: str, **row: object) -> dict[str, Cell]:
    return {slot.method: slot.cell for slot in expand(read_preset(name), 1) if slot.row == row}


def test_scar_stands_in_separate_columns_and_the_base_model_has_its_own() -> None:
    for name in ("table-gcn", "table-gat"):
        assert {"scar-paper", "scar-recipe", "scar-val"} <= set(read_preset(name).methods)
    cells = cells_of("table-gcn", dataset="cora", labels_per_class=20, backbone="gcn")
    assert (cells["scar-paper"].settings["alpha"], cells["scar-paper"].settings["beta"]) == (2e-4, 2e-3)
    assert cells["scar-paper"].group.training["final_weight_decay"] == 1e-4
    assert cells["scar-recipe"].group.training["final_weight_decay"] == 5e-4
    assert cells["scar-recipe"].calibrator == "none"
    assert len(cells["scar-val"].groups) == 4
    assert cells["graph-scaling"].group == cells["uncal"].group


FAIR = {"cagcn-noisy", "scar-fit", "graph-scaling"}


@pytest.mark.parametrize("name", ["table-gcn", "table-gat", "table-hetero", "table-backbones"])
def test_the_fair_columns_stand_in_every_table(name: str) -> None:
    """SCAR fitted without a cap over four decays, CaGCN as its code, graph-scaling."""
    preset = read_preset(name)
    assert set(preset.methods) >= FAIR
    cells = next(cells_of(name, **slot.row) for slot in expand(preset, 1) if slot.row["backbone"] not in ("gat-cagcn",))
    assert cells["cagcn-noisy"].calibrator == "cagcn-code"
    assert cells["scar-fit"].calibrator == "scar"
    assert (cells["scar-fit"].settings["alpha"], cells["scar-fit"].settings["beta"]) == (None, None)
    assert len({group.training["final_weight_decay"] for group in cells["scar-fit"].groups}) == 4


@pytest.mark.parametrize("name", ["fair", "fair-gat", "fair-hetero", "fair-backbones"])
def test_scar_is_fitted_over_four_decays_in_every_row(name: str) -> None:
    """That of all layers, and three of the final one."""
    fitted = [slot for slot in expand(read_preset(name), 1) if slot.method in ("scar-fit", "scar-grid-4")]
    assert len({str(slot.row) for slot in fitted}) == {"fair": 9, "fair-gat": 9, "fair-hetero": 4}.get(name, 10)
    for slot in fitted:
        decays = {group.training["final_weight_decay"] for group in slot.cell.groups}
        assert decays == {slot.cell.group.training["weight_decay"], 1e-4, 5e-5, 5e-6}, slot.row


def test_no_column_of_ours_is_called_scar() -> None:
    for name in preset_titles():
        for method, defined in read_preset(name).methods.items():
            ours = str(defined["calibrator"]).startswith("graph-scaling")
            assert not (ours and method.startswith("scar-") and not method.startswith("scar-recipe-")), (name, method)


def test_the_papers_text_alone_has_nothing_that_only_the_code_says() -> None:
    """CaGCN's training with the values of the paper's settings table, and no input dropout, init or rate of the code's."""
    cells = cells_of("table-gcn", dataset="cora", labels_per_class=20, backbone="gcn")
    text, usual = cells["scar-text"].group.training, cells["uncal"].group.training
    expected = {"lr": 0.015, "final_lr": 0.015, "dropout": 0.6, "final_weight_decay": 1e-4}
    assert {key: text[key] for key in text if text[key] != usual[key]} == expected
    assert (cells["scar-text"].settings["alpha"], cells["scar-text"].settings["beta"]) == (2e-4, 2e-3)


def test_the_codes_settings_differ_where_code_and_paper_do() -> None:
    cells = cells_of("table-gcn", dataset="citeseer", labels_per_class=40, backbone="gcn")
    paper, code = (cells[m].group.training["final_weight_decay"] for m in ("scar-paper", "scar-own-code"))
    assert (paper, code) == (4.5e-4, 5e-4)
    cells = cells_of("table-gat", dataset="cora", labels_per_class=20, backbone="gat")
    assert cells["scar-own-code"].calibrator == "scar-gat-code"
    assert (cells["scar-own-code"].settings["alpha"], cells["scar-own-code"].settings["beta"]) == (5e-5, 5e-4)
    assert cells["scar-own-code"].group.training["final_weight_decay"] == 2e-6


def test_a_preset_of_your_own_may_extend_one_of_the_paper(tmp_path) -> None:
    (tmp_path / "mine.toml").write_text(
        'extends = "fair-backbones"\ntitle = "Mine"\nmethods = ["uncal"]\npublished = []\n'
    )
    mine = read_preset(str(tmp_path / "mine.toml"))
    assert (mine.name, mine.title, mine.runs) == ("mine", "Mine", read_preset("fair-backbones").runs)
    assert [slot.cell.calibrator for slot in expand(mine, 1)] == ["none"] * 10
