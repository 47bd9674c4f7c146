"""Two-class tables: what `auto` takes, and what is noted of shifted probabilities."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.isotonic import IsotonicRegression

import graphcal
from graphcal.cli import main
from graphcal.methods.graph_scaling import GraphScaled
from graphcal.methods.isotonic import PositiveCurve
from graphcal.methods.platt import Sigmoids, is_far, shift_of
from graphcal.tables.estimator import CalibratedScores
from graphcal.tables.scorer import calibrated_block


def scored(count: int = 6000, weight: float = 1.0, curve=None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the second class as a model trained with a class weight gives them, and labels, 4 % positive."""
    rng = np.random.default_rng(seed)
    score = 1.6 * rng.standard_normal(count)
    odds = score - 4.3 if curve is None else curve(score)
    y = (rng.random(count) < 1 / (1 + np.exp(-odds))).astype(int)
    return 1 / (1 + np.exp(-(score - 4.3 + np.log(weight)))), y


def both(p: np.ndarray) -> np.ndarray:
    return np.stack([1 - p, p], 1)


def selected(p: np.ndarray, y: np.ndarray, seed: int = 1) -> np.ndarray:
    """Labels of rows that are drawn with a chance that rises with the score; -1 elsewhere."""
    return np.where(np.random.default_rng(seed).random(len(p)) < 0.02 + 0.5 * p**1.5, y, -1)


@pytest.mark.slow
def test_isotonic_and_platt_undo_a_class_weight_where_labels_are_selected_by_the_score():
    p, y = scored(30_000, weight=12)
    labels = selected(p, y)
    rest = labels < 0
    mean = {}
    for name in ("isotonic", "platt", "auto", "isotonic-keep"):
        result = graphcal.calibrate(both(p), labels, calibrator=name, kind="probs")
        mean[name] = result.probs[rest, 1].mean()
    rows = result.study.graph.val_mask.numpy()
    curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p[rows], y[rows])
    assert mean["isotonic"] == pytest.approx(curve.predict(p[rest]).mean(), abs=1e-3)
    assert mean["isotonic"] == pytest.approx(y[rest].mean(), abs=0.008)
    assert mean["platt"] == pytest.approx(y[rest].mean(), abs=0.008)
    assert mean["auto"] == pytest.approx(y[rest].mean(), abs=0.008)
    assert mean["isotonic-keep"] > 5 * y[rest].mean()


def staircase(score: np.ndarray) -> np.ndarray:
    return np.select([score < -1, score < 0.5, score < 2], [-4.0, 0.5, -0.5], 4.0)  # no sigmoid


@pytest.mark.slow_cases("steps")
@pytest.mark.parametrize(("curve", "kind"), [(None, Sigmoids), (staircase, PositiveCurve)], ids=["sigmoid", "steps"])
def test_auto_takes_the_least_cross_validated_nll(curve, kind):
    p, y = scored(weight=12, curve=curve)
    result = graphcal.calibrate(both(p), y, kind="probs")
    compared = result.calibration.fitted_on["compared"]
    assert list(compared) == ["graph-scaling", "platt", "isotonic"]
    assert isinstance(result.calibration, kind)
    best = min(compared, key=compared.get)
    alone = graphcal.calibrate(both(p), y, calibrator=best, kind="probs")
    np.testing.assert_array_equal(result.probs, alone.probs)
    (note,) = [note for note in result.notes if note.startswith("auto chose")]
    assert note.startswith(f"auto chose {best}: cross-validated NLL {compared[best]:.4f} on the fitting rows (")
    assert all(f"{name} {compared[name]:.4f}" in note for name in compared if name != best)
    assert list(result.study.recipes) == ["none", best]  # "auto" has the name of the method behind it


def test_auto_reads_no_label_of_a_measured_row():
    p, y = scored(2000, weight=12)
    on = np.arange(len(y)) < 1000
    first = graphcal.calibrate(both(p), y, on=on, kind="probs")
    other = graphcal.calibrate(both(p), np.where(on, y, 1 - y), on=on, kind="probs")
    assert first.calibration.fitted_on["compared"] == other.calibration.fitted_on["compared"]
    np.testing.assert_array_equal(first.probs, other.probs)


def test_auto_compares_beside_edges_too():
    p, y = scored(600, weight=12)
    edges = np.stack([np.arange(600), (np.arange(600) + 1) % 600])
    result = graphcal.calibrate(both(p), y, edges=edges, kind="probs")
    assert set(result.calibration.fitted_on["compared"]) == {"graph-scaling", "platt", "isotonic"}


