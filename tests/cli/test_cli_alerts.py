"""``graphcal alerts`` and ``graphcal plan``: the sentence, the table, files and exit codes."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import graphcal
from graphcal.cli import app
from graphcal.records import validate
from graphcal.reports.alerts_page import alerts_page


def command(*args):
    done = CliRunner().invoke(app, [*map(str, args)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return 2, str(done.exception)
    return done.exit_code, done.output


def write_scores(path, rows=12_000, labelled=3000, picked=False, weight=8.0, **more):
    rng = np.random.default_rng(0)
    odds = rng.normal(-4, 1.8, rows)
    truth = rng.random(rows) < 1 / (1 + np.exp(-odds))
    drawn = np.zeros(rows, bool)
    drawn[rng.permutation(rows)[:labelled]] = True
    if picked:
        drawn = rng.random(rows) < 0.02 + 0.9 / (1 + np.exp(-odds - 2))
    label = np.where(truth, "fraud", "ok").astype(object)
    label[~drawn] = None
    score = 1 / (1 + np.exp(-odds - np.log(weight)))
    table = pa.table({"case": [f"c{k}" for k in range(rows)], "score": score, "label": label, **more})
    pq.write_table(table, path)
    return truth, drawn, score


def test_sentence_table_and_files(tmp_path):
    truth, drawn, score = write_scores(tmp_path / "s.parquet")
    options = ["--class", "fraud", "--id", "case", "--capacity", 150, "--cost-alert", 5, "--cost-miss", 60]
    code, text = command("alerts", tmp_path / "s.parquet", *options, "--out", tmp_path / "out")
    assert code == 0, text
    assert "150 highest rows" in text.splitlines()[0]
    assert "guarantee" not in text.lower()
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("Saved:"))
    rows = pq.read_table(tmp_path / "out" / "alerts.parquet").to_pydict()
    assert list(rows) == ["id", "probability", "rank", "decision"]
    decision, rank = np.array(rows["decision"]), rows["rank"]
    assert (decision == "review").sum() == 150
    assert ((decision == "labelled") == drawn).all()
    assert sorted(k for k in rank if k) == list(range(1, (~drawn).sum() + 1))
    assert score[decision == "review"].min() >= score[(decision != "review") & ~drawn].max()
    assert score[decision == "close"].max(initial=0) <= score[decision == "undecided"].min()
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    validate(record, "alerts", "results.json")
    threshold = record["threshold"]
    assert threshold["precision"]["low"] <= truth[decision == "review"].mean() <= threshold["precision"]["high"]
    assert set(record["files"]) == {"alerts.parquet", "calibrator.safetensors"}


def test_the_saved_calibrator_gives_the_same_probabilities_to_score(tmp_path):
    write_scores(tmp_path / "s.parquet", rows=3000, labelled=1000)
    command("alerts", tmp_path / "s.parquet", "--class", "fraud", "--id", "case", "--out", tmp_path / "out")
    calibrator = graphcal.restore(tmp_path / "out" / "calibrator.safetensors")
    code, text = command(
        "score", tmp_path / "out" / "calibrator.safetensors", tmp_path / "s.parquet", "--out", tmp_path / "n"
    )
    assert code == 0, text
    assert calibrator.num_classes == 2
    scored = pq.read_table(tmp_path / "n").column("calibrated_prob").to_numpy()
    expected = pq.read_table(tmp_path / "out" / "alerts.parquet").column("probability").to_numpy()
    np.testing.assert_allclose(scored, expected, atol=1e-5)


def test_picked_labels_get_estimates_and_exit_code_3(tmp_path):
    write_scores(tmp_path / "s.parquet", picked=True)
    args = ["alerts", tmp_path / "s.parquet", "--class", "fraud", "--capacity", 100, "--out", tmp_path / "out"]
    code, text = command(*args, "--json")
    assert code == 3, text
    record = json.loads(text)
    validate(record, "alerts", "the output")
    assert not record["evidence"]["carries"]
    assert record["threshold"]["precision"]["low"] is None
    code, text = command(*args, "--random-draw")
    assert code == 1
    assert "guarantee" not in text.lower()


def test_a_stated_random_draw_is_a_guarantee(tmp_path):
    write_scores(tmp_path / "s.parquet")
    code, text = command(
        "alerts", tmp_path / "s.parquet", "--class", "fraud", "--random-draw", "--json", "--out", tmp_path / "out"
    )
    assert code == 0
    assert json.loads(text)["evidence"]["guarantee"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "name the class that alerts look for with --class"),
        (["--class", "theft"], "no row is labelled 'theft'"),
        (["--class", "fraud", "--score", "points"], "no column 'points'"),
        (["--class", "fraud", "--label-delay", "30d"], "--time COLUMN"),
        (["--class", "fraud", "--cost-alert", "3"], "pass both"),
        (["--class", "fraud", "--precision", "90"], "0.5 means 50 %"),
        (["--class", "fraud", "--kind", "odds"], "probs, logits, scores"),
        (["--class", "fraud", "--kind", "probs", "--score", "steps"], "between 0 and 1"),
        (["--class", "fraud", "--score", "gaps"], "1 row without a finite number in column 'gaps' (first: row 7)"),
        (["--class", "fraud", "--score", "same"], "nothing to rank"),
        (["--class", "fraud", "--inclusion", "same"], "lies above 0 and is at most 1"),
        (["--class", "fraud", "--inclusion", "case"], "not numbers"),
        (["--class", "fraud", "--reviewed-above", "0.5"], "pass both"),
        (["--class", "fraud", "--window", "month"], "--time COLUMN"),
        (["--class", "fraud", "--time", "same", "--label-delay", "soon"], "30d, 2w or 12h"),
        (["--label", "none"], "no row has a label"),
        (["--label", "zero"], "no row is labelled '1'"),
    ],
)
def test_bad_input_is_one_line(tmp_path, options, message):
    steps, gaps = np.arange(300.0), np.where(np.arange(300) == 7, np.nan, 0.5)
    more = {"steps": steps, "gaps": gaps, "same": np.full(300, 2), "none": pa.nulls(300), "zero": np.zeros(300, int)}
    write_scores(tmp_path / "s.parquet", rows=300, labelled=100, **more)
    code, text = command("alerts", tmp_path / "s.parquet", *options, "--out", tmp_path / "out")
    assert code == 2
    assert message in text


def test_bad_input_is_refused_before_torch_and_a_table_needs_no_pyg(tmp_path):
    write_scores(tmp_path / "s.parquet", rows=2000, labelled=600)
    code = """
