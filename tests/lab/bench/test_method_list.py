"""A list compares every method with the reference on the same nodes, and over graphs."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from small_preset import small
from small_session import small_session, text_of

from graphcal.lab.bench.files import csv_of_differences, csv_of_summary
from graphcal.lab.bench.session import Session

SUMMARY = {"metrics": ["nll", "ece", "label_limit"], "tested": ["nll"]}


@pytest.fixture
def session() -> Session:
    return small_session()


def test_lists_compare_with_the_reference(session: Session) -> None:
    table = Session.of(small(kind="list", against="ts"), session.store.folder).table()
    entries = table.rows[0].entries
    assert set(entries["uncal"].against) == {"ece", "nll"}
    assert entries["uncal"].against["ece"].real
    assert not entries["ts"].against
    lines = list(csv.DictReader(io.StringIO(csv_of_differences(table))))
    assert {line["method"] for line in lines} == {"uncal", "searched"}
    (ece,) = [line for line in lines if (line["method"], line["metric"]) == ("uncal", "ece")]
    gap = entries["uncal"].mean("ece") - entries["ts"].mean("ece")
    assert 100 * float(ece["difference"]) == pytest.approx(gap, abs=1e-3)
    assert float(ece["p"]) < 0.05
    assert csv_of_differences(session.table()) == ""


def test_the_reference_is_taken_off_each_method_and_each_rival_off_the_own_method(session: Session) -> None:
    plain = Session.of(small(kind="list", against="ts", summary=SUMMARY), session.store.folder).table()
    other = replace(plain.rows[0], axis_values={**plain.rows[0].axis_values, "dataset": "another"})
    entries = plain.rows[0].entries
    gap = entries["uncal"].mean("nll") - entries["ts"].mean("nll")
    text = text_of(replace(plain, rows=(*plain.rows, other)))
    assert f"| Uncal. | 2 | {gap:+.4f} | 0 / 2 |" in text
    table = Session.of(small(kind="list", own="ts", rivals=["uncal"], summary=SUMMARY), session.store.folder).table()
    assert f"| Uncal. | 1 | {-gap:+.4f} | 1 / 0 |" in text_of(table)


def test_the_summary_file_has_what_the_page_leaves_out(session: Session) -> None:
    table = Session.of(small(kind="list", against="ts", summary=SUMMARY), session.store.folder).table()
    lines = list(csv.DictReader(io.StringIO(csv_of_summary(table))))
    entry = table.rows[0].entries["uncal"]
    assert [line["method"] for line in lines] == ["Uncal.", "TS", "searched"]
    assert lines[0]["label limit %"] == f"{entry.mean('label_limit'):.2f}"
    assert "label limit" not in text_of(table)
    assert lines[0]["NLL better / worse"] == "0 / 1"
    assert csv_of_summary(session.table()) == ""
