"""Pictures of weight decay show the curves they are given."""

from __future__ import annotations

import pytest

from conftest import random_graph
from graphcal.lab.plots.tuning import draw_decay_curve, draw_decay_sweep, save_decay_picture
from graphcal.lab.training import Training
from graphcal.lab.tuning import sweep_decay, tune_decay

QUICK = Training(hidden_channels=8, epochs=40, patience=None, dropout=0.0, weight_decay=5e-3)


@pytest.mark.slow
def test_pictures_show_the_curves(tmp_path) -> None:
    from matplotlib.figure import Figure

    data = random_graph()
    tuned = tune_decay(data, training=QUICK, decays=[1e-3, 0.0], seeds=[0], search="grid")
    ax = Figure().subplots()
    draw_decay_curve(tuned, ax)
    positive = [point for point in tuned.curve if point.decay > 0]
    assert list(ax.lines[0].get_ydata()) == [point.scores.confidence for point in positive]
    rows = sweep_decay(data, training=QUICK, decays=[5e-3, 5e-4], seeds=[0])
    ax = Figure().subplots()
    draw_decay_sweep(rows, ax, "accuracy")
    assert len(ax.containers) == 2
    with pytest.raises(ValueError, match="unknown metric 'mood'; choose among accuracy"):
        draw_decay_sweep(rows, ax, "mood")
    with pytest.raises(ValueError, match="measure='mce' is not in the rows"):
        draw_decay_sweep(rows, ax, "mce")
    save_decay_picture(rows, tmp_path / "sweep.svg")
    save_decay_picture(tuned, tmp_path / "curve.svg")
    assert (tmp_path / "sweep.svg").stat().st_size > 2000
