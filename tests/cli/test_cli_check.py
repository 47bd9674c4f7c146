"""`graphcal check` and the tables it reads: four exit codes, every fault named with file, column or row."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

from graphcal.cli import main
from sample_results import sample_results


def table(N=4000, C=4, scale=1.0, seed=0):
    g = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(N, C, generator=g, dtype=torch.float64)
    y = torch.multinomial(z.softmax(1), 1, generator=g)[:, 0].numpy()
    return scale * z.numpy(), y


def probs(logits):
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def write_csv(path, logits, y, kind="prob", label="label"):
    scores = probs(logits) if kind == "prob" else logits
    columns = {label: y, **{f"{kind}_{k}": scores[:, k] for k in range(scores.shape[1])}}
    pa.csv.write_csv(pa.table(columns), path)
    return path


@pytest.fixture
def run(monkeypatch, capsys):
    """The console entry point, in this process: exit code, output, errors."""

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["graphcal", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return call


@pytest.mark.parametrize(
    ("N", "scale", "code", "word"), [(4000, 1.0, 0, "pass"), (1000, 0.4, 1, "fail"), (150, 1.0, 3, "unknown")]
)
def test_exit_codes(tmp_path, run, N, scale, code, word):
    path = write_csv(tmp_path / "p.csv", *table(N, scale=scale))
    status, out, err = run("check", path, "--max-ece", 0.05, "--confidence", 0.95)
    assert (status, out.split(":")[0]) == (code, word), err
    if code == 3:
        assert "nodes would decide" in out


def test_bad_input_exits_with_2_and_one_line(tmp_path, run):
    code, _, err = run("check", tmp_path / "nothing.csv")
    assert code == 2
    assert err.strip() == f"graphcal: no predictions at {tmp_path / 'nothing.csv'}: the file does not exist"
    path = write_csv(tmp_path / "p.csv", *table(50))
    code, _, err = run("check", path, "--max-ece", 0)
    assert code == 2
    assert "--max-ece must lie between 0 and 1, got 0.0" in err


def test_json_holds_the_decision(tmp_path, run):
    code, out, _ = run("check", write_csv(tmp_path / "p.csv", *table()), "--json", "--bins", 15)
    record = json.loads(out)
    assert (code, record["outcome"], record["bins"], record["nodes"], record["left_out"]) == (0, "pass", 15, 4000, 0)
    assert record["high"] <= record["limit"]


def test_the_same_small_probability_for_everybody_fails(tmp_path, run):
    """Two classes: what counts is the probability of class 1, not that class 0 is nearly always right."""
    y = (np.arange(3000) < 69).astype(int)
    logits = np.log(np.tile([0.999, 0.001], (3000, 1)))
    path = write_csv(tmp_path / "p.csv", logits, y)
    code, out, _ = run("check", path)
    assert code == 1
    assert "the mean probability of class 1 is 0.1 %, but 2.3 % of the 3,000 nodes are of class 1" in " ".join(
        out.split()
    )
    record = json.loads(run("check", path, "--json")[1])
    assert (record["outcome"], record["quantity"]) == ("fail", "probability of class 1")
    assert (record["mean_probability"], record["share"]) == pytest.approx((0.001, 0.023))
    calibrated = write_csv(tmp_path / "c.csv", np.log(np.tile([0.977, 0.023], (3000, 1))), y)
    assert run("check", calibrated)[0] == 0


CLASSES = ("spam", "ham", "news", "ads")


def test_text_labels_find_their_column_by_classes_or_by_name(tmp_path, run):
    """Sorted alphabetically onto prob_0, prob_1, ... a calibrated table gets the verdict of a wrong one."""
    logits, y = table()
    text = np.array(CLASSES)[y]
    path = write_csv(tmp_path / "p.csv", logits, text)
    code, _, err = run("check", path)
    assert code == 2
    assert "which column is which class? Say --classes" in err.replace("\n", " ")
    assert run("check", path, "--classes", ",".join(CLASSES))[0] == 0
    assert run("check", path, "--classes", ",".join(sorted(CLASSES)))[0] == 1
    named = {"label": text, **{f"prob_{name}": probs(logits)[:, k] for k, name in enumerate(CLASSES)}}
    pa.csv.write_csv(pa.table(named), tmp_path / "n.csv")
    assert run("check", tmp_path / "n.csv")[0] == 0


def test_a_class_that_never_occurs_moves_no_other(tmp_path, run):
    logits, y = table(C=3)
    kept = y != 1
    kept_probs = probs(logits[kept][:, [0, 2]])
    scores = np.insert(kept_probs, 1, 0, axis=1)
    columns = {"label": np.array(["a", "b", "c"])[y[kept]], **{f"prob_{k}": scores[:, k] for k in range(3)}}
    pa.csv.write_csv(pa.table(columns), tmp_path / "p.csv")
    assert run("check", tmp_path / "p.csv")[0] == 2
    assert run("check", tmp_path / "p.csv", "--classes", "a,b,c")[0] == 0


def test_numbers_stored_as_text_are_numbers(tmp_path, run):
    logits, y = table(8000, C=12, seed=1)
    path = write_csv(tmp_path / "p.csv", logits, [f"{k} " for k in y])  # a space keeps the column text
    code, out, err = run("check", path, "--json", "--max-ece", 0.04)
    assert code == 0, err
    assert json.loads(out)["ece"] < 0.03


@pytest.mark.parametrize("name", ["p.npz", "p.parquet", "p.pt", "p.arrow", "p.csv"])
def test_a_file_that_cannot_be_read_exits_with_2(tmp_path, run, name):
    """1 would say: measurably not calibrated."""
    (tmp_path / name).write_bytes(b"PK\x03\x04 broken \xff\xfe")
    code, out, err = run("check", tmp_path / name)
    assert (code, out) == (2, "")
    assert err.startswith("graphcal: ")
    assert str(tmp_path / name) in err.replace("\n", "")
    assert err.count("\n") == 1


def test_repeated_columns_exit_with_2(tmp_path, run):
    (tmp_path / "p.csv").write_text("label,prob_0,prob_0\n0,0.5,0.5\n")
    code, _, err = run("check", tmp_path / "p.csv")
    assert code == 2
    assert "two columns are called 'prob_0'" in err


def test_the_report_command_writes_the_page(tmp_path, run):
    (tmp_path / "results.json").write_text(json.dumps(sample_results()))
    code, out, _ = run("report", tmp_path, "-o", tmp_path / "r.html")
    assert code == 0
    assert "r.html" in out
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    code, _, err = run("report", tmp_path / "nowhere")
    assert code == 2
    assert "no results at" in err


def test_rows_that_trained_or_fitted_are_not_measured(tmp_path, run):
    """The rows of `val` are far off; those of `test` are calibrated, and they alone are judged."""
    good, y = table(4000)
    scores = np.concatenate([probs(good), probs(0.1 * good)])
    columns = {"label": np.concatenate([y, y]), **{f"prob_{k}": scores[:, k] for k in range(4)}}
    parts = {"split": ["test"] * 4000 + ["val"] * 4000}
    folder = tmp_path / "out"  # as `graphcal calibrate` writes it
    folder.mkdir()
    pa.parquet.write_table(pa.table({**columns, **parts}), folder / "calibrated.parquet")
    code, out, err = run("check", folder)
    assert code == 0, err
    assert "on 4,000 nodes" in out
    assert "4,000 rows that trained or fitted the model" in out
    pa.parquet.write_table(pa.table({**columns, "split": ["val"] * 8000}), tmp_path / "fitted.parquet")
    code, out, err = run("check", tmp_path / "fitted.parquet")
    assert code == 2
    assert "8,000 trained or fitted the model" in err
    pa.parquet.write_table(pa.table(columns), tmp_path / "all.parquet")
    assert run("check", tmp_path / "all.parquet")[0] == 1
