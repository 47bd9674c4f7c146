"""Mean ranks and their critical difference, by hand."""

import pytest

from graphcal.lab.bench.comparisons import rank_methods


def test_ranks_by_hand():
    found = rank_methods({"a": [1, 1, 1, 2], "b": [2, 2, 2, 1], "c": [3, 3, 3, 3]})
    assert found.names == ("a", "b", "c")
    assert found.mean == pytest.approx((1.25, 1.75, 3.0))
    assert found.critical_difference == pytest.approx(
        2.343 * (3 * 4 / (6 * 4)) ** 0.5, abs=2e-3
    )  # Demšar's table: q = 2.343
    assert found.alike() == [(0, 1), (1, 2)]
    with pytest.raises(ValueError, match="three methods or more"):
        rank_methods({"a": [1, 2], "b": [2, 1]})
