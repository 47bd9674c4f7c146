"""Rules, bindings and defaults land where they should, and equal trainings have equal hashes."""

from __future__ import annotations

from typing import Any

import pytest
from small_preset import small

from graphcal.lab.bench.expansion import SlotSettings, expand, resolve, run_id

ROW = {"dataset": "citeseer", "backbone": "gcn"}


def test_the_later_rule_wins_and_a_bound_axis_wins_over_all() -> None:
    preset = small(
        methods=["swept"],
        axes={"dataset": ["citeseer"], "backbone": ["gcn"], "decay": [1e-3, 0.0]},
        define={"swept": {"calibrator": "none", "bind": {"decay": "training.weight_decay"}, "training": {"lr": 0.5}}},
        set=[{"where": {"method": "swept"}, "training": {"lr": 0.25, "weight_decay": 7.0}}],
    )
    trainings = [slot.cell.group.training for slot in expand(preset, 1)]
    assert [t["weight_decay"] for t in trainings] == [1e-3, 0.0]
    assert {t["lr"] for t in trainings} == {0.25}
    assert {t["epochs"] for t in trainings} == {30}


def test_settings_go_with_the_calibrator_they_were_for() -> None:
    method = {"calibrator": "gats", "settings": {"heads": 1}, "training": {"lr": 0.5}}
    rules = [
        {"where": {"backbone": "gat"}, "calibrator": "ts"},
        {"where": {"backbone": "gcn"}, "settings": {"seed": 7}},
    ]
    preset = small(methods=["one"], define={"one": method}, set=rules)
    assert resolve(preset, ROW, "one").settings == {"heads": 1, "seed": 7}
    other = resolve(preset, {**ROW, "backbone": "gat"}, "one")
    assert (other.calibrator, other.settings, other.training["lr"]) == ("ts", {}, 0.5)


def test_none_can_be_said_in_toml() -> None:
    preset = small(base={"protocol": "public", "training": {"patience": "none"}})
    assert next(expand(preset, 1)).cell.group.training["patience"] is None


def test_equal_trainings_have_equal_hashes_however_they_are_said() -> None:
    trainings = {
        "a": {},
        "b": {"training": {"final_weight_decay": 5e-4}},
        "c": {"search": {"final_weight_decay": ["none"]}},
    }
    preset = small(
        methods=list(trainings), define={name: {"calibrator": "none", **how} for name, how in trainings.items()}
    )
    assert len({slot.cell.group.key for slot in expand(preset, 1)}) == 1


def test_a_calibrator_that_draws_numbers_takes_the_seed_of_the_run() -> None:
    assert [slot.cell.settings["seed"] for slot in expand(small(methods=["cagcn"]))] == [0, 1, 2, 3]


def test_blocks_are_whole_however_many_runs_are_asked_for() -> None:
    three = [slot.cell for slot in expand(small(), 3)]
    four = [slot.cell for slot in expand(small(), 4)]
    assert {cell.key for cell in three} < {cell.key for cell in four}
    assert {cell.group.runs for cell in four} == {((0, 0), (0, 1)), ((0, 2), (0, 3))}


def settings(**given: Any) -> SlotSettings:
    return SlotSettings(**{"calibrator": "none", "protocol": "public", **given})


def test_runs_go_over_seeds_or_round_the_splits() -> None:
    assert [run_id(n, settings()) for n in (0, 7)] == [(0, 0), (0, 7)]
    assert run_id(2, settings(first_run=10)) == (0, 12)
    assert [run_id(n, settings(over="splits", protocol="geom-gcn")) for n in (3, 12)] == [(3, 3), (2, 12)]
    assert run_id(40, settings(over="splits", protocol="per-class")) == (40, 40)
    with pytest.raises(ValueError, match="over='folds' is not one of seeds, splits"):
        run_id(0, settings(over="folds"))


def test_errors_name_the_thing_and_the_choices() -> None:
    with pytest.raises(ValueError, match="'small': unknown key 'colour' for 'ts'; choose one of calibrator, protocol"):
        resolve(small(base={"protocol": "public", "colour": "red"}), ROW, "ts")
    with pytest.raises(ValueError, match="preset 'small' has no protocol for 'ts'"):
        resolve(small(base={}), ROW, "ts")
    with pytest.raises(ValueError, match="unknown calibrator 'nope'; choose among none, ts"):
        list(expand(small(methods=["x"], define={"x": {"calibrator": "nope"}})))
    with pytest.raises(ValueError, match="calibrator 'vs' has no setting alpha; it has bias"):
        list(expand(small(methods=["x"], define={"x": {"calibrator": "vs", "settings": {"alpha": 1}}})))
