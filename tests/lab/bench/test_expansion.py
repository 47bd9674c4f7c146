"""A preset becomes slots in table order, whole or in part, and places that say why they are empty."""

from __future__ import annotations

import json

import pytest
from small_preset import small

from graphcal.lab.bench.expansion import Filter, blanks, expand


def test_slots_come_in_table_order_and_are_plain_data() -> None:
    slots = list(expand(small(), 2))
    assert [(slot.method, slot.cell.run) for slot in slots] == [
        (method, (0, seed)) for method in ("uncal", "ts", "searched") for seed in (0, 1)
    ]
    for slot in slots:
        assert json.loads(json.dumps(slot.cell.to_dict()))["calibrator"] == slot.cell.calibrator


def test_a_rule_leaves_places_out_and_says_why() -> None:
    rules = [
        {"where": {"method": "ts"}, "leave_out": "not here"},
        {"where": {"method": "searched"}, "leave_out": ""},
    ]
    preset = small(set=rules)
    assert {slot.method for slot in expand(preset)} == {"uncal"}
    assert [(blank.method, blank.reason) for blank in blanks(preset)] == [("ts", "not here")]


def test_only_takes_a_part() -> None:
    preset = small()
    only = Filter.parse("calibrator=ts,seed=1,seed=2", preset)
    assert Filter.parse("seed = 1, 2, calibrator=ts", preset) == only  # a value alone belongs to the name before it
    slots = list(expand(preset, None, only))
    assert {(slot.method, slot.cell.run) for slot in slots} == {(m, (0, s)) for m in ("ts", "searched") for s in (1, 2)}


def test_a_part_that_is_not_there_is_refused() -> None:
    names = "dataset, labels_per_class, backbone, method, calibrator, seed, split"
    with pytest.raises(ValueError, match=f"NAME among {names}"):
        Filter.parse("graph=cora", small())
    with pytest.raises(ValueError, match="takes NAME=VALUE .* got 'cora'"):
        Filter.parse("cora", small())
    with pytest.raises(ValueError, match="small has dataset citeseer"):
        Filter.parse("dataset=cora", small())
