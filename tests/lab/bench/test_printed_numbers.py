"""A preset points at printed numbers: rows, columns, other names and remarks come out in the preset's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphcal.lab.bench.presets import build_preset, look_up
from graphcal.lab.bench.tabulation import printed

NUMBERS = """
[axes]
ece = ["dataset", "labels_per_class"]
accuracy = ["dataset", "backbone"]

[ece.cora]
20 = { raw = [13.0, 0.5], ts = [4.0, 0.25] }
40 = { raw = [11.0, 0.5] }

[accuracy.cora]
gat = { raw = [82.0, 0.5] }

[[remark]]
tables = ["ece", "accuracy"]
where = { dataset = "cora", column = ["ts", "raw"] }
text = "in both"

[[remark]]
tables = ["ece"]
where = { dataset = "cora", labels_per_class = 40 }
text = "the whole row"
"""


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.toml"
    path.write_text(NUMBERS)
    return path


def at(numbers: Path, pointer: dict[str, Any], method: str, **row: Any) -> tuple[Any, tuple[str, ...]]:
    """What stands beside a method in a place."""
    text = {"title": "", "source": "", "runs": 1, "methods": "all", "axes": {}, "numbers": numbers}
    return printed(build_preset("one", {**text, "published": [pointer]}), row, method)


def test_a_column_is_found_by_row_and_name(numbers: Path) -> None:
    pointer = {"table": "ece", "columns": {"uncal": "raw", "ts-fast": "ts", "ts-slow": "ts"}}
    assert at(numbers, pointer, "uncal", dataset="cora", labels_per_class=20)[0] == (13.0, 0.5)
    assert at(numbers, pointer, "ts-fast", dataset="cora", labels_per_class=20)[0] == (4.0, 0.25)
    assert at(numbers, pointer, "ts-slow", dataset="cora", labels_per_class=20)[0] == (4.0, 0.25)
    assert at(numbers, pointer, "ts-slow", dataset="cora", labels_per_class=40)[0] is None  # the paper has none
    assert at(numbers, pointer, "ts", dataset="cora", labels_per_class=20)[0] is None  # not pointed at
    assert at(numbers, pointer, "uncal", dataset="pubmed", labels_per_class=20)[0] is None


def test_every_other_column_may_have_one_value(numbers: Path) -> None:
    pointer = {"table": "ece", "columns": {"ts": "ts"}, "every": "raw"}
    assert at(numbers, pointer, "anything", dataset="cora", labels_per_class=20)[0] == (13.0, 0.5)
    assert at(numbers, pointer, "ts", dataset="cora", labels_per_class=20)[0] == (4.0, 0.25)


def test_our_names_stand_for_the_papers(numbers: Path) -> None:
    pointer = {"table": "accuracy", "called": {"gat-cagcn": "gat", "cora-filtered": "cora"}, "every": "raw"}
    for backbone in ("gat", "gat-cagcn"):
        for dataset in ("cora", "cora-filtered"):
            assert at(numbers, pointer, "uncal", dataset=dataset, backbone=backbone)[0] == (82.0, 0.5)
    assert at(numbers, pointer, "uncal", dataset="cora", backbone="gcn")[0] is None


def test_a_table_may_be_for_some_slots_only(numbers: Path) -> None:
    pointer = {"table": "ece", "where": {"backbone": "gcn"}, "every": "raw"}
    assert at(numbers, pointer, "uncal", dataset="cora", labels_per_class=40, backbone="gcn")[0] == (11.0, 0.5)
    assert at(numbers, pointer, "uncal", dataset="cora", labels_per_class=40, backbone="gat")[0] is None


def test_remarks_come_when_they_are_asked_for(numbers: Path) -> None:
    pointer = {"table": "ece", "columns": {"uncal": "raw", "warm": "ts"}}
    row = {"dataset": "cora", "labels_per_class": 40}
    assert at(numbers, pointer, "uncal", **row)[1] == ()
    with_remarks = {**pointer, "remarks": True}
    assert at(numbers, with_remarks, "uncal", **row)[1] == ("in both", "the whole row")
    assert at(numbers, with_remarks, "warm", dataset="cora", labels_per_class=20)[1] == ("in both",)
    assert at(numbers, with_remarks, "another", **row)[1] == ("the whole row",)


def test_a_preset_may_hold_numbers_itself() -> None:
    entry = {"where": {"dataset": "cora"}, "values": {"ts": [4.0, 0.1]}}
    assert look_up([entry], None) == ([entry], [])


def test_errors_name_the_thing_and_the_choices(numbers: Path) -> None:
    with pytest.raises(ValueError, match=r"numbers.toml has no table 'nll'; choose one of ece, accuracy"):
        look_up([{"table": "nll"}], numbers)
    with pytest.raises(ValueError, match="published table 'ece' has no column vs"):
        look_up([{"table": "ece", "columns": {"vs": "vs"}}], numbers)
    with pytest.raises(ValueError, match="published has no key colums; choose among table, where"):
        look_up([{"table": "ece", "colums": {}}], numbers)
    with pytest.raises(ValueError, match="names no file of them: numbers = FILE"):
        look_up([{"table": "ece"}], None)
