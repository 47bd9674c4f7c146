"""What stands in a table: title, source, what is the same everywhere, the grid, its legend, ranks and notes."""

from __future__ import annotations

import pytest
from small_preset import small
from small_session import small_session, text_of

from graphcal.lab.bench.contents import agreement_words, seconds_blocks
from graphcal.lab.bench.document import Grid, Heading
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


def test_seconds_are_a_document_of_their_own(session: Session) -> None:
    title, _, grid = seconds_blocks(session.table(), level=2)
    assert title == Heading(2, "A small table: seconds")
    assert isinstance(grid, Grid)
    assert grid.header == ["graph", "method", "train", "search", "fit", "apply"]
    assert [row[1].words for row in grid.body] == ["Uncal.", "TS", "searched"]


def test_metrics_beside_have_grids_with_marks_of_their_own(session: Session) -> None:
    """NLL is tested like the table's metric; on all unlabelled nodes there is nothing to pair, and no mark."""
    table = Session.of(small(beside=["nll", "all_ece"]), session.store.folder).table()
    entries = table.rows[0].entries
    text = text_of(table)
    _, after = text.split("## NLL\n")
    by_nll, by_all = after.split("## ECE % on all unlabelled nodes\n")
    assert entries["ts"].plus_minus("nll") in by_nll
    best = min(entries, key=lambda m: entries[m].mean("nll"))
    assert f"*{entries[best].plus_minus('nll')}*" in by_nll, "the best is marked, bold or italic"
    assert f"{entries['ts'].plus_minus('ece', 'unlabelled')}<br><sub>floor" in by_all
    assert "*" not in by_all
    assert "No marks" in by_all
    assert "## NLL" not in text_of(session.table())
