"""Narrow terminals lose columns, never digits; one seed has no spread."""

import copy

import pytest

from graphcal.cli.results_table import columns_of
from sample_results import sample_results

RECORD = sample_results()


def width_of(columns: dict[str, list[str]]) -> int:
    lines = zip(*([heading, *cells] for heading, cells in columns.items()))
    return max(sum(map(len, line)) + len(line) - 1 for line in lines)


@pytest.mark.parametrize("width", [200, 90, 80, 60, 45])
def test_the_table_fits_and_its_numbers_are_whole(width):
    columns, whole = columns_of(RECORD, width), columns_of(RECORD, 1000)
    assert width_of(columns) <= width
    assert {"method", "ECE %", "NLL"} <= set(columns)
    for heading, cells in columns.items():
        assert all(full.startswith(cell) for cell, full in zip(cells, whole[heading]))  # with or without its ±
    assert (columns == whole) == (width_of(whole) <= width)


def test_a_spread_is_given_up_before_a_column():
    whole = columns_of(RECORD, 1000)
    narrower = columns_of(RECORD, width_of(whole) - 1)
    assert set(narrower) == set(whole)
    assert "±" in whole["Brier"][0]
    assert "±" not in narrower["Brier"][0]


def test_one_seed_has_no_spread():
    record = copy.deepcopy(RECORD)
    record["seeds"] = [0]
    assert not any("±" in cell for cells in columns_of(record, 1000).values() for cell in cells)
