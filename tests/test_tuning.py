"""The search for the final layer's decay: right on known curves, on validation nodes only, all replicas at once."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from conftest import random_graph
from graphcal import metrics
from graphcal.methods import TemperatureScaling
from graphcal.plots.tuning import draw_decay_curve, draw_decay_sweep, save_decay_picture
from graphcal.training import Training, train
from graphcal.tuning import search, sweep_decay, tune_decay
from graphcal.tuning.candidates import Candidate, held_out
from graphcal.tuning.search import _bisect

QUICK = Training(hidden_channels=8, epochs=40, patience=None, dropout=0.0, weight_decay=5e-3)


class KnownCurve:
    """Stands in for the trainer: the gap at each decay is a given function, and what is asked for is recorded."""

    nodes = 500

    def __init__(self, gap) -> None:
        self.gap, self.asked, self.rounds = gap, {}, 0

    @property
    def curve(self) -> list[Candidate]:
        return [self.asked[decay] for decay in sorted(self.asked, reverse=True)]

    def add(self, decays) -> None:
        assert any(decay not in self.asked for decay in decays), "a round that asks nothing new never ends"
        self.rounds += 1
        for decay in decays:
            self.asked[decay] = Candidate(decay, 1.0, 0.1, 0.8, 0.8 - self.gap(decay), 0.0)


@pytest.mark.parametrize("root", [7e-6, 5e-5, 3.1e-4])
def test_bisection_finds_the_root_of_the_gap(root: float) -> None:
    known = KnownCurve(lambda decay: 2.0 * math.log10(decay / root))  # steep: only a decay close to the root will do
    found, _ = _bisect(known, 5e-6, 5e-4)
    error = math.sqrt(0.8 * 0.2 / known.nodes)
    assert abs(2.0 * math.log10(found / root)) <= max(error, 2.0 * search.NARROW)
    assert known.rounds <= 5


def test_bisection_survives_a_gap_that_is_not_monotone() -> None:
    known = KnownCurve(lambda decay: 0.3 * math.sin(9 * math.log10(decay) + 1) + 0.05)
    found, _ = _bisect(known, 5e-6, 5e-4)
    assert abs(known.gap(found)) == pytest.approx(min(abs(point.gap) for point in known.curve))


def test_bisection_says_when_the_lever_points_the_wrong_way_or_is_too_short() -> None:
    found, note = _bisect(KnownCurve(lambda decay: -0.2 + decay), 5e-6, 5e-4)
    assert found == 5e-4
    assert "over-confident at every decay" in note
    found, note = _bisect(KnownCurve(lambda decay: 0.2 + decay), 5e-6, 5e-4)
    assert found == 5e-6
    assert "too short" in note


def test_a_gap_within_its_standard_error_ends_the_search_in_one_round() -> None:
    known = KnownCurve(lambda decay: 0.01)
    _, note = _bisect(known, 5e-6, 5e-4)
    assert known.rounds == 1
    assert "within its standard error of 0.018" in note


def test_a_head_without_decay_has_no_lever_left() -> None:
    data = random_graph()
    found = tune_decay(data, training=replace(QUICK, final_weight_decay=0.0), seeds=[0])
    assert found.spent
    assert found.decay == 0
    assert len(found.curve) == 1
    assert "lever is spent" in found.note


def test_grid_takes_the_lowest_validation_nll_and_returns_runs_equal_to_training_alone() -> None:
    data = random_graph()
    found = tune_decay(data, training=QUICK, decays=[1e-1, 1e-3], seeds=[0, 1], search="grid")
    assert [point.decay for point in found.curve] == [1e-1, 5e-3, 1e-3]
    assert found.decay == min(found.curve, key=lambda point: point.nll).decay
    assert [run.seed for run in found.runs] == [0, 1]
    assert found.runs[0].outputs.graph is data
    alone = train(data, training=replace(QUICK, final_weight_decay=found.decay), seeds=[1])[0]
    assert torch.allclose(alone.outputs.logits, found.runs[1].outputs.logits, atol=1e-4)
    val = data.val_mask
    nll = [metrics.nll(run.outputs.logits[val].log_softmax(-1), data.y[val]) for run in found.runs]
    chosen = next(point for point in found.curve if point.decay == found.decay)
    assert chosen.nll == pytest.approx(sum(nll) / 2)
    assert json.loads(json.dumps(found.to_dict()))["curve"][0]["gap"] == pytest.approx(found.curve[0].gap)


def blind_copy(data: Data) -> Data:
    other = data.clone()
    other.y = torch.where(data.test_mask, (data.y + 1) % 4, data.y)
    return other


@pytest.mark.parametrize("kind", ["grid", "bisection"])
def test_no_test_label_is_read(kind: str) -> None:
    data = random_graph()
    a, b = (
        tune_decay(d, training=QUICK, seeds=[0], search=kind, decays=[5e-3, 5e-4]) for d in (data, blind_copy(data))
    )
    assert a.curve == b.curve
    assert a.decay == b.decay


def test_after_scores_each_fold_with_a_fit_on_the_others() -> None:
    data = random_graph()
    out = train(data, training=QUICK, seeds=[0])[0].outputs
    nodes = data.val_mask.nonzero().flatten()
    parts = [torch.arange(0, 30), torch.arange(30, 60)]
    got = held_out(out, data.val_mask, TemperatureScaling(), parts)
    first_half = data.val_mask.clone()
    first_half[nodes[30:]] = False
    by_hand = TemperatureScaling().fit(out, on=first_half)(out)[nodes[30:]]
    assert torch.allclose(got[30:], by_hand)
    plain = held_out(out, data.val_mask, None, parts)
    assert torch.allclose(plain, out.logits[data.val_mask].log_softmax(-1))
    found = tune_decay(data, training=QUICK, decays=[1e-3], seeds=[0], search="grid", after=TemperatureScaling())
    bare = tune_decay(data, training=QUICK, decays=[1e-3], seeds=[0], search="grid")
    assert [p.nll for p in found.curve] != [p.nll for p in bare.curve]


def test_refusals_name_the_choices() -> None:
    data = random_graph()
    with pytest.raises(ValueError, match="search='random' is not one of bisection, grid"):
        tune_decay(data, search="random")
    with pytest.raises(ValueError, match="criterion='brier' is not one of nll, ece"):
        tune_decay(data, criterion="brier")
    with pytest.raises(ValueError, match="two positive ends"):
        tune_decay(data, decays=[0.0, 1e-3], training=QUICK)
    with pytest.raises(ValueError, match="which='first' is not one of final, global, others, both"):
        sweep_decay(data, which="first")


def test_a_sweep_puts_the_decay_where_it_says() -> None:
    data = random_graph()
    rows = sweep_decay(data, training=QUICK, decays=[5e-3, 0.3], seeds=[0], which=("final", "global", "others"))
    assert [(row["which"], row["decay"]) for row in rows] == [
        (place, decay) for place in ("final", "global", "others") for decay in (5e-3, 0.3)
    ]
    own = [row for row in rows if row["decay"] == 5e-3]  # the training's own decay: the place cannot matter
    assert own[0]["nll"] == pytest.approx(own[1]["nll"], abs=1e-5) == pytest.approx(own[2]["nll"], abs=1e-5)
    by_place = {row["which"]: row for row in rows if row["decay"] == 0.3}
    overrides = {
        "final": {"final_weight_decay": 0.3},
        "global": {"weight_decay": 0.3},
        "others": {"weight_decay": 0.3, "final_weight_decay": 5e-3},
    }
    for place, settings in overrides.items():
        out = train(data, training=replace(QUICK, **settings), seeds=[0])[0].outputs
        log_probs, y = out.logits[data.test_mask].log_softmax(-1), data.y[data.test_mask]
        assert by_place[place]["nll"] == pytest.approx(metrics.nll(log_probs, y), abs=1e-4)
        assert by_place[place]["gap"] == pytest.approx(metrics.signed_gap(log_probs, y), abs=1e-5)


def test_pictures_show_the_curves(tmp_path) -> None:
    from matplotlib.figure import Figure

    data = random_graph()
    found = tune_decay(data, training=QUICK, decays=[1e-3, 0.0], seeds=[0], search="grid")
    ax = Figure().subplots()
    draw_decay_curve(found, ax)
    positive = [point for point in found.curve if point.decay > 0]
    assert list(ax.lines[0].get_ydata()) == [point.conf for point in positive]
    rows = sweep_decay(data, training=QUICK, decays=[5e-3, 5e-4], seeds=[0])
    ax = Figure().subplots()
    draw_decay_sweep(rows, ax, "accuracy")
    assert len(ax.containers) == 2
    with pytest.raises(ValueError, match="measure='mood' is not in the rows"):
        draw_decay_sweep(rows, ax, "mood")
    save_decay_picture(rows, tmp_path / "sweep.svg")
    save_decay_picture(found, tmp_path / "curve.svg")
    assert (tmp_path / "sweep.svg").stat().st_size > 2000


def test_the_command_tunes_and_sweeps(tmp_path, monkeypatch) -> None:
    import typer

    from graphcal.cli.tune import tune as command

    small = random_graph()
    monkeypatch.setattr(sys.modules[command.__module__], "graph_of", lambda *_: small)
    app = typer.Typer()
    app.command()(command)
    run = CliRunner().invoke
    result = run(app, ["tiny", "--search", "grid", "--decays", "5e-4,5e-5", "--seeds", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["decay"] in (5e-4, 5e-5)
    table = run(
        app, ["tiny", "--sweep", "both", "--decays", "5e-4", "--seeds", "1", "--picture", str(tmp_path / "p.svg")]
    )
    assert table.exit_code == 0, table.output
    assert "global" in table.output
    assert (tmp_path / "p.svg").exists()
    assert "bisection" not in run(app, ["tiny", "--decays", "5e-4,5e-5", "--seeds", "1"]).output
    assert isinstance(run(app, ["tiny", "--decays", "a,b"]).exception, ValueError)
    assert "unknown calibrator" in str(run(app, ["tiny", "--after", "magic"]).exception)
