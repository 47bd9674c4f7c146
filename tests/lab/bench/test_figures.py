"""Figures are drawn from records alone, the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_preset import small
from small_session import small_session

from graphcal.lab.bench.engines import Serial
from graphcal.lab.bench.figures import figure_of, reliability_of
from graphcal.lab.bench.records import Record
from graphcal.lab.bench.session import Session
from graphcal.lab.bench.tabulation import Entry, Row, Table
from graphcal.metrics import reliability
from graphcal.plots import svg


@pytest.fixture
def session() -> Session:
    return small_session()


@pytest.mark.slow_cases("runtime", "reliability")
@pytest.mark.parametrize("kind", ["reliability", "histograms", "runtime"])
def test_figures_are_drawn_from_records(session: Session, kind: str) -> None:
    figures = [figure_of(Session.of(small(kind=kind), session.store.folder).table()) for _ in range(2)]
    text, again = (svg(figure) for figure in figures if figure is not None)
    assert text.count("<svg") == 1
    assert "TS" in text
    assert text == again


@pytest.mark.slow
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
    (curve,) = figure.axes[0].containers  # with bars of one deviation
    line = curve.lines[0]
    assert list(line.get_xdata()) == [0.0, 0.1]
    assert list(line.get_ydata()) == [row.entries["swept"].mean("ece") for row in session.table().rows]
    assert len(figure.axes) == 2


def test_groups_of_methods_have_rows_of_panels_of_their_own(session: Session) -> None:
    """Letters go on, titles say the group, the floor is the group's own; the y axis is that of all."""
    preset = small(
        kind="sweep", published=[],
        figure={
            "x": "labels_per_class", "metrics": ["ece"], "ticks": [20, 5e-3],
            "groups": {"plain": ["uncal"], "fitted": ["ts"]},
        },
    )  # fmt: skip
    figure = figure_of(Session.of(preset, session.store.folder).table())
    assert figure is not None
    above, below = figure.axes
    assert [ax.get_title(loc="left").split(", ")[-1] for ax in (above, below)] == ["plain", "fitted"]
    assert [ax.get_title(loc="left")[0] for ax in (above, below)] == ["a", "b"]
    assert above.get_ylim() == below.get_ylim()
    drawn = [float(ax.containers[0].lines[0].get_ydata()[0]) for ax in (above, below)]
    entries = session.table().rows[0].entries
    assert drawn == [entries["uncal"].mean("ece"), entries["ts"].mean("ece")]
    assert [label.get_text() for label in below.get_xticklabels()] == ["20", "5e-3"]


def row(graph: str, **nll: list[float]) -> Row:
    """A row of a table with these NLLs, run by run; the ECE is a tenth of it."""

    def record(run: int, value: float) -> Record:
        return Record({"run": [0, run]}, {"test": {"nll": value, "ece": value / 10}}, {}, {})

    entries = {
        m: Entry(tuple(record(k, v) for k, v in enumerate(values)), (), len(values)) for m, values in nll.items()
    }
    return Row({"dataset": graph, "backbone": "gcn"}, entries)


def test_dots_are_differences_to_ts_on_shared_runs_and_mark_the_part() -> None:
    """Rows of one graph are averaged; the second run of uncal on graph 0 has no partner and is left out."""
    preset = small(kind="list", summary={"metrics": ["nll"], "part": "new", "where": {"dataset": ["g3", "g4"]}})
    rows = [row(f"g{k}", uncal=[1.0 + k, 50.0][: 1 + (k == 0)], ts=[0.5], searched=[0.4]) for k in range(5)]
    rows.append(row("g4", uncal=[7.5], ts=[0.5], searched=[0.4]))
    figure = figure_of(Table(preset, tuple(rows)))
    assert figure is not None
    nll = figure.axes[0]
    assert [tick.get_text() for tick in nll.get_yticklabels()] == ["searched", "Uncal."]  # the lowest on top
    drawn = {
        line.get_label(): sorted(line.get_xdata())
        for line in nll.lines
        if len(line.get_ydata()) and line.get_ydata()[0] == 1 and line.get_linestyle() == "None"
    }
    assert drawn["other graphs"] == pytest.approx([0.5, 1.5, 2.5])
    assert drawn["graphs: new"] == pytest.approx([3.5, 5.75])  # (4.5 + 7) / 2
    assert figure_of(Table(preset, tuple(rows[:4]))) is None  # four graphs


def test_a_dot_beyond_the_axis_is_a_triangle_at_its_edge() -> None:
    rows = [row(f"g{k}", uncal=[0.5 + (900.0 if k == 0 else 0.01 * k)], ts=[0.5]) for k in range(40)]
    figure = figure_of(Table(small(kind="list"), tuple(rows)))
    assert figure is not None
    (beyond,) = [line for line in figure.axes[0].lines if line.get_label() == "beyond the axis"]
    assert beyond.get_xdata()[0] == pytest.approx(figure.axes[0].get_xlim()[1])
    assert figure.axes[0].get_xlim()[1] < 1.0


def test_a_figure_has_no_key_that_nobody_reads() -> None:
    with pytest.raises(ValueError, match=r"\[figure\] has no log; it may have x, label, scale"):
        small(kind="sweep", figure={"x": "decay", "log": True})


def test_the_reliability_of_records_is_that_of_the_nodes(session: Session) -> None:
    entry = session.table().rows[0].entries["ts"]
    pooled = reliability_of(entry)
    parts = [reliability(*session.store.nodes(key), 20) for key in entry.keys]
    assert torch.allclose(pooled.count, sum(part.count for part in parts) / len(parts))
    assert torch.allclose(pooled.right_sum, sum(part.right_sum for part in parts) / len(parts))
    assert torch.allclose(pooled.conf_sum, sum(part.conf_sum for part in parts) / len(parts), atol=1e-6)
