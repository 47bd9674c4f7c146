"""What stands in a table: title, source, what is the same everywhere, the grid, its legend and notes."""

from __future__ import annotations

import pytest
from small_preset import small
from small_session import small_session, text_of

from graphcal.lab.bench.contents import agreement_words
from graphcal.lab.bench.session import Session


@pytest.fixture
def session() -> Session:
    return small_session()


def test_a_table_says_its_source_and_what_is_the_same_everywhere(session: Session) -> None:
    title, _, about, _, header, *_ = text_of(session.table()).splitlines()
    assert title == "# A small table"
    assert about == "Source: the test suite. Everywhere: labels 20, backbone gcn."
    assert header == "| graph | Uncal. | TS | searched |"


def test_the_legend_explains_only_what_is_there(session: Session) -> None:
    text = text_of(session.table())
    assert "**Bold**: " in text
    assert "floor: the ECE expected" in text
    assert "paper: the published value" in text
    assert agreement_words(session.table()) in text
    plain = text_of(Session.of(small(metric="accuracy", published=[]), session.store.folder).table())
    assert "floor" not in plain
    assert "published value" not in plain
    assert "equivalent" not in plain


def test_one_metric_stands_beside_with_marks_of_its_own(session: Session) -> None:
    """NLL is tested like the table's metric; the others beside it are in the CSV file."""
    table = Session.of(small(beside=["nll", "all_ece"]), session.store.folder).table()
    entries = table.rows[0].entries
    text = text_of(table)
    _, by_nll = text.split("## NLL\n")
    assert entries["ts"].plus_minus("nll") in by_nll
    best = min(entries, key=lambda m: entries[m].mean("nll"))
    assert f"*{entries[best].plus_minus('nll')}*" in by_nll, "the best is marked, bold or italic"
    assert entries["ts"].plus_minus("ece", "unlabelled") not in text
    assert "## NLL" not in text_of(session.table())
