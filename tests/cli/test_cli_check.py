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
from graphcal.tables.predictions import read_predictions
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
    found, out, err = run("check", path, "--max-ece", 0.05, "--confidence", 0.95)
    assert (found, out.split(":")[0]) == (code, word), err
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
    found = json.loads(out)
    assert (code, found["outcome"], found["bins"], found["nodes"], found["left_out"]) == (0, "pass", 15, 4000, 0)
    assert found["high"] <= found["limit"]


def test_every_format_reads_the_same(tmp_path):
    logits, y = table(50)
    expected = torch.from_numpy(logits).log_softmax(1)
    p = probs(logits)
    pa.parquet.write_table(pa.table({"label": y, "probs": p.tolist()}), tmp_path / "list.parquet")
    pa.parquet.write_table(pa.table({"label": y, "logits": logits.tolist()}), tmp_path / "logits.parquet")
    np.savez(tmp_path / "a.npz", label=y, log_probs=np.log(p))
    write_csv(tmp_path / "c.csv", logits, y, "logit")
    for name in ("list.parquet", "logits.parquet", "a.npz", "c.csv"):
        found = read_predictions(tmp_path / name)
        torch.testing.assert_close(found.log_probs, expected, atol=1e-9, rtol=0)
        assert found.y.tolist() == y.tolist()


def test_columns_are_ordered_by_number_not_by_place(tmp_path):
    pa.csv.write_csv(pa.table({"prob_1": [0.3], "label": [1], "prob_0": [0.7]}), tmp_path / "p.csv")
    assert read_predictions(tmp_path / "p.csv").log_probs.exp().tolist()[0] == pytest.approx([0.7, 0.3])


def test_text_labels_and_missing_labels(tmp_path):
    (tmp_path / "p.csv").write_text("label,prob_0,prob_1\ncat,0.9,0.1\ndog,0.2,0.8\n,0.5,0.5\n")
    found = read_predictions(tmp_path / "p.csv")
    assert (found.y.tolist(), found.left_out) == ([0, 1], 1)
    (tmp_path / "n.csv").write_text("label,prob_0,prob_1\n1,0.9,0.1\n,0.5,0.5\n")
    assert read_predictions(tmp_path / "n.csv").y.tolist() == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y,prob_0,prob_1\n0,1,0\n", r"no column 'label' with the labels; the columns are y, prob_0, prob_1"),
        ("label,a,b\n0,1,0\n", r"expected columns prob_0.*found none of them; the columns are label, a, b"),
        ("label,prob_0,prob_1,logit_0,logit_1\n0,1,0,1,2\n", "found logit and prob"),
        ("label,prob_0,prob_2\n0,1,0\n", "column prob_1 is missing; there is prob_2"),
        (
            "label,prob_0,prob_1\n0,0.5,0.5\n0,0.5,0.9\n",
            "probabilities of row 1 must lie in 0..1 and sum to 1, they sum to 1.4",
        ),
        ("label,logit_0,logit_1\n0,1,nan\n", "row 0 has a logit that is not a number"),
        ("label,prob_0,prob_1\n2,0.5,0.5\n", r"labels must lie in 0\.\.1, got 2"),
        ("label,prob_0,prob_1\n0.5,0.5,0.5\n", "must hold class numbers or names"),
        ("label,prob_0,prob_1\na,0.5,0.5\nb,0.5,0.5\nc,0.5,0.5\n", "has 3 classes, but there are scores for 2"),
        ("label,prob_0\n0,1\n", "needs two classes or more"),
        ("label,prob_0,prob_1\n,0.5,0.5\n", "no row has a label"),
    ],
)
def test_every_fault_is_named(tmp_path, text, message):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_predictions(tmp_path / "p.csv")


def test_unknown_and_broken_files_are_refused(tmp_path):
    (tmp_path / "p.txt").write_text("x")
    with pytest.raises(ValueError, match=r"cannot read \.txt; use \.parquet"):
        read_predictions(tmp_path / "p.txt")
    (tmp_path / "p.parquet").write_text("not parquet")
    with pytest.raises(ValueError, match="arquet"):
        read_predictions(tmp_path / "p.parquet")


def test_the_report_command_writes_the_page(tmp_path, run):
    (tmp_path / "results.json").write_text(json.dumps(sample_results()))
    code, out, _ = run("report", tmp_path, "-o", tmp_path / "r.html")
    assert code == 0
    assert "r.html" in out
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    code, _, err = run("report", tmp_path / "nowhere")
    assert code == 2
    assert "no results at" in err
