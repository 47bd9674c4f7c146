"""A list compares every method with the reference, and one method with its rivals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_preset import small
from small_session import small_session, text_of

from graphcal.lab.bench.session import Session


@pytest.fixture
def session() -> Session:
    return small_session()


def test_lists_compare_with_the_reference(session: Session) -> None:
    table = Session.of(small(kind="list", against="ts"), session.store.folder).table()
    entries = table.rows[0].entries
    assert set(entries["uncal"].against) == {"ece", "nll"}
    assert entries["uncal"].against["ece"].real
    assert entries["uncal"].against["ece"].value > 0
    assert not entries["ts"].against
    text = text_of(table)
    assert " ✗ |" in text
    assert "ECE − TS" in text


def test_a_list_compares_its_own_method_with_its_rivals_over_graphs(session: Session) -> None:
    table = Session.of(small(kind="list", against="ts", own="ts", rivals=["uncal"]), session.store.folder).table()
    assert "against its rivals" not in text_of(table)  # one graph is no sample of graphs
    other = replace(table.rows[0], axis_values={**table.rows[0].axis_values, "dataset": "another"})
    text = text_of(replace(table, rows=(*table.rows, other)))
    entries = table.rows[0].entries
    gap = entries["ts"].mean("ece_excess") - entries["uncal"].mean("ece_excess")
    assert f"| Uncal. | 2 | {gap:+.2f} | 0.500 |" in text
