"""``graphcal decide``: the sentence first, a row per node, exit codes."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from graphcal.cli import app
from graphcal.decisions import Decision


def predictions(path, labelled=500, nodes=3000, names=("prob_0", "prob_1"), **more):
    rng = np.random.default_rng(0)
    p = 1 - 0.5 * rng.random(nodes) ** 3
    y = (rng.random(nodes) > p).astype(float)
    truth = y.copy()
    y[labelled:] = np.nan
    pq.write_table(pa.table({"label": y, names[0]: p, names[1]: 1 - p, **more}), path)
    return p, truth


def graphcal(*args):
    done = CliRunner().invoke(app, ["decide", *map(str, args)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return 2, str(done.exception)
    return done.exit_code, done.output


def test_the_sentence_comes_first_and_every_node_has_its_row(tmp_path):
    p, truth = predictions(tmp_path / "p.parquet")
    code, text = graphcal(
        tmp_path / "p.parquet", "--random-draw", "-o", tmp_path / "d.parquet", "--sets", "0.9", "--budget", "50"
    )
    assert code == 0
    first = text.splitlines()[0]
    assert "at most 5 % errors, 95 % certain" in text
    assert "guarantee" in text
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("Saved:"))
    assert "most confident" in text
    rows = pq.read_table(tmp_path / "d.parquet").to_pydict()
    assert list(rows) == ["node", "prediction", "confidence", "decision", "look", "set"]
    decision = np.array(rows["decision"])
    assert (decision[:500] == "labelled").all()
    auto = decision == "auto"
    assert f"{auto.sum():,} of 2,500" in first
    assert truth[auto].mean() <= 0.05
    assert min(p[auto]) > max(p[decision == "review"])
    assert sorted(k for k in rows["look"] if k) == list(range(1, 51))
    assert all(rows["set"][k] in (["0"], ["1"], ["0", "1"], []) for k in range(20))
    again = Decision.load(tmp_path / "d.json").apply(torch.from_numpy(np.stack([p, 1 - p], 1)).log()).numpy()
    assert (again[500:] == auto[500:]).all()


def test_json_has_it_all_and_says_estimate_without_a_statement(tmp_path):
    predictions(tmp_path / "p.parquet")
    code, text = graphcal(tmp_path / "p.parquet", "--json", "-o", tmp_path / "d.parquet")
    record = json.loads(text)
    assert code == 0
    assert record["guarantee"] is False
    assert "estimate" in record["sentence"]
    assert "guarantee" not in record["sentence"]
    assert record["approved"] + record["review"] == 2500
    targets = dict(zip(record["curve"]["targets"], record["curve"]["decided"]))
    assert targets[0.05] == record["approved"]
    assert targets[0.01] <= targets[0.05] <= targets[0.3]


def test_a_class_with_a_precision(tmp_path):
    predictions(tmp_path / "p.parquet", names=("prob_0", "prob_1"))
    code, text = graphcal(
        tmp_path / "p.parquet",
        "--classes",
        "fine,fraud",
        "--class",
        "fine",
        "--min-precision",
        "0.9",
        "-o",
        tmp_path / "d.parquet",
    )
    assert code == 0, text
    assert "can be taken as fine" in text
    assert "precision at least 90 %" in text
    code, text = graphcal(
        tmp_path / "p.parquet", "--classes", "fine,fraud", "--class", "theft", "-o", tmp_path / "d.parquet"
    )
    assert code == 2
    assert "unknown class 'theft'; the classes are fine, fraud" in text


def test_rows_that_fitted_do_not_certify(tmp_path):
    part = np.array(["val"] * 200 + ["test"] * 2800)
    predictions(tmp_path / "p.parquet", split=part)
    code, text = graphcal(tmp_path / "p.parquet", "--json", "--split", "split", "-o", tmp_path / "d.parquet")
    record = json.loads(text)
    assert code == 0
    assert record["labels"] == 300
    assert pq.read_table(tmp_path / "d.parquet")["decision"].to_pylist()[:200] == ["fitted"] * 200


def test_a_table_with_all_labels_draws_its_certification_rows(tmp_path):
    predictions(tmp_path / "p.parquet", labelled=3000)
    code, text = graphcal(tmp_path / "p.parquet", "-o", tmp_path / "d.parquet")
    assert code == 2
    assert "--certify 0.5" in text
    code, text = graphcal(tmp_path / "p.parquet", "--certify", "0.5", "--json", "-o", tmp_path / "d.parquet")
    record = json.loads(text)
    assert code == 0
    assert record["labels"] == 1500
    assert record["guarantee"] is False  # a backtest: these rows have labels already


def test_the_folder_of_a_run_is_read_by_its_calibrated_predictions(tmp_path):
    """Raw scores stand beside the calibrated ones, and rows that were fitted on say so."""
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "results.json").write_text("{}")
    raw = np.full(3000, 0.5)
    part = np.array(["val"] * 1000 + ["test"] * 2000)
    columns = {"prob_0": raw, "prob_1": raw, "split": part}
    p, _ = predictions(folder / "calibrated.parquet", 3000, 3000, ("calibrated_prob_0", "calibrated_prob_1"), **columns)
    code, text = graphcal(folder, "--certify", "0.5", "--json", "-o", tmp_path / "d.parquet")
    assert code == 0, text
    assert json.loads(text)["labels"] == 1000
    assert pq.read_table(tmp_path / "d.parquet")["confidence"].to_numpy() == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize(
    ("labelled", "options", "code", "message"),
    [
        (58, (), 2, "58 certification nodes cannot certify"),
        (60, (), 3, "more random labels would decide"),
        (500, ("--class", "1", "--min-precision", "0.9"), 1, "0 of 2,500 rows (0 %) can be taken as class 1"),
        (500, ("--max-error", "7"), 2, "max_error must lie between 0 and 1"),
    ],
)
def test_exit_codes(tmp_path, labelled, options, code, message):
    predictions(tmp_path / "p.parquet", labelled)
    status, text = graphcal(tmp_path / "p.parquet", *options, "-o", tmp_path / "d.parquet")
    assert status == code
    assert message in text


def test_a_share_is_at_most_one(tmp_path):
    predictions(tmp_path / "p.parquet")
    code, _ = graphcal(tmp_path / "p.parquet", "--certify", "100", "-o", tmp_path / "d.parquet")
    assert code == 2
    assert not (tmp_path / "d.parquet").exists()


def test_where_nothing_can_be_decided_the_target_that_would_do_is_named(tmp_path):
    predictions(tmp_path / "p.parquet")
    strict = ("--random-draw", "--max-error", 0.006, "-o", tmp_path / "d.parquet")
    code, text = graphcal(tmp_path / "p.parquet", *strict)
    assert code != 0
    share, count = re.search(r"--max-error ([\d.]+) would decide ([\d,]+) rows", text).groups()
    code, text = graphcal(tmp_path / "p.parquet", "--random-draw", "--max-error", share, "-o", tmp_path / "d.parquet")
    assert code == 0
    assert f"{count} of 2,500 rows" in text.splitlines()[0]
