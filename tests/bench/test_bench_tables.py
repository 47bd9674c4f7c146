"""Tables say what the records say, mark what differs from the paper, and give reasons where there is nothing."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from bench_small import small
from scipy import stats

from graphcal.bench import outputs
from graphcal.bench.comparisons import difference, over_graphs, over_splits, ranks_of
from graphcal.bench.costs import clock
from graphcal.bench.engines import Serial
from graphcal.bench.exports import csv_of_methods, csv_of_runs, latex
from graphcal.bench.figures import figure_of, reliability_of
from graphcal.bench.markdown import markdown, seconds_markdown
from graphcal.bench.page import from_markdown
from graphcal.bench.session import Session
from graphcal.metrics import ece, reliability
from graphcal.plots.figure import svg


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    session = Session.of(small(), tmp_path_factory.mktemp("bench"))
    session.run(Serial(), lambda: None)
    return session


def test_an_entry_is_the_mean_over_runs(session: Session) -> None:
    (row,) = session.table().rows
    entry = row.entries["uncal"]
    expected = []
    for one in (one for one in session.placed if one.method == "uncal"):
        log_probs, y = session.store.nodes(one.cell.key)
        expected.append(100 * ece(log_probs, y, 20))
    assert entry.values("ece") == pytest.approx(expected)
    assert entry.mean("ece") == pytest.approx(statistics.fmean(expected))
    assert entry.sd("ece") == pytest.approx(statistics.stdev(expected))
    assert f"{entry.mean('ece'):.2f} ± {entry.sd('ece'):.2f}" in markdown(session.table())


def test_published_values_stand_beside_ours_and_are_marked_when_they_differ(session: Session) -> None:
    entries = session.table().rows[0].entries
    assert entries["ts"].published == (99.0, 0.1)
    assert entries["ts"].differs("ece")
    near = small(published=[{"where": {}, "values": {"ts": [entries["ts"].mean("ece") + 0.05, 0.06]}}])
    assert not Session.of(near, session.store.folder).table().rows[0].entries["ts"].differs("ece")
    text = markdown(session.table())
    assert "paper 99.00 ± 0.10 ≠" in text
    assert "1. a known error" in text
    assert entries["searched"].published is None


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
    asked = Session.of(mixed, session.store.folder)
    asked.run(Serial(), lambda: None)
    entries = asked.table().rows[0].entries
    assert all(len(entry.records) == 2 for entry in entries.values())
    assert not any(entry.best or entry.tied for entry in entries.values())
    assert asked.table().ranks is None
    assert "other splits" in markdown(asked.table())


def test_a_place_without_numbers_says_why(session: Session, tmp_path: Path) -> None:
    rule = {"where": {"method": "searched"}, "leave_out": "it cannot be had here"}
    asked = Session.of(small(set=[rule]), tmp_path)
    asked.preset.reasons.update({"citeseer": "the graph is away"})  # type: ignore[attr-defined]
    text = markdown(asked.table())
    assert "it cannot be had here" in text
    assert "the graph is away" in text
    assert "paper 12.48 ± 0.71" in text


def test_half_a_table_says_how_much_is_there(session: Session) -> None:
    more = Session.of(small(), session.store.folder, runs=6).table()
    assert "4 of 6 runs finished" in markdown(more)
    assert not any(entry.best or entry.tied for entry in more.rows[0].entries.values())


def test_tables_are_the_same_bytes_each_time_and_seconds_are_apart(session: Session, tmp_path: Path) -> None:
    first = {p.name: p.read_bytes() for p in outputs.write_outputs(session.table(), tmp_path / "a")}
    again = {p.name: p.read_bytes() for p in outputs.write_outputs(session.table(), tmp_path / "b")}
    assert first == again
    assert set(first) == {f"small{end}" for end in (".md", ".csv", "-runs.csv", ".tex", ".html", "-seconds.md")}
    train = session.table().rows[0].entries["ts"].seconds("train")
    assert f"{train:.4f}" in first["small-seconds.md"].decode()
    assert "seconds" not in first["small.md"].decode()
    assert seconds_markdown(session.table()).count("\n| citeseer |") == 3


def test_csv_holds_every_method_and_every_run(session: Session) -> None:
    table = session.table()
    methods = list(csv.DictReader(io.StringIO(csv_of_methods(table))))
    assert [line["method"] for line in methods] == ["uncal", "ts", "searched"]
    assert float(methods[0]["ece_mean"]) == pytest.approx(table.rows[0].entries["uncal"].mean("ece"), abs=1e-5)
    assert methods[1]["published_mean"] == "99.00"
    runs = list(csv.DictReader(io.StringIO(csv_of_runs(table))))
    assert [line["seed"] for line in runs] == ["0", "1", "2", "3"] * 3
    assert 100 * float(runs[0]["ece"]) == pytest.approx(table.rows[0].entries["uncal"].values("ece")[0], abs=1e-3)


def test_latex_and_html(session: Session) -> None:
    text = latex(Session.of(small(methods=["uncal", "ts"]), session.store.folder).table())
    assert text.count(r"\\") == 2
    assert r"\textbf{" in text
    page = from_markdown(
        "# A < B\n\nText *it* **b** `c`.\n\n| a | b |\n| --- | ---: |\n| <i>x</i> | 1<sup>2</sup> |\n\n1. n", ""
    )
    assert "<h1>A &lt; B</h1>" in page
    assert "<i>it</i> <b>b</b> <code>c</code>" in page
    assert "<td>&lt;i&gt;x&lt;/i&gt;</td><td class=number>1<sup>2</sup></td>" in page
    assert "<ol><li>n</li></ol>" in page


def test_lists_compare_with_the_reference(session: Session) -> None:
    table = Session.of(small(kind="list", against="ts"), session.store.folder).table()
    entries = table.rows[0].entries
    assert set(entries["uncal"].against) == {"ece", "nll"}
    assert entries["uncal"].against["ece"].real
    assert entries["uncal"].against["ece"].value > 0
    assert not entries["ts"].against
    text = markdown(table)
    assert " ✗ |" in text
    assert "ECE − TS" in text


@pytest.mark.parametrize("kind", ["reliability", "histograms", "runtime"])
def test_figures_are_drawn_from_records(session: Session, kind: str) -> None:
    figures = [figure_of(Session.of(small(kind=kind), session.store.folder).table()) for _ in range(2)]
    text, again = (svg(figure) for figure in figures if figure is not None)
    assert text.count("<svg") == 1
    assert "TS" in text
    assert text == again


def test_a_sweep_has_a_point_for_each_value(tmp_path: Path) -> None:
    swept = small(
        kind="sweep", methods=["swept"], runs=1, published=[], figure={"x": "decay", "metrics": ["ece", "accuracy"]},
        axes={"dataset": ["citeseer"], "backbone": ["gcn"], "decay": [0.0, 0.1]},
        define={"swept": {"title": "swept", "calibrator": "none", "bind": {"decay": "training.final_weight_decay"}}},
    )  # fmt: skip
    session = Session.of(swept, tmp_path)
    assert figure_of(session.table()) is None  # nothing is finished
    session.run(Serial(), lambda: None)
    figure = figure_of(session.table())
    assert figure is not None
    (line,) = figure.axes[0].lines
    assert list(line.get_xdata()) == [0.0, 0.1]
    assert list(line.get_ydata()) == [row.entries["swept"].mean("ece") for row in session.table().rows]
    assert len(figure.axes) == 2


def test_the_reliability_of_records_is_that_of_the_nodes(session: Session) -> None:
    entry = session.table().rows[0].entries["ts"]
    found = reliability_of(entry)
    parts = [reliability(*session.store.nodes(key), 20) for key in entry.keys]
    assert torch.allclose(found.count, sum(part.count for part in parts) / len(parts))
    assert torch.allclose(found.right_sum, sum(part.right_sum for part in parts) / len(parts))
    assert torch.allclose(found.conf_sum, sum(part.conf_sum for part in parts) / len(parts), atol=1e-6)


def test_publishing_says_how_it_was_made(session: Session, tmp_path: Path) -> None:
    paths = outputs.publish(session.table(), "graphcal bench small --runs 4", tmp_path)
    text = paths[0].read_text()
    assert "    graphcal bench small --runs 4\n" in text
    assert "Computing time: " in text
    assert str(tmp_path) not in text
    once = outputs.computing_seconds(session.table())
    records = [record for entry in session.table().rows[0].entries.values() for record in entry.records]
    each = sum(r.seconds["train"] + r.seconds["search"] + r.seconds["fit"] + r.seconds["apply"] for r in records)
    assert 0 < once < each  # uncal and ts share a training


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_runs_with_overlapping_test_nodes_are_not_taken_for_independent(share: float) -> None:
    """Nodes from a population without a difference: at 5 % the test rejects 5 % of the time or less, a plain t-test far more."""
    rng, nodes, runs = np.random.default_rng(0), 1000, 10
    rejected = naive = 0
    for _ in range(600):
        of_node = rng.normal(0, 1, nodes)
        parts = [of_node[rng.random(nodes) < share] for _ in range(runs)]
        d = [part.mean() + rng.normal(0, 0.01) for part in parts]
        rejected += over_splits(d, [part.std() / len(part) ** 0.5 for part in parts], share) <= 0.05
        naive += stats.ttest_1samp(d, 0).pvalue <= 0.05
    assert rejected <= 48  # 5 % of 600 and three standard deviations
    assert naive > 100
    shifted = [0.3 + rng.normal(0, 0.01) for _ in range(runs)]
    assert over_splits(shifted, [0.03] * runs, share) < 1e-3
    assert over_splits([0.1], [0.01], share) == 1.0


def test_differences_have_the_sign_of_the_metric(session: Session) -> None:
    keys = {m: [one.cell.key for one in session.placed if one.method == m] for m in ("uncal", "ts")}
    for metric in ("ece", "nll"):
        found = difference(keys["uncal"], keys["ts"], session.store, metric)
        assert found.value > 0
        assert found.real
    same = difference(keys["uncal"], keys["ts"], session.store, "accuracy")
    assert same.value == 0
    assert not same.real


def test_ranks() -> None:
    table = [{"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.0, "b": 3.0, "c": 2.0}]
    found = ranks_of(table, "ece")
    assert found is not None
    assert dict(zip(found.names, found.mean)) == {"a": 1.0, "b": 2.5, "c": 2.5}
    turned = ranks_of(table, "accuracy")
    assert turned is not None
    assert dict(zip(turned.names, turned.mean))["a"] == 3.0
    assert ranks_of(table[:1], "ece") is None


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([-1.0, -2.0, -0.5], 2 / 8),  # the farthest mean of all eight: itself and its mirror image
        ([1.0, -1.0], 1.0),
        ([3.0, -1.0, 1.0], 6 / 8),  # |5|, |3|, |3|, |1| and mirror images: observed 3
        ([0.0, 0.0], 1.0),
        ([0.1] * 9, 2 / 512),
    ],
)
def test_over_graphs_every_sign_is_a_coin(differences: list[float], p: float) -> None:
    assert over_graphs(differences) == pytest.approx(p)


def test_a_list_compares_its_own_method_with_its_rivals_over_graphs(session: Session) -> None:
    table = Session.of(small(kind="list", against="ts", own="ts", rivals=["uncal"]), session.store.folder).table()
    assert "against its rivals" not in markdown(table)  # one graph is no sample of graphs
    other = replace(table.rows[0], facts={**table.rows[0].facts, "dataset": "another"})
    text = markdown(replace(table, rows=(*table.rows, other)))
    entries = table.rows[0].entries
    gap = entries["ts"].mean("ece_excess") - entries["uncal"].mean("ece_excess")
    assert f"| Uncal. | 2 | {gap:+.2f} | 0.500 |" in text


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
