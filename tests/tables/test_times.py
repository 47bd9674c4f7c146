"""Columns of times sort as time does, whatever they are written as; the rest is refused."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from graphcal.tables.reading import times_of


def order(values, kind=None):
    return np.argsort(times_of(pa.chunked_array([pa.array(values, kind)]), "t", "x.parquet"), kind="stable").tolist()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["10", "9", "1"], [2, 1, 0]),
        (["2026-10-01", "2026-09-30", "2026-09-05"], [2, 1, 0]),
        (["2026-10-02T00:30:00+02:00", "2026-10-01T23:00:00Z"], [0, 1]),  # half past midnight there is earlier
        ([2.5, 1.5], [1, 0]),
        ([datetime.date(2026, 10, 1), datetime.date(2026, 9, 1)], [1, 0]),
    ],
)
def test_order(values, expected):
    assert order(values) == expected


def test_zones_of_timestamps():
    zone = pa.timestamp("us", "Europe/Berlin")
    values = [datetime.datetime(2026, 10, 1, 22, 30, tzinfo=datetime.timezone.utc)]
    assert str(times_of(pa.chunked_array([pa.array(values, zone)]), "t", "x")[0]).startswith("2026-10-01T22:30")


@pytest.mark.parametrize(
    "values", [["w1", "w10", "w2"], ["1.10.2026", "11.9.2026"], ["2026-10-01T00:30+02:00", "2026-10-01"]]
)
def test_text_that_does_not_sort_is_refused(values):
    with pytest.raises(ValueError, match=r"x.parquet: column 't' holds text such as .*does not sort as time does"):
        order(values)


def test_gaps_are_refused_by_row():
    with pytest.raises(ValueError, match=r"1 rows have no time in column 't' \(first: row 1\)"):
        order([1, None, 3])
    assert np.isnan(times_of(pa.chunked_array([pa.array([1, None])]), "t", "x", missing=True)[1])


def test_other_columns_are_refused():
    with pytest.raises(ValueError, match="is bool, not a time"):
        order([True, False])