import sys
sys.modules["pandas"] = None  # pyarrow takes it where it is installed; an import here fails
from typer.testing import CliRunner
from graphcal.cli import app
for bad in (["--class", "theft"], ["--class", "fraud", "--score", "case"], ["--class", "fraud", "--inclusion", "case"]):
    assert CliRunner().invoke(app, ["alerts", {path!r}, *bad, "--out", {out!r}]).exit_code
assert "torch" not in sys.modules
done = CliRunner().invoke(app, ["alerts", {path!r}, "--class", "fraud", "--out", {out!r}])
assert done.exit_code == 0, done.output
print([name for name in ("torch_geometric", "scipy.stats", "sklearn", "matplotlib") if name in sys.modules])
"""
    code = code.format(path=str(tmp_path / "s.parquet"), out=str(tmp_path / "out"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr[-2000:]


def test_edges_are_read_by_id_and_half_of_the_labels_judges(tmp_path):
    truth, drawn, _ = write_linked(tmp_path)
    args = ["alerts", tmp_path / "s.parquet", "--class", "fraud", "--id", "case", "--edges", tmp_path / "e.parquet"]
    code, text = command(*args, "--capacity", 60, "--json", "--out", tmp_path / "out")
    assert code == 0, text
    record = json.loads(text)
    assert record["calibration"]["method"] == "graph-scaling"
    assert record["average_precision"]["after"] > record["average_precision"]["before"] + 0.05
    decision = np.array(pq.read_table(tmp_path / "out" / "alerts.parquet").column("decision").to_pylist())
    assert ((decision == "labelled") == drawn).all()
    low, high = (record["threshold"]["precision"][end] for end in ("low", "high"))
    assert low <= truth[decision == "review"].mean() <= high


def write_linked(folder, seed=1, **more):
    """Scores with fraud in clusters, and edges between rows of the same class; returns the truth."""
    rng = np.random.default_rng(seed)
    truth, drawn, score = write_scores(folder / "s.parquet", rows=3000, labelled=1500, **more)
    hits, rest = np.flatnonzero(truth), np.flatnonzero(~truth)
    src, dst = (np.concatenate([rng.choice(hits, 900), rng.choice(rest, 4000)]) for _ in range(2))
    ends = np.concatenate([src, dst]), np.concatenate([dst, src])
    pq.write_table(
        pa.table({name: [f"c{k}" for k in end] for name, end in zip(("src", "dst"), ends)}), folder / "e.parquet"
    )
    return truth, drawn, score


@pytest.mark.parametrize("case", ["probs", "class weight", "any scale", "chances"])
def test_graph_scaling_is_saved_for_scores_as_they_are_in_the_table(tmp_path, case):
    """`graphcal score` gives the probabilities of alerts.parquet, with class weights, any scale and known chances, too."""
    truth, _, score = write_linked(tmp_path)
    table, options = pq.read_table(tmp_path / "s.parquet"), []
    if case == "class weight":
        options = ["--class-weight", 8]
    elif case == "any scale":
        table = table.set_column(1, "score", pa.array(300 + 40 * np.log(score / (1 - score))))
    elif case == "chances":  # fraud was drawn less often than the rest, a difference that scores and edges do not tell
        rng = np.random.default_rng(0)
        chance = np.where(rng.random(3000) < 0.5, 0.2, 0.8)
        label = np.where(truth, "fraud", "ok").astype(object)
        label[rng.random(3000) >= chance] = None
        table = table.set_column(2, "label", pa.array(label)).append_column("chance", pa.array(chance))
        options = ["--inclusion", "chance"]
    pq.write_table(table, tmp_path / "s.parquet")
    files = [tmp_path / "s.parquet", "--edges", tmp_path / "e.parquet"]
    code, text = command("alerts", *files, "--class", "fraud", "--id", "case", *options, "--out", tmp_path / "out")
    assert code == 0, text
    assert json.loads((tmp_path / "out" / "results.json").read_text())["calibration"]["method"] == "graph-scaling"
    code, text = command("score", tmp_path / "out", *files, "--columns", "id=case", "--out", tmp_path / "n")
    assert code == 0, text
    scored = pq.read_table(tmp_path / "n").column("calibrated_prob").to_numpy()
    expected = pq.read_table(tmp_path / "out" / "alerts.parquet").column("probability").to_numpy()
    np.testing.assert_allclose(scored, expected, atol=1e-4)


def test_windows_are_readable_at_80_columns(tmp_path):
    rng = np.random.default_rng(2)
    day = np.datetime64("2026-01-01T00:03:56.466224") + rng.integers(0, 90 * 86400, 12_000).astype("timedelta64[s]")
    write_scores(tmp_path / "s.parquet", day=day)
    args = [
        "alerts",
        tmp_path / "s.parquet",
        "--class",
        "fraud",
        "--time",
        "day",
        "--label-delay",
        "20d",
        "--window",
        "month",
    ]
    code, text = command(*args, "--capacity", 200, "--out", tmp_path / "out")
    assert code == 0, text
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("Saved:"))
    assert [line.split()[0] for line in text.splitlines() if line.startswith("2026-")] == [
        "2026-01",
        "2026-02",
        "2026-03",
    ]
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    validate(record, "alerts", "results.json")
    assert sum(one["sent"] for one in record["windows"]) == 200
    assert sum(one["expected"]["value"] for one in record["windows"]) == pytest.approx(
        record["expected_positives"], rel=0.01
    )


def test_watch_expects_precision_of_a_later_month(tmp_path):
    """Calibrate on one table, score another one with timestamps, and read what is expected of its months."""
    write_scores(tmp_path / "s.parquet")
    command("alerts", tmp_path / "s.parquet", "--class", "fraud", "--capacity", 300, "--out", tmp_path / "out")
    rng = np.random.default_rng(5)
    day = np.datetime64("2026-11-02T00:03:56.466224") + rng.integers(0, 58 * 86400, 9000).astype("timedelta64[s]")
    odds = rng.normal(-4, 1.8, 9000)
    truth = rng.random(9000) < 1 / (1 + np.exp(-odds))
    pq.write_table(pa.table({"score": 1 / (1 + np.exp(-odds - np.log(8.0))), "day": day}), tmp_path / "n.parquet")
    code, text = command("score", tmp_path / "out", tmp_path / "n.parquet", "--out", tmp_path / "scored")
    assert code == 0, text
    args = ["watch", tmp_path / "out", tmp_path / "scored", "--time", "day", "--window", "month"]
    code, text = command(*args)
    assert code == 0, text
    assert "fraud" in text
    assert all(len(line) <= 80 and "…" not in line for line in text.splitlines())
    months = [line.split()[0] for line in text.splitlines() if line.startswith("20")]
    assert months == 2 * ["2026-11", "2026-12"]
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    prob = pq.read_table(tmp_path / "scored").column("calibrated_prob").to_numpy()
    for window in json.loads(command(*args, "--json")[1])["windows"]:
        inside = day.astype("datetime64[M]").astype(str) == window["name"]
        sent = inside & (prob >= record["threshold"]["threshold"])
        one = window["alerts"]
        assert one["sent"] == sent.sum()
        assert one["precision"]["low"] <= truth[sent].mean() <= one["precision"]["high"]
        assert one["expected"]["low"] <= truth[inside].sum() <= one["expected"]["high"]
        assert one["recall"]["low"] <= truth[sent].sum() / truth[inside].sum() <= one["recall"]["high"]


def test_the_page_is_one_file_that_escapes_names():
    rng = np.random.default_rng(3)
    p = rng.beta(0.3, 6, 4000)
    y = np.where(np.arange(4000) < 1500, rng.random(4000) < p, -1)
    queue = graphcal.alerts(p, y, positive="<b>&", capacity=100, time=rng.random(4000))
    page = alerts_page(queue)
    assert "<b>&" not in page
    assert "http" not in page
    assert page.count("<tr") == 2 + len(queue.thresholds) + len(queue.windows)
    assert len(page) < 60_000
    assert page.count('class="fill-') == 2  # bands, where labels carry intervals
    odds = np.log(p / (1 - p))
    picked = np.where(rng.random(4000) < 0.02 + 0.9 * p, rng.random(4000) < p, -1)
    assert 'class="fill-' not in alerts_page(graphcal.alerts(odds, picked, kind="logits", capacity=100))


def test_training_rows_are_neither_sent_nor_used(tmp_path):
    split = np.where(np.arange(12_000) < 2000, "train", "test")
    write_scores(tmp_path / "s.parquet", split=split)
    args = ["alerts", tmp_path / "s.parquet", "--class", "fraud", "--json", "--out", tmp_path / "out"]
    code, text = command(*args)
    assert code == 0, text
    decision = np.array(pq.read_table(tmp_path / "out" / "alerts.parquet").column("decision").to_pylist())
    assert ((decision == "training") == (split == "train")).all()
    assert json.loads(text)["evidence"]["labels"] == (decision == "labelled").sum()


def test_plan_counts_labels(tmp_path):
    code, text = command("plan", "--max-error", 0.05, "--json")
    assert code == 0
    assert [row["labels"] for row in json.loads(text)["plan"]][:2] == [59, 153]
    code, text = command("plan", "--max-error", 0.05, "--true-error", 0.025, "--zone", 0.25, "--json")
    (row,) = json.loads(text)["plan"]
    assert row["drawn_from_all"] == 4 * row["labels"]
    assert command("plan", "--max-error", 0.05, "--true-error", 0.06)[0] == 2
