"""Every preset expands; rules, bindings and published values land where they should."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from bench_small import small

from graphcal.bench.expansion import expanded, run_of, settled
from graphcal.bench.only import Only
from graphcal.bench.presets import preset, preset_names, preset_titles

PAPER = [
    "table-gcn", "table-gat", "table-ablation", "table-accuracy", "table-hetero", "table-backbones", "fig-reliability",
    "fig-histograms", "fig-global-decay", "fig-decay-sweep", "fig-alpha-beta", "fig-runtime", "gats-protocol", "calibrators",
    "scar",
]  # fmt: skip


def test_every_table_and_figure_of_the_paper_has_a_preset() -> None:
    assert set(PAPER) <= set(preset_names())
    assert all(preset_titles().values())


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_expands_to_cells_that_are_plain_data(name: str) -> None:
    chosen = preset(name)
    placed = list(expanded(chosen, runs=1))
    assert placed
    for one in placed[:: max(1, len(placed) // 20)]:
        assert json.loads(json.dumps(one.cell.to_dict()))["calibrator"] == one.cell.calibrator
    for found in chosen.published:
        facts = [{**one.row, "method": one.method} for one in placed]
        for method in found.get("values", {}):
            assert method in chosen.methods, f"{method} is no column"
        assert any(_fits(found["where"], fact) for fact in facts), f"{found['where']} is no row"
    for remark in chosen.remarks:
        assert any(_fits(remark["where"], {**one.row, "method": one.method}) for one in placed), remark


def _fits(where: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    return all(facts[key] in (value if isinstance(value, list) else [value]) for key, value in where.items())


def test_scar_stands_in_separate_columns_and_the_base_model_has_its_own() -> None:
    for name in ("table-gcn", "table-gat"):
        chosen = preset(name)
        assert {"scar-paper", "scar-recipe", "scar-val", "scar"} <= set(chosen.methods)
    row = {"dataset": "cora", "labels_per_class": 20, "backbone": "gcn"}
    published = {one.method: one.cell for one in expanded(preset("table-gcn"), 1) if one.row == row}
    assert (published["scar-paper"].settings["alpha"], published["scar-paper"].settings["beta"]) == (2e-4, 2e-3)
    assert published["scar-paper"].base.training["final_weight_decay"] == 1e-4
    assert published["scar-recipe"].base.training["final_weight_decay"] == 5e-4
    assert published["scar-recipe"].calibrator == "none"
    assert len(published["scar-val"].bases) == 4
    assert published["scar"].base == published["uncal"].base


@pytest.mark.parametrize(
    ("name", "where", "method", "value"),
    [
        ("table-gcn", {"dataset": "cora", "labels_per_class": 20}, "uncal", [13.47, 0.63]),
        ("table-gcn", {"dataset": "pubmed", "labels_per_class": 60}, "scar-paper", [2.67, 0.63]),
        ("table-gat", {"dataset": "citeseer", "labels_per_class": 40}, "ts", [7.97, 0.31]),
        ("table-hetero", {"dataset": "squirrel", "backbone": "gat"}, "scar-val", [8.12, 0.53]),
        ("table-backbones", {"dataset": "cora", "backbone": "gcnii"}, "uncal", [35.51, 0.56]),
        ("table-ablation", {"dataset": "pubmed", "backbone": "gcn"}, "scar-nlc", [3.88, 0.44]),
        ("table-accuracy", {"dataset": "cora", "labels_per_class": 40, "backbone": "gcn"}, "au-ls", [82.90, 0.69]),
    ],
)
def test_published_values(name: str, where: dict[str, Any], method: str, value: list[float]) -> None:
    found = [entry["values"][method] for entry in preset(name).published if entry["where"] == where]
    assert found == [value]


def test_published_tables_are_whole() -> None:
    assert sum(len(entry["values"]) for entry in preset("table-gcn").published) == 12 * 8 - 3  # MS has no CoraFull
    assert sum(len(entry["values"]) for entry in preset("table-gat").published) == 12 * 8 - 3
    assert sum(len(entry["values"]) for entry in preset("table-accuracy").published) == 12 * 6
    assert sum(len(entry["values"]) for entry in preset("table-ablation").published) == 8 * 4
    assert sum(len(entry["values"]) for entry in preset("table-hetero").published) == 12
    assert sum(len(entry["values"]) for entry in preset("table-backbones").published) == 20


def test_the_later_rule_wins_and_a_bound_axis_wins_over_all() -> None:
    chosen = small(
        methods=["swept"],
        axes={"dataset": ["citeseer"], "backbone": ["gcn"], "decay": [1e-3, 0.0]},
        define={"swept": {"calibrator": "none", "bind": {"decay": "training.weight_decay"}, "training": {"lr": 0.5}}},
        set=[{"where": {"method": "swept"}, "training": {"lr": 0.25, "weight_decay": 7.0}}],
    )
    trainings = [one.cell.base.training for one in expanded(chosen, 1)]
    assert [t["weight_decay"] for t in trainings] == [1e-3, 0.0]
    assert {t["lr"] for t in trainings} == {0.25}
    assert {t["epochs"] for t in trainings} == {30}


def test_none_can_be_said_in_toml() -> None:
    chosen = small(base={"protocol": "public", "training": {"patience": "none"}})
    assert next(expanded(chosen, 1)).cell.base.training["patience"] is None


def test_equal_trainings_have_equal_hashes_however_they_are_said() -> None:
    said = {"a": {}, "b": {"training": {"final_weight_decay": 5e-4}}, "c": {"search": {"final_weight_decay": ["none"]}}}
    chosen = small(methods=list(said), define={name: {"calibrator": "none", **how} for name, how in said.items()})
    assert len({one.cell.base.key for one in expanded(chosen, 1)}) == 1


def test_a_calibrator_that_draws_numbers_takes_the_seed_of_the_run() -> None:
    chosen = small(methods=["cagcn"])
    assert [one.cell.settings["seed"] for one in expanded(chosen)] == [0, 1, 2, 3]


def test_blocks_are_whole_however_many_runs_are_asked_for() -> None:
    small_preset = small()
    three = [one.cell for one in expanded(small_preset, 3)]
    four = [one.cell for one in expanded(small_preset, 4)]
    assert {cell.key for cell in three} < {cell.key for cell in four}
    assert {cell.base.runs for cell in four} == {((0, 0), (0, 1)), ((0, 2), (0, 3))}


def test_runs_go_over_seeds_or_round_the_splits() -> None:
    assert [run_of(n, {"over": "seeds"}) for n in (0, 7)] == [(0, 0), (0, 7)]
    assert [run_of(n, {"over": "splits", "protocol": "geom-gcn"}) for n in (3, 12)] == [(3, 3), (2, 12)]
    assert run_of(40, {"over": "splits", "protocol": "per-class"}) == (40, 40)
    with pytest.raises(ValueError, match="over='folds' is not one of seeds, splits"):
        run_of(0, {"over": "folds"})


def test_only_takes_a_part() -> None:
    small_preset = small()
    only = Only.parse("calibrator=ts,seed=1,seed=2", small_preset)
    assert Only.parse("seed = 1, 2, calibrator=ts", small_preset) == only  # a value alone belongs to the name before it
    placed = list(expanded(small_preset, None, only))
    assert {(one.method, one.cell.run) for one in placed} == {(m, (0, s)) for m in ("ts", "searched") for s in (1, 2)}
    with pytest.raises(
        ValueError, match="NAME among dataset, labels_per_class, backbone, method, calibrator, seed, split"
    ):
        Only.parse("graph=cora", small_preset)
    with pytest.raises(ValueError, match="takes NAME=VALUE .* got 'cora'"):
        Only.parse("cora", small_preset)
    with pytest.raises(ValueError, match="small has dataset citeseer"):
        Only.parse("dataset=cora", small_preset)


def test_errors_name_the_thing_and_the_choices() -> None:
    with pytest.raises(ValueError, match="unknown preset 'table-1'; choose one of .*table-gcn"):
        preset("table-1")
    with pytest.raises(ValueError, match="names the methods nothing; known are .*uncal"):
        small(methods=["nothing"])
    with pytest.raises(ValueError, match="unknown key 'colour'"):
        settled(small(base={"colour": "red"}), {"dataset": "citeseer", "backbone": "gcn"}, "ts")
    with pytest.raises(ValueError, match="unknown calibrator 'nope'; choose one of none, ts"):
        list(expanded(small(methods=["x"], define={"x": {"calibrator": "nope"}})))
    with pytest.raises(ValueError, match="calibrator 'vs' has no setting alpha; it has bias"):
        list(expanded(small(methods=["x"], define={"x": {"calibrator": "vs", "settings": {"alpha": 1}}})))


OWN = """
extends = "exceptions"
title = "Mine"
methods = ["uncal", "short"]
published = []
[axes]
dataset = ["citeseer"]
labels_per_class = [20]
backbone = ["gcn"]
[define.short]
title = "ten epochs"
training = { epochs = 10 }
calibrator = "ts"
"""


def test_a_preset_of_your_own_is_read_from_a_file_and_may_extend_one_that_is_here(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(OWN)
    mine = preset(str(tmp_path / "mine.toml"))
    assert (mine.name, mine.title, mine.runs) == ("mine", "Mine", preset("exceptions").runs)
    epochs = {one.method: one.cell.base.training["epochs"] for one in expanded(mine, 1)}
    assert epochs == {"uncal": 2000, "short": 10}


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("mine.toml", None, "no preset file"),
        ("mine.toml", "a = = 1", "not TOML"),
        ("mine.toml", 'title = "T"\nruns = 1\nmethods = ["ts"]', "lacks source, axes"),
        ("mine.toml", 'extends = "table-gnc"', "extends 'table-gnc'; choose one of"),
        ("table-gcn.toml", OWN, "rename it"),
    ],
)
def test_a_preset_file_that_cannot_be_used_says_what_is_wrong(
    file: str, text: str | None, says: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=says):
        preset(str(tmp_path / file))
