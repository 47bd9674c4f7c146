"""`graphcal score`: the same bytes from every engine and after every kill; faults name the file and leave nothing half done."""

import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import torch

import graphcal
from children import child, kill_after
from graphcal.methods import CALIBRATORS
from graphcal.metrics.references import SAMPLE, RowCounts, drift_since, drift_text, reference_summary, sample_keys
from graphcal.tables.layouts import Wide
from graphcal.tables.score_types import ScoreType
from graphcal.tables.scorer import Scorer, calibrated_block
from graphcal.tables.scoring import jobs_of, score
from graphcal.tables.sources import source_of
from small_outputs import model_outputs

from engine_files import predictions, softmax  # isort: skip

Z, Y = predictions(3000, C=5)
SCORES = tuple(f"logit_{k}" for k in range(5))


def table(rows=slice(None), first=0):
    return pa.table(
        {"nid": np.arange(len(Z))[rows] + first, "note": ["x"] * len(Z[rows]), **dict(zip(SCORES, Z[rows].T))}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A calibrator and six shards of one table."""
    path = tmp_path_factory.mktemp("scoring")
    result = graphcal.calibrate(table().drop(["note"]), Y, calibrator="ts")
    graphcal.save(result.calibration, path / "ts.safetensors")
    for k, rows in enumerate(np.array_split(np.arange(len(Z)), 6)):
        (path / "preds").mkdir(exist_ok=True)
        pq.write_table(table(rows), path / "preds" / f"part-{k}.parquet", row_group_size=100)
    return path


def digests(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(Path(folder).rglob("*.parquet"))}


def test_rows_ids_and_other_columns_stay(folder, tmp_path):
    summary = score(folder / "ts.safetensors", folder / "preds", tmp_path)
    written = pa.concat_tables([pq.read_table(p) for p in sorted(tmp_path.glob("*.parquet"))])
    assert written["nid"].to_pylist() == list(range(len(Z)))
    added = [*(f"calibrated_prob_{k}" for k in range(5)), "calibrated_prediction", "calibrated_confidence"]
    assert written.column_names == ["nid", "note", *added]
    scale = float(graphcal.restore(folder / "ts.safetensors").scale)
    probs = np.stack([written[f"calibrated_prob_{k}"].to_numpy() for k in range(5)], 1)
    np.testing.assert_allclose(probs, softmax(scale * Z.astype(float)), atol=1e-6)
    assert written["calibrated_prediction"].to_pylist() == Z.argmax(1).tolist()
    np.testing.assert_allclose(written["calibrated_confidence"].to_numpy(), probs.max(1), atol=1e-7)
    assert (summary["rows"], summary["files"], summary["kept"]) == (3000, 6, 0)
    assert not summary["drift"]["differ"]
    assert sum(summary["profile"]["confidence"]) == sum(summary["profile"]["predicted"]) == 3000
    assert abs(summary["profile"]["mean_confidence"] - probs.max(1).mean()) < 1e-6
    assert json.loads((tmp_path / "_score.json").read_text())["rows"] == 3000
    kept = score(folder / "ts.safetensors", folder / "preds", tmp_path / "all", keep_scores=True)
    assert kept["rows"] == 3000
    assert set(SCORES) < set(pq.read_schema(tmp_path / "all" / "part-0.parquet").names)


def test_a_large_file_is_cut_at_row_groups(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("graphcal.tables.scoring.JOB_ROWS", 1000)
    pq.write_table(table(), tmp_path / "big.parquet", row_group_size=300)
    jobs = jobs_of(source_of(tmp_path / "big.parquet"), tmp_path / "out")
    assert [(job.out.name, job.first_row, list(job.row_groups)) for job in jobs] == [
        ("big-00000.parquet", 0, [0, 1, 2, 3]),
        ("big-00001.parquet", 1200, [4, 5, 6, 7]),
        ("big-00002.parquet", 2400, [8, 9]),
    ]
    score(folder / "ts.safetensors", tmp_path / "big.parquet", tmp_path / "out")
    written = pa.concat_tables([pq.read_table(p) for p in sorted((tmp_path / "out").glob("*.parquet"))])
    assert written["nid"].to_pylist() == list(range(len(Z)))


@pytest.mark.slow
@pytest.mark.ray
def test_threads_and_ray_write_the_same_files(folder, tmp_path):
    pytest.importorskip("ray")
    for engine in ("local", "ray"):
        summary = score(folder / "ts.safetensors", folder / "preds", tmp_path / engine, engine=engine, workers=1)
        assert summary["rows"] == 3000
    assert digests(tmp_path / "local") == digests(tmp_path / "ray")
    assert len(digests(tmp_path / "local")) == 6
    with pytest.raises(ValueError, match="--address is the address of a Ray cluster"):
        score(folder / "ts.safetensors", folder / "preds", tmp_path / "x", address="auto")


SLOWLY = """
import sys, time
from graphcal.tables import scoring

scoring.BATCH = 50
scored = scoring.Scorer.score

def slow(self, *args):
    print(".", end="", flush=True)
    time.sleep(0.01)
    return scored(self, *args)

scoring.Scorer.score = slow
scoring.score(*sys.argv[1:], workers=1)
"""


@pytest.mark.slow
def test_killed_three_times_and_resumed_it_gives_the_same_bytes(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("graphcal.tables.scoring.BATCH", 50)
    score(folder / "ts.safetensors", folder / "preds", tmp_path / "whole")
    seen, out = [], tmp_path / "killed"
    for batches in (3, 14, 16):  # of ten for each shard
        kill_after(child(SLOWLY, folder / "ts.safetensors", folder / "preds", out), batches)
        seen.append(digests(out))
    assert [len(one) for one in seen] == [0, 1, 2]
    assert [p for p in out.iterdir() if p.name.startswith(".part")]  # what was under way
    summary = score(folder / "ts.safetensors", folder / "preds", out)
    whole = digests(out)
    assert all(one.items() <= whole.items() for one in seen)  # what has its name is whole
    assert summary["kept"] == 2
    assert summary["profile"] == json.loads((tmp_path / "whole" / "_score.json").read_text())["profile"]
    assert not [p for p in out.iterdir() if p.name.startswith(".")]
    score(folder / "ts.safetensors", folder / "preds", tmp_path / "again")
    assert digests(tmp_path / "again") == whole


def other_calibrator(folder, tmp_path):
    result = graphcal.calibrate(table().drop(["note"]), Y, calibrator="vs")
    return graphcal.save(result.calibration, tmp_path / "vs.safetensors")


def test_a_folder_of_other_files_is_not_overwritten(folder, tmp_path):
    score(folder / "ts.safetensors", folder / "preds", tmp_path / "out")
    before = digests(tmp_path / "out")
    with pytest.raises(ValueError, match=r"part-\d\.parquet is there and was made from something else"):
        score(other_calibrator(folder, tmp_path), folder / "preds", tmp_path / "out")
    assert digests(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("truncated", r"part-1\.parquet cannot be read"),
        ("column", r"part-1\.parquet: no column 'logit_2'; the columns are"),
        ("nan", r"part-1\.parquet: row 123 has a score \(logits\) that is not a number"),
        ("classes", "fitted on 5 classes, the table has scores for 4"),
        ("kind", "fitted on logits, the column 'prob_0' is probs"),
        ("text", r"part-1\.parquet: column 'logit_1' must hold numbers"),
    ],
)
def test_faults_name_the_file_and_leave_nothing_half_done(folder, tmp_path, fault, message):
    shard = table(slice(0, 500))
    changed = {
        "column": lambda: shard.drop(["logit_2"]),
        "nan": lambda: shard.set_column(2, "logit_0", pa.array(np.where(np.arange(500) == 123, np.nan, Z[:500, 0]))),
        "classes": lambda: shard.drop(["logit_4"]),
        "kind": lambda: shard.rename_columns(["nid", "note", *(f"prob_{k}" for k in range(5))]),
        "text": lambda: shard.set_column(3, "logit_1", pa.array(["a"] * 500)),
    }
    if fault not in ("classes", "kind"):
        (tmp_path / "p").mkdir()
        pq.write_table(shard, tmp_path / "p" / "part-0.parquet")
    (tmp_path / "p").mkdir(exist_ok=True)
    bad = tmp_path / "p" / "part-1.parquet"
    pq.write_table(changed.get(fault, lambda: shard)(), bad)
    if fault == "truncated":
        bad.write_bytes(bad.read_bytes()[:-200])
    with pytest.raises(ValueError, match=message):
        score(folder / "ts.safetensors", tmp_path / "p", tmp_path / "out")
    assert not (tmp_path / "out" / "part-1.parquet").exists()
    assert not (tmp_path / "out" / "_score.json").exists()
    assert not [p for p in tmp_path.rglob(".*") if p.is_file()]


FULL_DISK = """
import resource, signal, sys
from graphcal.tables import scoring

scoring.check_writable = lambda folder: None
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    scoring.score(*sys.argv[1:], workers=1)
except ValueError as fault:
    print(fault)
"""


@pytest.mark.slow
def test_a_full_disk_is_said_and_leaves_nothing(folder, tmp_path):
    message, _ = child(FULL_DISK, folder / "ts.safetensors", folder / "preds", tmp_path / "out").communicate()
    assert f"cannot write {tmp_path / 'out' / 'part-'}" in message.decode()
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]


@pytest.mark.parametrize("name", ["none", "ts", "vs", "scar", "ets", "isotonic", "platt"])
@pytest.mark.parametrize("context", [False, True])
def test_blocks_by_class_equal_the_calibration_itself(name, context):
    out = model_outputs()
    calibration = CALIBRATORS[name]().fit(out, on=out.graph.val_mask)
    nearby = calibration.context_of(out)
    nearby = nearby if context else torch.full_like(nearby, torch.nan)
    expected = calibration.log_probs(out.logits, nearby)
    given = nearby.numpy().T if nearby.shape[1] else None
    probs, pred = calibrated_block(calibration, list(out.logits.numpy().T), given)
    np.testing.assert_allclose(probs.T, expected.exp().numpy(), atol=1e-6)
    top = expected.topk(2).values
    clear = (top[:, 0] - top[:, 1]) > 1e-5
    assert (torch.from_numpy(pred)[clear] == expected.argmax(1)[clear]).all()


def test_scar_weights_that_would_change_a_prediction_are_capped_in_blocks():
    out = model_outputs()
    calibration = graphcal.SCAR(alpha=5.0, beta=-5.0).fit(out, on=out.graph.val_mask)
    probs, pred = calibrated_block(calibration, list(out.logits.numpy().T), calibration.context_of(out).numpy().T)
    np.testing.assert_allclose(probs.T, calibration(out).exp().numpy(), atol=1e-6)
    assert (pred == out.pred.numpy()).all()


def test_a_graph_aware_calibrator_scores_with_edges_and_without_a_graph_refuses(tmp_path):
    out = graphcal.example(seed=2)
    data = out.graph
    path = graphcal.export(out, tmp_path / "x")
    for name in ("rbs", "scar"):
        calibration = CALIBRATORS[name]().fit(out, on=data.val_mask)
        saved = graphcal.save(calibration, tmp_path / f"{name}.safetensors")
        pq.write_table(pa.table({"id": data.train_mask.nonzero()[:, 0].numpy()}), tmp_path / "train.parquet")
        score(
            saved, path, tmp_path / name, edges=tmp_path / "x" / "edges.parquet", train_ids=tmp_path / "train.parquet"
        )
        scored = pq.read_table(tmp_path / name / "predictions.parquet")
        probs = np.stack([scored[f"calibrated_prob_{k}"].to_numpy() for k in range(out.num_classes)], 1)
        np.testing.assert_allclose(probs, calibration(out).exp().numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="reads the graph around every node .* --edges"):
        score(saved, path, tmp_path / "no")
    edges = pq.read_table(tmp_path / "x" / "edges.parquet")
    pq.write_table(pa.concat_tables([edges, pa.table({"src": [9999], "dst": [0]})]), tmp_path / "e.parquet")
    with pytest.raises(ValueError, match=r"1 ends of edges name 1 nodes without a prediction \(first: 9999\)"):
        score(saved, path, tmp_path / "no", edges=tmp_path / "e.parquet")
    assert not list((tmp_path / "no").glob("*.parquet"))


def test_the_scorer_is_one_picklable_function_of_a_batch():
    calibration = CALIBRATORS["ts"]().fit(model_outputs(), on=model_outputs().graph.val_mask)
    scorer = Scorer(calibration, Wide("logits", SCORES), ScoreType("logits"), tuple("01234"))
    scorer = pickle.loads(pickle.dumps(scorer))
    batches = table().to_batches(max_chunksize=700)
    mapped = list(scorer.map(iter(batches)))
    assert all(isinstance(batch, pa.RecordBatch) for batch in mapped)
    assert pa.Table.from_batches(mapped).equals(scorer(table().combine_chunks()))
    assert mapped[0].schema.equals(scorer.schema(table().schema))


def counted(log_probs, sample=(0, 1, 2)):
    """The counts of rows, in batches of 700, as `score` makes them."""
    counts = RowCounts.none(3)
    for at in range(0, len(log_probs), 700):
        probs = log_probs[at : at + 700].exp().numpy()
        rows, keys = sample_keys(len(probs), at)
        values = np.column_stack([probs[rows].max(1), probs[rows][:, list(sample)]])
        one = RowCounts.of(probs.max(1), probs.argmax(1), 3, keys, values)
        counts = counts + RowCounts.from_dict(json.loads(json.dumps(one.to_dict())))
    return counts


def test_counts_of_batches_are_those_of_the_whole_and_hold_a_random_sample():
    log_probs = torch.from_numpy(3 * predictions(5000, 3)[0]).double().log_softmax(-1)
    counts, summary = counted(log_probs), reference_summary(log_probs)
    assert counts.confidence.tolist() == summary["confidence"]
    assert counts.predicted.tolist() == summary["predicted"]
    assert counts.rows == 5000
    conf = log_probs.exp().max(1).values
    assert abs(counts.mean_confidence - float(conf.mean())) < 1e-9
    assert len(counts.keys) == len(counts.sample) == SAMPLE
    keys = np.concatenate(
        [np.random.default_rng(at).random(min(700, 5000 - at), dtype=np.float32) for at in range(0, 5000, 700)]
    )
    expected = np.argsort(keys, kind="stable")[:SAMPLE]  # the rows of the smallest keys, whichever batch they are in
    np.testing.assert_allclose(counts.sample[:, 0], conf.numpy()[expected], atol=1e-3)


def test_drift_is_told_for_other_rows_only():
    z = torch.from_numpy(predictions(5000, 3)[0]).double()
    reference = reference_summary(z[:2500].log_softmax(-1))
    classes = reference["sample"]["classes"]
    same = drift_since(reference, counted(z[2500:].log_softmax(-1), classes))
    assert not same["differ"]
    assert "unlike" not in drift_text(same)
    moved = drift_since(reference, counted((0.5 * z[2500:]).log_softmax(-1), classes))
    assert moved["differ"]
    assert moved["covariate"] == "confidence"
    assert "unlike those of the fit" in drift_text(moved)
    assert drift_since(reference, RowCounts.none(3)) is None


def test_a_long_table_in_several_batches_is_scored_as_one(tmp_path):
    """The rows of an id may lie in two record batches of an Arrow file, or in two row groups of a Parquet file."""
    P, Y = softmax(predictions(200, 3)[0].astype(float)), predictions(200, 3)[1]
    rows = {"id": np.repeat(np.arange(200), 3), "class": np.tile(np.arange(3), 200), "prob": P.reshape(-1)}
    calibration = graphcal.calibrate(P, Y, kind="probs", calibrator="ts").calibration
    saved = graphcal.save(calibration, tmp_path / "ts.safetensors")
    calibrated = []
    for name, write in {
        "one.parquet": lambda path: pq.write_table(pa.table(rows), path),
        "groups.parquet": lambda path: pq.write_table(pa.table(rows), path, row_group_size=100),
        "batches.arrow": lambda path: pa.feather.write_feather(pa.table(rows), str(path), chunksize=100),
    }.items():
        write(tmp_path / name)
        score(saved, tmp_path / name, tmp_path / f"out-{name}")
        calibrated.append(pq.read_table(tmp_path / f"out-{name}")["calibrated_prob"].to_numpy())
    np.testing.assert_allclose(calibrated[0].reshape(-1, 3).sum(1), 1, atol=1e-6)
    assert (calibrated[0] == calibrated[1]).all()
    assert (calibrated[0] == calibrated[2]).all()
