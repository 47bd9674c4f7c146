"""Tables say what the records say, mark what differs from the paper, and give reasons where there is nothing."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from small_preset import small
from small_session import small_session, text_of

from graphcal.lab.bench.contents import agreement_words
from graphcal.lab.bench.engines import Serial
from graphcal.lab.bench.records import Record
from graphcal.lab.bench.session import Session
from graphcal.lab.bench.tabulation import Entry, Row, Table
from graphcal.metrics import ece


@pytest.fixture
def session() -> Session:
    return small_session()


def test_an_entry_is_the_mean_over_runs(session: Session) -> None:
    (row,) = session.table().rows
    entry = row.entries["uncal"]
    expected = []
    for one in (one for one in session.slots if one.method == "uncal"):
        log_probs, y = session.store.nodes(one.cell.key)
        expected.append(100 * ece(log_probs, y, 20))
    assert entry.values("ece") == pytest.approx(expected)
    assert entry.mean("ece") == pytest.approx(statistics.fmean(expected))
    assert entry.sd("ece") == pytest.approx(statistics.stdev(expected))
    assert f"{entry.mean('ece'):.2f} ± {entry.sd('ece'):.2f}" in text_of(session.table())


def test_published_values_stand_beside_ours_and_are_marked_when_they_differ(session: Session) -> None:
    entries = session.table().rows[0].entries
    assert entries["ts"].published == (99.0, 0.1)
    assert entries["ts"].differs("ece")
    near = small(published=[{"where": {}, "values": {"ts": [entries["ts"].mean("ece") + 0.05, 0.06]}}])
    assert not Session.of(near, session.store.folder).table().rows[0].entries["ts"].differs("ece")
    text = text_of(session.table())
    assert "paper 99.00 ± 0.10 ≠" in text
    assert "1. a known error" in text
    assert entries["searched"].published is None


def test_agreement_is_counted_by_equivalence_first() -> None:
    """Ours 3.9 to 4.1. Published far: different. Near: equivalent, though Welch tells them apart. Scattered: open."""

    def entry(published: tuple[float, float] | None) -> Entry:
        records = tuple(Record({}, {"test": {"ece": v}}, {}, {}) for v in (0.039, 0.040, 0.040, 0.041))
        return Entry(records, (), 4, published)

    published = {"far": (9.0, 0.1), "near": (4.4, 0.1), "same": (4.0, 0.1), "wide": (4.4, 9.0), "none": None}
    entries = {name: entry(value) for name, value in published.items()}
    assert entries["near"].differs("ece")
    table = Table(small(), (Row({}, entries), Row({}, {"far": entries["far"]})))
    assert table.agreement == {"equivalent": 2, "differs": 2, "open": 1}
    assert agreement_words(table) == (
        "Cells with a published value: 5; equivalent to it (two one-sided tests, within 1 point, 5%): 2; "
        "different (≠, not equivalent): 2; open: 1."
    )
    assert agreement_words(Table(small(), (Row({}, {"none": entries["none"]}),))) == ""


def test_one_published_value_may_stand_beside_every_column(session: Session) -> None:
    published = [{"where": {}, "values": {"uncal": [12.48, 0.71]}, "every": [5.0, 0.5]}]
    entries = Session.of(small(published=published), session.store.folder).table().rows[0].entries
    assert {m: e.published for m, e in entries.items()} == {
        "uncal": (12.48, 0.71),
        "ts": (5.0, 0.5),
        "searched": (5.0, 0.5),
    }


def test_bold_needs_a_test_against_every_other_method(session: Session) -> None:
    """Thirty epochs leave a model so under-confident that TS is beyond doubt better; two TS columns are not told apart."""
    entries = session.table().rows[0].entries
    assert not any(entry.best for entry in entries.values())
    assert {m for m, entry in entries.items() if entry.tied} == {"ts", "searched"}
    alone = Session.of(small(methods=["uncal", "ts"]), session.store.folder).table().rows[0].entries
    assert alone["ts"].best
    assert not alone["uncal"].best
    assert not alone["ts"].tied


def test_methods_on_other_test_nodes_stand_side_by_side_but_are_not_compared(session: Session) -> None:
    elsewhere = {"title": "other splits", "protocol": "random", "over": "splits", "calibrator": "none"}
    mixed = small(methods=["uncal", "ts", "elsewhere"], define={"elsewhere": elsewhere}, runs=2)
    combined = Session.of(mixed, session.store.folder)
    combined.run(Serial(), lambda: None)
    entries = combined.table().rows[0].entries
    assert all(len(entry.records) == 2 for entry in entries.values())
    assert not any(entry.best or entry.tied for entry in entries.values())
    assert "other splits" in text_of(combined.table())


def test_a_place_without_numbers_says_why(session: Session, tmp_path: Path) -> None:
    rule = {"where": {"method": "searched"}, "leave_out": "it cannot be had here"}
    assert "it cannot be had here" in text_of(Session.of(small(set=[rule]), session.store.folder).table())
    refused = Session.of(small(set=[rule]), tmp_path)
    refused.preset.reasons.update({"citeseer": "the graph is away"})  # type: ignore[attr-defined]
    text = text_of(refused.table())
    assert "Not run: citeseer (the graph is away)." in text


def test_half_a_table_says_how_much_is_there(session: Session) -> None:
    more = Session.of(small(), session.store.folder, runs=6).table()
    assert "4 of 6 runs finished" in text_of(more)
    assert not any(entry.best or entry.tied for entry in more.rows[0].entries.values())
