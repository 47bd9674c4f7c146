"""Still valid, drifting, expired: from made-up streams of predictions, and through the command."""

import doctest
import json
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import binom
from typer.testing import CliRunner

import graphcal
from conftest import random_graph
from graphcal.cli import app
from graphcal.decisions import decide, monitoring, priors, windows
from graphcal.decisions.alerts import Estimate
from graphcal.decisions.monitoring import watch
from graphcal.decisions.windows import QueueEstimate, cut_windows
from graphcal.metrics import reference_summary, references
from graphcal.saving import read_reference
from small_outputs import model_outputs


def stream(nodes, sharp=1.0, boast=1.0, seed=0):
    """Predictions of ``sharp`` logits, ``boast`` times too sure, with labels."""
    g = torch.Generator().manual_seed(seed)
    z = 3 * sharp * torch.randn(nodes, 4, generator=g, dtype=torch.double)
    y = torch.multinomial(z.softmax(1), 1, generator=g)[:, 0]
    return (boast * z).log_softmax(1), y


@pytest.fixture(scope="module")
def reference():
    log_probs, y = stream(4000)
    decision = decide(log_probs, y, certify=torch.arange(4000) < 1000, max_error=0.05)
    assert decision.num_approved > 500
    return reference_summary(log_probs, decision=decision)


