"""Shifted graphs shift what they say and nothing else; the tables measure what their columns say."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from conftest import random_graph
from graphcal import metrics
from graphcal.methods import SCAR, TemperatureScaling, Uncalibrated
from graphcal.shift import (
    confidence_split,
    out_of_distribution,
    weights_table,
    with_mixed_features,
    with_rewired_edges,
    without_class,
    wrong_predictions,
    zero_decay,
)
from graphcal.shift.graphs import later
from graphcal.shift.tables import _separation
from graphcal.training import Training, train

QUICK = Training(hidden_channels=8, epochs=30, patience=None, dropout=0.0)
FEW = {"none": Uncalibrated(), "ts": TemperatureScaling(), "scar": SCAR()}


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_a_left_out_class_is_nowhere_but_in_its_own_mask() -> None:
    data = random_graph()
    known = without_class(data, 1)
    assert known.classes == 3
    for name in ("train_mask", "val_mask", "test_mask"):
        assert not (known[name] & (data.y == 1)).any()
        assert torch.equal(known[name] & (data.y != 1), data[name] & (data.y != 1))
        assert set(known.y[known[name]].tolist()) <= {0, 1, 2}
    assert torch.equal(known.unknown_mask, data.test_mask & (data.y == 1))
    assert torch.equal(known.y[data.y == 3], torch.full_like(known.y[data.y == 3], 2))
    assert (data.y.max(), data.train_mask.sum()) == (3, 40)  # the original is as it was
    with pytest.raises(ValueError, match="class 4 does not exist: the graph has classes 0..3"):
        without_class(data, 4)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_features_change_only_on_later_nodes_and_about_as_much_as_asked(share: float) -> None:
    data = random_graph()
    changed = with_mixed_features(data, share, seeded())
    assert torch.equal(changed.x[~later(data)], data.x[~later(data)])
    moved = (changed.x != data.x)[later(data)].double().mean()
    assert moved == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_edges_move_only_between_later_nodes_and_stay_undirected(share: float) -> None:
    data = random_graph()
    changed = with_rewired_edges(data, share, seeded())
    before, after = ({tuple(edge) for edge in d.edge_index.T.tolist()} for d in (data, changed))
    late = later(data)
    fixed = {edge for edge in before if not (late[edge[0]] and late[edge[1]])}
    assert fixed <= after
    assert all((b, a) in after and a != b for a, b in after)
    if share == 0:
        assert after == before
    else:
        assert len(after - before) > 0.5 * (len(before) - len(fixed))
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\]; got 1.5"):
        with_rewired_edges(data, 1.5, seeded())


def test_confidence_is_split_by_right_and_wrong() -> None:
    log_probs = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]]).log()
    y = torch.tensor([0, 1, 1, 0])
    row = confidence_split(log_probs, y)
    assert row["conf_right"] == pytest.approx((0.9 + 0.8) / 2)
    assert row["conf_wrong"] == pytest.approx((0.6 + 0.7) / 2)
    assert row["gap"] == pytest.approx(0.5 - 0.75)
    assert row["over"] + row["under"] == pytest.approx(row["ece"])
    assert row["auroc"] == 1


def test_separation_is_the_share_of_pairs_in_the_right_order() -> None:
    assert _separation(torch.tensor([0.9, 0.5]), torch.tensor([0.6, 0.1])) == pytest.approx(0.75)


def test_wrong_predictions_are_the_models_own_numbers() -> None:
    data = random_graph()
    rows = {row["method"]: row for row in wrong_predictions(data, training=QUICK, seeds=[0], methods=FEW)}
    out = train(data, training=QUICK, seeds=[0])[0].outputs
    test, y = data.test_mask, data.y[data.test_mask]
    fitted = TemperatureScaling().fit(out, on=data.val_mask)
    assert rows["ts"]["nll"] == pytest.approx(metrics.nll(fitted(out)[test].detach(), y), abs=1e-4)
    assert rows["none"]["accuracy"] == rows["ts"]["accuracy"] == rows["scar"]["accuracy"]
    assert all(row["changed"] == 0 for row in rows.values())


def test_one_weight_or_two_and_a_start_from_zero_decay() -> None:
    data = random_graph()
    rows = weights_table(data, training=QUICK, seeds=[0])
    assert [row["method"] for row in rows][1:5] == ["alpha only", "beta only", "one weight", "two weights"]
    assert len({round(row["nll"], 6) for row in rows}) > 3  # the forms differ
    rows = zero_decay(data, training=QUICK, seeds=[0], methods=FEW)
    assert [(row["final_decay"], row["method"]) for row in rows] == [
        (decay, name) for decay in ("as trained", "zero") for name in FEW
    ]
    assert rows[0]["conf"] < rows[3]["conf"]  # without decay the model is more confident


def test_the_suite_shifts_at_test_time_only() -> None:
    data = random_graph()
    rows = out_of_distribution(data, training=QUICK, seeds=[0], shares=(0.0, 1.0), unknown=2, methods=FEW)
    plain = {row["method"]: row for row in wrong_predictions(data, training=QUICK, seeds=[0], methods=FEW)}
    for row in rows:
        if row["share"] == 0.0:
            assert row["nll"] == pytest.approx(plain[row["method"]]["nll"], abs=1e-4)
    full = {(row["shift"], row["method"]): row for row in rows if row["share"] == 1.0}
    assert full["features", "none"]["accuracy"] < plain["none"]["accuracy"] - 0.1
    assert 0 < full["unknown class", "ts"]["conf_unknown"] < 1
    assert 0 <= full["unknown class", "ts"]["auroc_unknown"] <= 1
    again = out_of_distribution(data, training=QUICK, seeds=[0], shares=(0.0, 1.0), unknown=2, methods=FEW)
    assert again == rows


@pytest.mark.parametrize("table", ["shift", "wrong", "weights", "zero-decay"])
def test_the_command_prints_its_tables(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    from graphcal.cli.shift import shift as command

    small = random_graph()
    monkeypatch.setattr(sys.modules[command.__module__], "graph_of", lambda *_: small)
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, ["tiny", "--table", table, "--seeds", "1", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert rows[0]["method"] == "none"
    maker = {"shift": "out_of_distribution", "wrong": "wrong_predictions", "weights": "weights_table"}
    monkeypatch.setattr(f"graphcal.shift.{maker.get(table, 'zero_decay')}", lambda *_, **__: rows)
    printed = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["tiny", "--table", table, "--seeds", "1"]).output
    _everything_fits(rows, printed.splitlines())
    refused = CliRunner().invoke(app, ["tiny", "--table", "magic"]).exception
    assert "not one of shift, wrong, weights, zero-decay" in str(refused)


def _everything_fits(rows: list[dict[str, Any]], lines: list[str]) -> None:
    """On 80 columns every row is one line that has the method's whole name and all numbers, in order."""
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    columns = [
        "accuracy",
        "gap",
        "conf_right",
        "conf_wrong",
        "ece",
        "auroc",
        "conf_unknown",
        "auroc_unknown",
        "changed",
    ]
    expected = [
        [*row["method"].split(), *(f"{100 * row[name]:.1f}" for name in columns if name in row), f"{row['nll']:.3f}"]
        for row in rows
    ]
    found = [line.split() for line in lines]
    assert [line for line in found if line in expected] == expected
    assert "means over seeds" in " ".join(lines)
    for row in rows:
        if row.get("shift") in ("features", "edges"):
            assert f"{row['shift']}, {100 * row['share']:.0f} % changed" in [line.strip() for line in lines]
        elif "shift" in row or "final_decay" in row:
            assert any(line.strip().endswith(row.get("shift", row.get("final_decay"))) for line in lines)
