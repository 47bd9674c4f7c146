"""Cells are plain data with a hash that depends on everything the result depends on, and on nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from small_preset import CELL, GROUP

from graphcal.lab.bench.records import Cell, canonical, digest, jobs_of


def test_a_cell_survives_json() -> None:
    again = Cell.from_dict(json.loads(canonical(CELL.to_dict())))
    assert again == CELL
    assert again.key == CELL.key


def test_the_key_does_not_depend_on_the_order_of_settings() -> None:
    turned = replace(GROUP, training={"epochs": 5, "lr": 0.01})
    assert turned.key == GROUP.key
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": (1, 2), "a": 1})


@pytest.mark.parametrize(
    "other",
    [
        replace(CELL, run=(0, 0)),
        replace(CELL, bins=15),
        replace(CELL, stop="train"),
        replace(CELL, calibrator="none", settings={}),
        replace(CELL, settings={"steps": 200}),
        replace(CELL, groups=(replace(GROUP, dataset="cora"),)),
        replace(CELL, groups=(replace(GROUP, row_normalise=False),)),
        replace(CELL, groups=(replace(GROUP, training={"lr": 0.02, "epochs": 5}),)),
        replace(CELL, groups=(replace(GROUP, runs=((0, 0), (0, 1), (0, 2))),)),
        replace(CELL, groups=(GROUP, replace(GROUP, labels_per_class=40))),
    ],
)
def test_the_key_depends_on_everything_else(other: Cell) -> None:
    assert other.key != CELL.key


def test_cells_with_the_same_models_make_one_job_and_equal_cells_count_once() -> None:
    elsewhere = replace(CELL, groups=(replace(GROUP, backbone="gat"),))
    jobs = jobs_of([CELL, elsewhere, replace(CELL, run=(0, 0)), CELL])
    assert [len(job.cells) for job in jobs] == [2, 1]


def test_a_cell_refuses_what_it_cannot_be() -> None:
    with pytest.raises(ValueError, match="not among the runs trained together"):
        replace(CELL, run=(0, 7))
    with pytest.raises(ValueError, match="stop='test' is not one of val, train, none"):
        replace(CELL, stop="test")
    with pytest.raises(ValueError, match="at least one training group"):
        replace(CELL, groups=())
    with pytest.raises(ValueError, match="Out of range float|not JSON compliant"):
        digest(float("nan"))
