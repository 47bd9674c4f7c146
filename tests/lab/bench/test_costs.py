"""How long the rest will take is learned from what is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_preset import small
from small_session import small_session

from graphcal.lab.bench.session import Session, clock


@pytest.fixture
def session() -> Session:
    return small_session()


def test_clock() -> None:
    assert [clock(t) for t in (None, 3, 600, 7500)] == ["unknown", "3 s", "10 min", "2 h 05 min"]


def test_time_left_is_learned_from_what_is_done(session: Session, tmp_path: Path) -> None:
    assert Session.of(small(), tmp_path).seconds_left() is None
    assert session.seconds_left() == 0.0
    more = Session.of(small(), session.store.folder, runs=8)
    one = Session.of(small(), session.store.folder, runs=6)
    left, half = more.seconds_left(), one.seconds_left()
    assert left is not None
    assert half is not None
    assert 0 < half < left