@pytest.mark.parametrize(("classes", "labelled"), [(3, 400), (2, 30)])
def test_auto_is_graph_scaling_with_more_classes_or_few_labels(classes, labelled):
    rng = np.random.default_rng(0)
    z = rng.standard_normal((400, classes))
    y = (z + rng.gumbel(size=z.shape)).argmax(1)
    y[labelled:] = -1
    result = graphcal.calibrate(2 * z, y, kind="logits")
    assert isinstance(result.calibration, GraphScaled)
    assert "compared" not in result.calibration.fitted_on
    assert not any("auto chose" in note for note in result.notes)
    np.testing.assert_array_equal(
        result.probs, graphcal.calibrate(2 * z, y, calibrator="graph-scaling", kind="logits").probs
    )


def test_the_estimator_compares_as_well():
    p, y = scored(weight=12)
    fitted = CalibratedScores("auto").fit(p[:, None], y)
    assert isinstance(fitted.calibration_, Sigmoids)


def test_a_class_weight_is_noted_with_its_size():
    p, y = scored(weight=12)
    notes = [
        note
        for note in graphcal.calibrate(both(p), y, calibrator="platt", kind="probs").notes
        if "class weight" in note
    ]
    assert len(notes) == 1
    assert "of the fitting rows are in it: a class weight of about 1" in notes[0]
    assert "undo_weights" in notes[0]
    _, weight = shift_of(torch.from_numpy(both(p)).log(), torch.from_numpy(y) == 1)
    assert weight == pytest.approx(12, rel=0.35)


@pytest.mark.slow
def test_no_shift_is_noted_where_there_is_none():
    p, y = scored(weight=1)
    for name in ("ts", "auto"):
        notes = graphcal.calibrate(both(p), y, calibrator=name, kind="probs").notes
        assert not any("class weight" in note or "crosses 50 %" in note for note in notes)


def test_an_error_that_is_no_shift_is_not_blamed_on_class_weights():
    p, y = scored(weight=12)
    sharp = torch.from_numpy(both(p)).log()
    reversed_scores = sharp.flip(1) - torch.tensor([0.0, 3.0])
    assert shift_of(reversed_scores, torch.from_numpy(y) == 1) is None


@pytest.mark.parametrize(
    ("mean", "share", "count", "far"),
    [(0.47, 0.02, 1000, True), (0.47, 0.02, 10, False), (0.03, 0.02, 10**6, False), (0.2, 0.6, 1000, True)],
)
def test_far_means_twice_the_odds_and_beyond_chance(mean, share, count, far):
    positive = torch.arange(count) < max(1, round(share * count))
    assert is_far(torch.full((count,), mean, dtype=torch.double), positive) is far


@pytest.mark.parametrize("name", ["ts", "isotonic-keep", "graph-scaling-keep"])
def test_a_calibrator_that_keeps_predictions_says_what_it_leaves(name, tmp_path, monkeypatch, capsys):
    p, y = scored(2000, weight=40)
    pq.write_table(pa.table({"id": np.arange(len(p)), "prob": p, "label": y}), tmp_path / "scores.parquet")
    out = tmp_path / "out"
    monkeypatch.setattr(
        "sys.argv", ["graphcal", "calibrate", str(tmp_path / "scores.parquet"), "--calibrator", name, "--out", str(out)]
    )
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    notes = json.loads((out / "results.json").read_text())["notes"]
    (note,) = [note for note in notes if "crosses 50 %" in note]
    assert note.startswith(
        f"{name} keeps predictions, so no probability crosses 50 %: the mean probability of class 1 is still "
    )
    assert note.endswith("Use platt or isotonic.")
    printed = " ".join(capsys.readouterr().err.split())
    assert note in printed


@pytest.mark.parametrize("name", ["isotonic", "isotonic-keep", "platt", "auto"])
def test_blocks_of_two_classes_equal_the_calibration_itself(name):
    p, y = scored(1000, weight=12)
    study = graphcal.calibrate(both(p), y, calibrator=name, kind="probs").study
    (*_, fitted), logits = study.fitted.values(), study.outputs[0].logits
    calibration = fitted[0].calibration
    probs, _ = calibrated_block(calibration, list(logits.numpy().T))
    np.testing.assert_allclose(probs.T, fitted[0].log_probs.exp().numpy(), atol=1e-6)