def test_the_same_source_stays_valid(reference):
    log_probs, y = stream(3000, seed=1)
    assert watch(reference, log_probs).status == "still valid"
    report = watch(reference, log_probs, y, np.arange(3000) // 500)
    assert report.status == "still valid"
    assert len(report.windows) == 6
    assert report.risk.labels > 500
    assert "do not refute the promised 5 %" in report.sentence


def test_a_change_of_confidences_is_drift_in_its_window(reference):
    fine, other = stream(1000, seed=2)[0], stream(1000, sharp=0.4, seed=3)[0]
    report = watch(reference, torch.cat([fine, other]), time=[1] * 1000 + [2] * 1000)
    assert report.status == "drifting"
    assert [bool(w.drifting) for w in report.windows] == [False, True]
    assert "2: mean confidence is 0.77 in the rows of the fit and 0.56 in this window" in report.sentence


def test_boasting_shows_in_the_slope_and_breaks_the_promise(reference):
    log_probs, y = stream(2000, sharp=0.6, boast=1 / 0.6, seed=4)  # looks the same, is wrong more often
    unlabelled = watch(reference, log_probs)
    assert unlabelled.status == "still valid"
    report = watch(reference, log_probs, y)
    assert report.status == "expired"
    assert report.windows[0].slope.high < 1
    assert report.risk.refuted_after <= report.risk.labels
    assert "Stop deciding automatically" in report.sentence
    assert json.loads(json.dumps(report.to_dict()))["status"] == "expired"


@pytest.mark.slow
def test_false_alarms_are_rare(reference):
    alarms = [watch(reference, *stream(600, seed=100 + k), np.arange(600) // 200).status for k in range(60)]
    assert sum(status != "still valid" for status in alarms) <= 3


def test_degrees_are_compared_on_the_graph():
    graph, denser = random_graph(nodes=600, seed=0), random_graph(nodes=600, seed=0)
    denser.edge_index = torch.cat(
        [denser.edge_index, torch.randint(600, (2, 9000), generator=torch.Generator().manual_seed(0))], 1
    )
    log_probs = stream(600)[0]
    reference = reference_summary(log_probs, graph)
    assert watch(reference, log_probs, graph=graph).status == "still valid"
    changed = watch(reference, log_probs, graph=denser).windows[0]
    assert changed.comparison.covariate == "degree"
    assert "mean degree is" in changed.drifting[0]


def test_windows_and_refusals(reference):
    assert [name for name, _ in cut_windows(None, 5)] == ["all"]
    many = cut_windows(np.arange(1000), 1000)
    assert [len(rows) for _, rows in many] == [100] * 10
    assert many[0][0] == "0 to 99"
    with pytest.raises(ValueError, match="time has 3 entries for 5 predictions"):
        cut_windows([1, 2, 3], 5)
    with pytest.raises(ValueError, match="window must be one of"):
        cut_windows([1, 2, 3], 3, "quarter")
    with pytest.raises(ValueError, match="fitted on 4 classes, the predictions have 2"):
        watch(reference, torch.zeros(5, 2).log_softmax(1))


def test_the_command_reads_the_calibrators_reference(tmp_path, reference):
    out = model_outputs()
    calibrate = graphcal.TemperatureScaling().fit(out, on=out.graph.val_mask)
    path = graphcal.save(calibrate, tmp_path / "c.safetensors", reference=reference)
    assert read_reference(path) == json.loads(json.dumps(reference))
    assert torch.equal(graphcal.restore(path)(out), calibrate(out))
    log_probs, y = stream(1500, seed=5)
    columns = {f"prob_{c}": log_probs[:, c].exp().numpy() for c in range(4)}
    week = np.arange(1500) // 500
    pq.write_table(pa.table({"label": y.numpy(), "week": week, **columns}), tmp_path / "p.parquet")
    done = CliRunner().invoke(app, ["watch", str(path), str(tmp_path / "p.parquet"), "--time", "week"])
    assert done.exit_code == 0, done.output
    assert done.output.split()[:3] == ["Status:", "still", "valid"]
    assert all(len(line) <= 80 for line in done.output.splitlines())
    strict = replace(decide(log_probs, y, certify=torch.arange(1500) < 500, max_error=0.01), threshold=0.3)
    saved = strict.save(tmp_path / "decision.json")
    done = CliRunner().invoke(
        app, ["watch", str(path), str(tmp_path / "p.parquet"), "--decision", str(saved), "--json"]
    )
    assert done.exit_code == 1
    assert json.loads(done.output)["status"] == "expired"
    bare = graphcal.save(calibrate, tmp_path / "bare.safetensors")
    for arguments, message in (
        ([bare, tmp_path / "p.parquet"], "does not say what its predictions looked like"),
        ([tmp_path / "none", tmp_path / "p.parquet"], "no saved calibration at"),
        ([path, tmp_path / "p.parquet", "--time", "day"], "no column 'day'"),
        ([path, tmp_path / "p.parquet", "--decision", path], "a decision, as graphcal decide writes it"),
    ):
        done = CliRunner().invoke(app, ["watch", *map(str, arguments)])
        assert isinstance(done.exception, ValueError)
        assert message in str(done.exception)


def test_labels_without_a_promise_are_not_denied(reference):
    log_probs, y = stream(3000, seed=1)
    report = watch(reference_summary(stream(4000)[0]), log_probs, y)
    assert report.risk is None
    assert "against 3,000 labels" in report.reason
    assert "--decision" in report.advice


def test_raw_scores_are_told_from_drift(tmp_path, reference):
    out = model_outputs()
    path = graphcal.save(
        graphcal.TemperatureScaling().fit(out, on=out.graph.val_mask), tmp_path / "c.safetensors", reference=reference
    )
    log_probs, _ = stream(1500, boast=0.2, seed=5)
    pq.write_table(pa.table({f"prob_{c}": log_probs[:, c].exp().numpy() for c in range(4)}), tmp_path / "p.parquet")
    done = CliRunner().invoke(app, ["watch", str(path), str(tmp_path / "p.parquet")])
    assert done.exit_code == 3
    assert "'prob_0' is taken as served" in done.output


@pytest.mark.parametrize("module", [monitoring, windows, references, priors], ids=lambda m: m.__name__)
def test_examples_say_what_happens(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_time_orders_the_labels_and_the_windows(reference):
    """Errors that all come first refute the promise early, wherever their rows stand in the table."""
    log_probs, y = stream(2000, seed=6)
    conf, pred = log_probs.exp().max(1)
    approved = np.flatnonzero((conf >= reference["promise"]["threshold"]).numpy())
    y = pred.clone()
    y[approved[-40:]] = (pred[approved[-40:]] + 1) % 4  # the last rows are wrong, and the oldest
    report = watch(reference, log_probs, y, np.arange(2000)[::-1])
    plain = watch(reference, log_probs, y)
    assert report.risk.refuted_after <= 10
    assert plain.risk.refuted_after is None or plain.risk.refuted_after > 10
    assert report.windows[0].name.startswith("0 ")


def test_the_level_is_shared_by_the_windows(reference, monkeypatch):
    seen = []
    real = monitoring.calibration_slope
    monkeypatch.setattr(
        monitoring, "calibration_slope", lambda c, r, certainty: (seen.append(certainty), real(c, r, certainty))[1]
    )
    log_probs, y = stream(3000, seed=1)
    watch(reference, log_probs, y, np.arange(3000) // 500)
    assert seen == pytest.approx([1 - 0.01 / 6] * 6)


def test_text_is_not_a_time(reference, tmp_path):
    log_probs, _ = stream(300)
    with pytest.raises(ValueError, match="text does not sort as time does"):
        watch(reference, log_probs, time=["w1", "w10", "w2"] * 100)
    with pytest.raises(ValueError, match="without gaps"):
        watch(reference, log_probs, time=[1.0, float("nan"), 2.0] * 100)


def test_equal_times_share_a_window_and_every_row_is_in_one():
    times = np.random.default_rng(0).integers(0, 40, 3000) ** 2
    parts = cut_windows(times, 3000)
    assert sorted(np.concatenate([rows for _, rows in parts])) == list(range(3000))
    ends = [(times[rows].min(), times[rows].max()) for _, rows in parts]
    assert all(before[1] < after[0] for before, after in pairwise(ends))
    assert [name for name, _ in parts] == [f"{a} to {b}" for a, b in ends]


@pytest.mark.parametrize(
    ("days", "window", "names"),
    [
        (3, "auto", ["2026-01-30", "2026-01-31", "2026-02-01"]),
        (16, "auto", ["2026-01-26", "2026-02-02", "2026-02-09"]),  # Mondays
        (120, "auto", ["2026-01", "2026-02", "2026-03", "2026-04", "2026-05"]),
        (16, "month", ["2026-01", "2026-02"]),
    ],
)
def test_dates_are_cut_by_the_calendar(days, window, names):
    times = np.datetime64("2026-01-30T23:59:59.9") + np.arange(days) * np.timedelta64(1, "D")
    parts = cut_windows(times[::-1], days, window)
    assert [name for name, _ in parts] == names
    assert parts[0][1].max() == days - 1  # the oldest row comes last


@pytest.fixture
def queue():
    """A queue of 1,000 rows that sends 100 of mean probability 0.6; its precision is 0.5, 0.4 to 0.6."""
    shares = {"precision": Estimate(0.5, 0.4, 0.6), "recall": Estimate(0.5, 0.3, 0.7)}
    return QueueEstimate("fraud", 0.4, **shares, expected=Estimate(100.0, 80.0, 130.0), mean=0.6, sent_share=0.5,
                         total=120.0, certainty=0.95)  # fmt: skip


def test_a_window_scales_the_estimates_of_the_queue_by_its_probabilities(queue):
    prob = np.concatenate([np.full(40, 0.48), np.full(160, 0.1)])  # mean of the sent 0.8 times that of the queue
    one = queue.window("w", prob)
    assert (one.rows, one.sent) == (200, 40)
    assert one.precision.value == pytest.approx(0.5 * 0.48 / 0.6)
    assert one.expected.value == pytest.approx(100 * 35.2 / 120)
    assert one.recall.value == pytest.approx(0.5 * (19.2 / 35.2) / 0.5)
    assert one.precision.low <= binom.ppf(0.025, 40, 0.32) / 40
    assert one.precision.high >= binom.ppf(0.975, 40, 0.48) / 40
    assert one.precision.high <= (binom.ppf(0.975, 40, 0.48) + 1) / 40
    assert queue.window("w", prob * 0.5).precision is None


def test_labelled_alerts_refute_the_expected_precision(queue):
    rng = np.random.default_rng(0)
    prob = torch.from_numpy(np.where(rng.random(3000) < 0.2, 0.6, 0.02))
    log_probs = torch.stack([1 - prob, prob], -1).log()
    reference = {**reference_summary(log_probs), "alerts": asdict(queue)}
    y = torch.from_numpy(rng.random(3000) < np.where(prob > 0.4, 0.5, 0.02)).long()
    time = np.arange(3000) // 1000
    fine = watch(reference, log_probs, y, time, names=["ok", "fraud"])
    assert fine.status == "still valid"
    assert [w.alerts.sent for w in fine.windows] == [int((prob[time == k] > 0.4).sum()) for k in range(3)]
    y[(time == 2) & (prob > 0.4).numpy() & (rng.random(3000) < 0.7)] = 0
    report = watch(reference, log_probs, y, time)
    assert [bool(w.drifting) for w in report.windows] == [False, False, True]
    assert report.windows[2].alerts.drift
    assert "labelled alerts, expected 50 %" in report.reason
    y[time == 2] = -1
    assert watch(reference, log_probs, y, time).status == "still valid"
    with pytest.raises(ValueError, match="Run graphcal alerts again"):
        watch({**reference, "alerts": {"positive": "fraud"}}, log_probs)
