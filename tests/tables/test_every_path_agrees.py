"""One answer by every path: what `calibrate` fits and writes, `score`, `check`, `decide` and `watch` read the same way."""

import copy
import json
import os
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from safetensors.torch import save as to_bytes
from typer.testing import CliRunner

import graphcal
from children import child, kill_after
from graphcal.__main__ import main
from graphcal.cli import app
from graphcal.files import one_process
from graphcal.saving import checksum
from graphcal.tables.metadata import FittedTable
from graphcal.tables.reading import read_table
from graphcal.tables.scorer import calibrated_block, scorer_of
from graphcal.tables.scoring import score

N, C = 1500, 4
NAMES = ("ant", "bee", "cat", "dog")
rng = np.random.default_rng(0)
Y = rng.integers(0, C, N)
Z = rng.standard_normal((N, C))
Z[np.arange(N), Y] += 1.2
Z *= 2.5
P = np.exp(Z) / np.exp(Z).sum(1, keepdims=True)
SOURCE = rng.integers(0, N, 3 * N)
ALIKE = np.array([rng.choice(np.flatnonzero(Y[a] == Y)) for a in SOURCE])
TARGET = np.where(rng.random(3 * N) < 0.8, ALIKE, rng.integers(0, N, 3 * N))
IDS = np.arange(N)
SPLIT = np.array(["train", "val", "val", "test", "test"])[IDS % 5]


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def wide(prefix, scores, names=range(C)):
    return {f"{prefix}_{name}": scores[:, k] for k, name in enumerate(names)}


def edges_of(folder):
    return write(folder / "e.parquet", src=np.r_[SOURCE, TARGET], dst=np.r_[TARGET, SOURCE])


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


# --- top label


@pytest.fixture(scope="module")
def top_label(tmp_path_factory):
    """A table of predictions and confidences, and edges that change predictions."""
    folder = tmp_path_factory.mktemp("top")
    path = write(folder / "p.parquet", id=IDS, label=Y, prediction=P.argmax(1), confidence=P.max(1))
    return path, edges_of(folder)


@pytest.mark.slow
def test_a_top_label_table_is_written_with_the_prediction_its_confidence_is_of(top_label, tmp_path, run):
    path, edges = top_label
    code, _, err = run("calibrate", path, "--edges", edges, "--calibrator", "graph-scaling", "--out", tmp_path / "o")
    assert code == 0, err
    written = pq.read_table(tmp_path / "o" / "calibrated.parquet")
    pred, conf = (written[f"calibrated_{name}"].to_numpy() for name in ("prediction", "confidence"))
    assert (pred != written["prediction"].to_numpy()).mean() > 0.2  # the calibrator does change predictions
    test = np.array(written["split"].to_pylist()) == "test"
    assert abs((pred == Y)[test].mean() - conf[test].mean()) < 0.05
    read = read_table(tmp_path / "o" / "calibrated.parquet")
    assert np.array_equal(read.log_probs.argmax(-1).numpy(), pred)
    np.testing.assert_allclose(read.log_probs.exp().max(-1).values.numpy(), conf, atol=1e-6)
    measured = json.loads((tmp_path / "o" / "results.json").read_text())["methods"]["graph-scaling"]["accuracy"]["mean"]
    assert abs((pred == Y)[test].mean() - measured) < 1e-6
    assert run("check", tmp_path / "o")[0] != 1  # it was measurably not calibrated with the old predictions
    score(tmp_path / "o" / "calibrator.safetensors", path, tmp_path / "s", edges=edges)
    scored = pq.read_table(tmp_path / "s" / "p.parquet")
    assert scored["calibrated_prediction"].to_pylist() == pred.tolist()
    np.testing.assert_allclose(scored["calibrated_confidence"].to_numpy(), conf, atol=1e-5)
    assert np.array_equal(read_table(tmp_path / "s").log_probs.argmax(-1).numpy(), pred)
    code, out, _ = run("watch", tmp_path / "o" / "calibrator.safetensors", tmp_path / "s")
    assert code == 0, out


@pytest.mark.parametrize(
    "dropped", [["prediction", "confidence"], ["calibrated_confidence"], ["calibrated_prediction"]]
)
def test_a_prediction_is_never_read_with_the_confidence_of_another_one(tmp_path, dropped):
    table = pa.table({
        "prediction": ["a", "b"], "confidence": [0.6, 0.7],
        "calibrated_prediction": ["b", "a"], "calibrated_confidence": [0.9, 0.8],
    })  # fmt: skip
    pq.write_table(table.drop(dropped), tmp_path / "p.parquet")
    read = read_table(tmp_path / "p.parquet", classes="a,b")
    rows = read.log_probs.exp().numpy()
    expected = {
        "prediction": [[0.1, 0.9], [0.8, 0.2]],
        "calibrated_confidence": [[0.6, 0.4], [0.3, 0.7]],
        "calibrated_prediction": [[0.9, 0.1], [0.2, 0.8]],  # as tables of older versions are
    }
    np.testing.assert_allclose(rows, expected[dropped[0]], atol=1e-6)


@pytest.mark.parametrize("name", ["graph-scaling-keep", "histogram", "isotonic-keep", "vs"])
def test_the_confidence_is_the_probability_of_the_prediction_beside_it(tmp_path, name):
    result = graphcal.calibrate(Z, Y, kind="logits", calibrator=name)
    table = pa.table({"id": IDS, **wide("logit", Z)})
    scored = scorer_of(result.calibration, table, "t")(table)
    probs = np.stack([scored[f"calibrated_prob_{k}"].to_numpy() for k in range(C)])
    pred = scored["calibrated_prediction"].to_numpy()
    assert np.array_equal(scored["calibrated_confidence"].to_numpy(), probs[pred, np.arange(N)])


# --- the order of classes

ORDER = [3, 2, 0, 1]  # of the columns: dog, cat, ant, bee


def named_columns():
    return wide("logit", Z[:, ORDER], [NAMES[k] for k in ORDER])


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]])
def test_numbers_are_places_in_the_classes_that_are_given(names):
    y = np.array([names.index(NAMES[k]) for k in Y])
    table = pa.table(named_columns())
    with pytest.raises(ValueError, match="number 0 first"):
        graphcal.calibrate(table, y, calibrator="ts")
    result = graphcal.calibrate(table, y, calibrator="ts", classes=names)
    assert (
        result.before.accuracy == graphcal.calibrate(table, np.array(NAMES)[Y], calibrator="ts").before.accuracy > 0.5
    )
    assert result.probs.column_names == [f"prob_{name}" for name in names]
    best = np.stack([column.to_numpy() for column in result.probs.columns]).argmax(0)
    assert np.array_equal(np.array(names)[best], np.array(NAMES)[Z.argmax(1)])


def test_the_advice_on_numbers_works_on_the_command_line(tmp_path, run):
    path = write(tmp_path / "p.parquet", id=IDS, label=Y, **named_columns())
    code, _, err = run("calibrate", path, "--calibrator", "ts", "--out", tmp_path / "o")
    assert code == 2
    assert "Say --classes" in err
    code, _, err = run("calibrate", path, "--calibrator", "ts", "--out", tmp_path / "o", "--classes", ",".join(NAMES))
    assert code == 0, err
    table = read_table(tmp_path / "o" / "calibrated.parquet")  # which remembers the order
    assert np.array_equal(table.y.numpy(), np.array([table.classes.index(NAMES[k]) for k in Y]))
    assert float((table.log_probs.argmax(-1) == table.y).float().mean()) > 0.5
    assert run("check", tmp_path / "o")[0] != 2
    score(tmp_path / "o" / "calibrator.safetensors", path, tmp_path / "s")
    written, scored = pq.read_table(tmp_path / "o" / "calibrated.parquet"), pq.read_table(tmp_path / "s")
    for name in (f"calibrated_prob_{name}" for name in NAMES):
        np.testing.assert_allclose(scored[name].to_numpy(), written[name].to_numpy(), atol=1e-6)


def test_numbers_stay_refused_where_nobody_has_given_the_order(tmp_path, run):
    path = write(tmp_path / "p.parquet", id=IDS, label=np.array(NAMES)[Y], **named_columns())
    assert run("calibrate", path, "--calibrator", "ts", "--out", tmp_path / "o")[0] == 0
    labels = write(tmp_path / "l.parquet", id=IDS, label=Y)
    with pytest.raises(ValueError, match="number 0 first"):
        read_table(tmp_path / "o" / "calibrated.parquet", labels=labels)
    assert read_table(tmp_path / "o" / "calibrated.parquet", labels=labels, classes=NAMES).classes == NAMES


def test_classes_of_a_single_named_score_have_its_class_last(tmp_path):
    path = write(tmp_path / "p.parquet", id=IDS, label=np.minimum(Y, 1), fraud_PROB=P[:, 1])
    assert read_table(path, classes="not fraud,fraud").classes == ("not fraud", "fraud")
    with pytest.raises(ValueError, match="say --classes not fraud,fraud"):
        read_table(path, classes="fraud,not fraud")


def test_accuracy_below_chance_asks_for_the_order_of_the_classes(tmp_path):
    probs = pa.array(list(P))
    right = read_table(write(tmp_path / "a.parquet", probs=probs, label=Y))
    wrong = read_table(write(tmp_path / "b.parquet", probs=probs, label=np.array([1, 2, 3, 0])[Y]))
    few = read_table(write(tmp_path / "c.parquet", probs=probs[:9], label=(P[:9].argmax(1) + 1) % C))
    assert [any("right order" in note for note in table.notes) for table in (right, wrong, few)] == [False, True, False]
    assert any(
        "right order" in note for note in graphcal.calibrate(P, (Y + 1) % C, kind="probs", calibrator="ts").notes
    )


# --- rows by their index


def test_values_whose_index_is_in_another_order_are_refused():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(wide("logit", Z), index=[f"n{k}" for k in range(N)])
    on, y = pd.Series(IDS % 2 == 0, index=frame.index), pd.Series(Y, index=frame.index)
    whole = graphcal.calibrate(frame, y, on=on, calibrator="ts")
    shuffled = on.sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match=r"on\.loc\[scores\.index\]"):
        graphcal.calibrate(frame, y, on=shuffled, calibrator="ts")
    with pytest.raises(ValueError, match="at another position"):  # the scores have no index, the labels have
        graphcal.calibrate(Z, y, on=shuffled, kind="logits", calibrator="ts")
    again = graphcal.calibrate(frame, y, on=shuffled.loc[frame.index], calibrator="ts")
    assert np.array_equal(again.probs, whole.probs)
    other = y.rename({"n0": "stranger"})
    graphcal.calibrate(frame, other, on=on.to_numpy(), calibrator="ts")  # all others are at their places
    with pytest.raises(ValueError, match=r"y has 1,49\d labels of the scores' index at another position"):
        graphcal.calibrate(frame, other.sample(frac=1, random_state=0), calibrator="ts")


# --- the columns of the fit


@pytest.mark.slow
def test_a_calibrator_of_calibrated_scores_reads_calibrated_scores(tmp_path, run):
    path = write(tmp_path / "p.parquet", id=IDS, label=Y, split=SPLIT, **wide("prob", P))
    assert run("calibrate", path, "--calibrator", "ts", "--out", tmp_path / "c1")[0] == 0
    once = tmp_path / "c1" / "calibrated.parquet"
    assert run("calibrate", once, "--calibrator", "vs", "--out", tmp_path / "c2")[0] == 0
    score(tmp_path / "c2" / "calibrator.safetensors", once, tmp_path / "s")
    written, scored = pq.read_table(tmp_path / "c2" / "calibrated.parquet"), pq.read_table(tmp_path / "s")
    for name in [f"calibrated_prob_{k}" for k in range(C)]:
        np.testing.assert_allclose(scored[name].to_numpy(), written[name].to_numpy(), atol=1e-6)
    with pytest.raises(ValueError, match="fitted on calibrated scores"):
        score(tmp_path / "c2" / "calibrator.safetensors", path, tmp_path / "x")
    score(
        tmp_path / "c1" / "calibrator.safetensors", once, tmp_path / "first"
    )  # the first one reads the model's scores
    np.testing.assert_allclose(
        pq.read_table(tmp_path / "first")["calibrated_prob_0"].to_numpy(),
        pq.read_table(once)["calibrated_prob_0"].to_numpy(),
        atol=1e-6,
    )


@pytest.mark.slow
def test_a_table_with_fewer_digits_than_the_fit_is_noted(tmp_path):
    sharp = np.exp(3 * Z) / np.exp(3 * Z).sum(1, keepdims=True)
    result = graphcal.calibrate(sharp, Y, kind="probs", calibrator="ts")
    graphcal.save(result.calibration, tmp_path / "c.safetensors")
    rounded = np.round(sharp, 4)
    assert (rounded == 0).any()
    full = score(tmp_path / "c.safetensors", write(tmp_path / "full.parquet", **wide("prob", sharp)), tmp_path / "f")
    summary = score(tmp_path / "c.safetensors", write(tmp_path / "r.parquet", **wide("prob", rounded)), tmp_path / "r")
    assert "notes" not in full
    assert (
        "rounded to 4 digits, those of the fit were not rounded; a probability of 0 is read as 2.5e-05"
        in summary["notes"][0]
    )
    scored = np.stack([pq.read_table(tmp_path / "r")[f"calibrated_prob_{k}"].to_numpy() for k in range(C)], 1)
    scale = float(result.calibration.scale)
    floored = np.where(rounded == 0, 2.5e-5, rounded) ** scale
    np.testing.assert_allclose(scored, floored / floored.sum(1, keepdims=True), atol=1e-6)
    few = write(tmp_path / "few.parquet", **wide("prob", np.full((5, C), 0.25)))  # five rows are no sign of rounding
    assert "notes" not in score(tmp_path / "c.safetensors", few, tmp_path / "few")
    same = graphcal.calibrate(rounded, Y, kind="probs", calibrator="ts")
    graphcal.save(same.calibration, tmp_path / "same.safetensors")
    assert "notes" not in score(tmp_path / "same.safetensors", tmp_path / "r.parquet", tmp_path / "q")


# --- many classes


@pytest.mark.slow
def test_more_classes_than_a_short_number_counts(tmp_path, run):
    count, rows = 40_000, 24
    rng = np.random.default_rng(1)
    y = np.r_[np.arange(count - rows // 2, count), np.arange(rows // 2)]
    z = rng.standard_normal((rows, count)).astype(np.float32)
    z[np.arange(rows), y] += 12
    path = write(tmp_path / "p.parquet", id=np.arange(rows), label=y, logits=pa.array(list(z)))
    code, _, err = run("calibrate", path, "--calibrator", "ts", "--out", tmp_path / "o")
    assert code == 0, err
    assert pq.read_table(tmp_path / "o" / "calibrated.parquet")["calibrated_prediction"].to_pylist() == y.tolist()
    score(tmp_path / "o" / "calibrator.safetensors", path, tmp_path / "s")
    assert pq.read_table(tmp_path / "s")["calibrated_prediction"].to_pylist() == y.tolist()


@pytest.mark.parametrize(("count", "kind"), [((1 << 15), np.int16), ((1 << 15) + 1, np.int32)])
def test_predictions_are_as_small_as_the_classes_allow(count, kind):
    z = np.zeros((count, 2), np.float32)
    z[-1] = 1
    calibration = graphcal.calibrate(Z, Y, kind="logits", calibrator="ts").calibration
    _, pred = calibrated_block(calibration, z)
    assert pred.dtype == kind
    assert pred.tolist() == [count - 1] * 2


# --- given again


@pytest.fixture(scope="module")
def calibrators(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibrators")
    table = pa.table({"id": IDS, **wide("logit", Z)})
    graphcal.save(graphcal.calibrate(table, Y, calibrator="ts").calibration, folder / "ts.safetensors")
    edges = np.stack([np.r_[SOURCE, TARGET], np.r_[TARGET, SOURCE]])
    result = graphcal.calibrate(table, Y, edges=edges, calibrator="graph-scaling")
    graphcal.save(result.calibration, folder / "graph.safetensors")
    return folder


def predictions_of(folder):
    return pq.read_table(folder)["calibrated_prediction"].to_numpy()


def write_plainly(path, z):
    """As many bytes whatever the numbers are."""
    path.parent.mkdir(exist_ok=True)
    table = pa.table({f"logit_{k}": z[:, k] for k in range(z.shape[1])})
    pq.write_table(table, path, compression="none", use_dictionary=False)


def test_a_parquet_file_that_changed_in_its_middle_is_scored_again(tmp_path):
    z = rng.uniform(-4, 4, (60_000, 5)).astype(np.float32)
    z[0], z[-1] = -4, 4
    saved = graphcal.calibrate(z[:500], z[:500].argmax(1), kind="logits", calibrator="ts").calibration
    graphcal.save(saved, tmp_path / "c.safetensors")
    path, other = tmp_path / "sh" / "a.parquet", tmp_path / "sh" / "b.parquet"
    for shard in (path, other):
        write_plainly(shard, z)
    score(tmp_path / "c.safetensors", tmp_path / "sh", tmp_path / "out")
    size, head, times = path.stat().st_size, path.read_bytes(), path.stat()
    z[30_000:30_500] = z[30_000:30_500, ::-1]
    write_plainly(path, z)
    now = path.read_bytes()
    assert len(now) == size  # as the size, so are the beginning and the end
    assert (now[: 1 << 16], now[-(1 << 16) :]) == (head[: 1 << 16], head[-(1 << 16) :])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert score(tmp_path / "c.safetensors", tmp_path / "sh", tmp_path / "out")["kept"] == 1
    assert np.array_equal(predictions_of(tmp_path / "out" / "a.parquet"), z.argmax(1))


@pytest.mark.slow
def test_edges_that_changed_are_read_again(calibrators, tmp_path):
    path = write(tmp_path / "p.parquet", id=IDS, **wide("logit", Z))
    edges = edges_of(tmp_path)
    score(calibrators / "graph.safetensors", path, tmp_path / "out", edges=edges)
    write(edges, src=np.r_[SOURCE, TARGET], dst=np.r_[TARGET, SOURCE][::-1])
    assert score(calibrators / "graph.safetensors", path, tmp_path / "out", edges=edges)["kept"] == 0
    score(calibrators / "graph.safetensors", path, tmp_path / "whole", edges=edges)
    assert pq.read_table(tmp_path / "out").equals(pq.read_table(tmp_path / "whole"))


@pytest.mark.slow
def test_rows_that_are_gone_leave_the_folder_and_other_files_stay(calibrators, tmp_path, run):
    saved, preds, out = calibrators / "ts.safetensors", tmp_path / "in", tmp_path / "out"
    for name in ("a", "b"):
        write(preds / f"{name}.parquet", id=IDS, **wide("logit", Z))
    lone = write(tmp_path / "lone.parquet", id=IDS, **wide("logit", Z))
    score(saved, preds, out)
    score(saved, lone, out)  # another table, scored into the same folder
    (out / "backup").mkdir()
    shutil.copy(out / "b.parquet", out / "backup" / "b.parquet")
    pq.write_table(pa.table({"mine": [1]}), out / "mine.parquet")
    (preds / "b.parquet").unlink()
    code, _, err = run("score", saved, preds, "--out", out)
    assert code == 0
    assert "removed 1 scored file whose rows" in err
    assert {p.relative_to(out).as_posix() for p in out.rglob("*.parquet")} == {
        "a.parquet", "lone.parquet", "backup/b.parquet", "mine.parquet",
    }  # fmt: skip
    assert "notes" not in score(saved, preds, out)


def test_a_file_that_is_cut_otherwise_than_before_leaves_no_row_twice(calibrators, tmp_path, monkeypatch):
    path = tmp_path / "in" / "p.parquet"
    write(path, id=IDS, **wide("logit", Z))
    score(calibrators / "ts.safetensors", tmp_path / "in", tmp_path / "out")
    monkeypatch.setattr("graphcal.tables.scoring.JOB_ROWS", 500)
    pq.write_table(pq.read_table(path), path, row_group_size=400)
    score(calibrators / "ts.safetensors", tmp_path / "in", tmp_path / "out")
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == IDS.tolist()


def test_the_folder_is_a_table_for_pyarrow(calibrators, tmp_path):
    for name, rows in (("a", slice(0, 700)), ("b", slice(700, N))):
        write(tmp_path / "in" / f"{name}.parquet", id=IDS[rows], **wide("logit", Z[rows]))
    score(calibrators / "ts.safetensors", tmp_path / "in", tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["_score.json", "a.parquet", "b.parquet"]
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == IDS.tolist()


# --- two processes

WAITS = """
import sys, time
from graphcal.tables import scoring

def waits(now, done, total):
    if now == sys.argv[1]:
        print(".", end="", flush=True)
        time.sleep(float(sys.argv[2]))
        sys.argv[2] = "0"  # once

scoring.score(*sys.argv[3:6], *(sys.argv[6:] or [None]), workers=1, progress=waits)
"""


def test_a_second_process_is_refused_and_the_first_one_finishes(calibrators, tmp_path, monkeypatch):
    """No look at /proc: elsewhere it is not there, and a number may be that of another process."""
    path, edges = write(tmp_path / "p.parquet", id=IDS, **wide("logit", Z)), edges_of(tmp_path)
    saved = calibrators / "graph.safetensors"
    monkeypatch.setattr("pathlib.Path.exists", lambda self: not str(self).startswith("/proc") and os.path.exists(self))
    first = child(WAITS, "reading neighbourhoods", 3, saved, path, tmp_path / "out", edges)
    assert first.stdout.read(1) == b"."
    with pytest.raises(ValueError, match="another process is scoring into"):
        score(saved, path, tmp_path / "out", edges=edges)
    first.stdout.read()
    assert first.wait(60) == 0
    first.stdout.close()
    score(saved, path, tmp_path / "whole", edges=edges)
    assert pq.read_table(tmp_path / "out").equals(pq.read_table(tmp_path / "whole"))
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.slow
def test_a_killed_process_is_no_obstacle_though_its_number_is_used_again(calibrators, tmp_path):
    path, edges = write(tmp_path / "p.parquet", id=IDS, **wide("logit", Z)), edges_of(tmp_path)
    saved = calibrators / "graph.safetensors"
    kill_after(child(WAITS, "reading neighbourhoods", 30, saved, path, tmp_path / "out", edges), 1)
    (left,) = (tmp_path / "out").glob(".graph-*")
    (left / "process").write_text("1")  # a number that is always there
    assert score(saved, path, tmp_path / "out", edges=edges)["rows"] == N
    assert not list((tmp_path / "out").glob(".*"))


def test_the_half_written_file_of_a_running_process_stays(calibrators, tmp_path, monkeypatch):
    path = write(tmp_path / "in" / "sub" / "p.parquet", id=IDS, **wide("logit", Z))
    write(tmp_path / "in" / "q.parquet", id=IDS, **wide("logit", Z))
    code = "import sys, time\nfrom graphcal.files import atomic_file\nwith atomic_file(sys.argv[1]):\n"
    code += "    print('.', end='', flush=True)\n    time.sleep(60)"
    out = tmp_path / "out"
    running = child(code, out / "sub" / "other.parquet")
    assert running.stdout.read(1) == b"."
    dead = out / "sub" / ".p.parquet.1.0badf00d"
    dead.write_bytes(b"half")
    score(calibrators / "ts.safetensors", path.parent.parent, out)
    left = [p.name for p in (out / "sub").glob(".*")]
    running.kill()
    running.wait()
    running.stdout.close()
    assert [name.startswith(".other.parquet.") for name in left] == [True]


def test_a_lock_is_free_again_when_it_is_given_back(tmp_path):
    lock = one_process(tmp_path / "lock", "taken")
    with lock, pytest.raises(ValueError, match="taken"), one_process(tmp_path / "lock", "taken"):
        pass
    (tmp_path / "lock").touch()  # of a process that was killed
    with one_process(tmp_path / "lock", "taken"):
        pass
    assert not (tmp_path / "lock").exists()


# --- training rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A calibrator that reads the training rows, its table and its edges; ids are called `paper`."""
    folder = tmp_path_factory.mktemp("trained")
    path = write(folder / "p.parquet", paper=IDS[::-1].copy(), **wide("logit", 0.3 * Z[::-1]))  # under-confident
    labels = write(folder / "l.parquet", paper=IDS, label=Y)
    split = write(folder / "split.parquet", row=np.arange(N)[::-1].copy(), paper=IDS, split=SPLIT)
    edges = edges_of(folder)
    from graphcal.calibrate_table import calibrate_files

    names = {"id": "paper"}
    table = read_table(path, labels=labels, split=split, columns=names)
    layer = folder / "layer.safetensors"
    save_file({"weight": 2 * torch.eye(C), "bias": torch.zeros(C)}, layer)
    calibrate_files(table, edges, layer, ["scar"], columns=names).save(folder / "o")
    return folder


def scored_with(folder, out, **options):
    saved = folder / "o" / "calibrator.safetensors"
    summary = score(saved, folder / "p.parquet", out, edges=folder / "e.parquet", **options)
    table = pq.read_table(out)
    return summary, np.stack([table[f"calibrated_prob_{k}"].to_numpy() for k in range(C)], 1)


@pytest.mark.slow
def test_training_ids_are_those_whose_split_is_train(trained, tmp_path):
    names = {"id": "paper"}
    written = pq.read_table(trained / "o" / "calibrated.parquet")
    expected = np.stack([written[f"calibrated_prob_{k}"].to_numpy() for k in range(C)], 1)
    alone = write(tmp_path / "ids.parquet", x=IDS[SPLIT == "train"])  # ids alone, by any name
    masks = write(tmp_path / "masks.parquet", paper=IDS, train_mask=SPLIT == "train", val_mask=SPLIT == "val")
    for k, train in enumerate([trained / "split.parquet", alone, masks]):
        summary, probs = scored_with(trained, tmp_path / str(k), train_ids=train, columns=names)
        np.testing.assert_allclose(probs, expected, atol=1e-5)
        assert "notes" not in summary
    summary, probs = scored_with(trained, tmp_path / "none", columns=names)
    assert np.abs(probs - expected).max() > 0.01  # without its training rows the calibrator gives other answers
    assert "300 training rows" in summary["notes"][0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"paper": IDS, "weight": np.ones(N)},
            r"t\.parquet: expected a column of ids with a column 'split', or ids alone",
        ),
        ({"x": IDS, "y2": IDS, "split": SPLIT}, "expected a column of ids with a column 'split'"),
        ({"paper": IDS, "split": np.where(SPLIT == "train", "val", SPLIT)}, "no row has the split 'train'"),
        ({"paper": np.zeros(N, int), "split": SPLIT}, "rows repeat an id"),
    ],
)
def test_other_tables_of_training_rows_are_refused(trained, tmp_path, columns, message):
    with pytest.raises(ValueError, match=message):
        scored_with(
            trained, tmp_path / "o", train_ids=write(tmp_path / "t.parquet", **columns), columns={"id": "paper"}
        )


@pytest.mark.parametrize("option", ["--edges", "--train-ids"])
def test_a_file_that_does_not_exist_is_refused_though_nobody_reads_it(calibrators, tmp_path, run, option):
    path = write(tmp_path / "p.parquet", id=IDS, **wide("logit", Z))
    saved = calibrators / "ts.safetensors"
    code, _, err = run("score", saved, path, "--out", tmp_path / "o", option, tmp_path / "nowhere.parquet")
    assert code == 2
    assert "nowhere.parquet: no such file or folder" in err.replace("\n", "")
    assert not (tmp_path / "o").exists()
    code, _, err = run("score", saved, path, "--out", tmp_path / "o", option, path)
    assert code == 0
    assert "reads no graph" in err


# --- headers of files

WRONG = (
    None,
    True,
    -1,
    7,
    1 << 70,
    0.5,
    float("inf"),
    "x",
    "",
    [],
    [1],
    ["a"],
    ["a", "a", "b", "c"],
    [[1]],
    {},
    {"a": 1},
    {"id": 3},
)


def places_in(value, path=()):
    """The path to every value in a tree of JSON, of a long list to its ends only."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places_in(inner, (*path, key))


def changed(tree, path, value):
    tree = copy.deepcopy(tree)
    if not path:
        return value
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tree


def resigned(source, target, header):
    """The file with another header, and a checksum that fits it."""
    tensors = load_file(source)
    metadata = {"graphcal": json.dumps(header)}
    metadata["sha256"] = checksum(metadata, tensors)
    target.write_bytes(to_bytes(tensors, metadata=metadata))
    return target


@pytest.mark.slow
@pytest.mark.parametrize("form", ["wide", "list", "top-label"])
def test_a_header_with_anything_in_any_field_is_read_or_refused_by_name(tmp_path, form):
    from safetensors import safe_open

    columns = {
        "wide": wide("prob", P),
        "list": {"probs": pa.array(list(P))},
        "top-label": {"prediction": P.argmax(1), "confidence": P.max(1)},
    }[form]
    path = write(tmp_path / "p.parquet", id=IDS[:60], **{name: c[:60] for name, c in columns.items()})
    from graphcal.calibrate_table import calibrate_files

    fit = write(tmp_path / "fit.parquet", id=IDS, label=Y, split=SPLIT, **columns)
    calibrate_files(read_table(fit), None, None, ["ts"]).save(tmp_path / "o")
    saved = tmp_path / "o" / "calibrator.safetensors"
    with safe_open(saved, framework="pt") as file:
        header = json.loads(file.metadata()["graphcal"])
    bad, outcomes = tmp_path / "bad.safetensors", set()
    for at in places_in(header):
        for value in WRONG:
            resigned(saved, bad, changed(header, at, value))
            try:
                score(bad, path, tmp_path / "s", workers=1)
                outcomes.add("read")
                shutil.rmtree(tmp_path / "s")
            except ValueError as fault:
                outcomes.add("refused" if str(fault).startswith((str(bad), str(path))) else f"{at} {value}: {fault}")
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kind", "scores"), ("kind", ["probs"]), ("digits", "4"), ("digits", 40), ("digits", True), ("classes", [0, 1, 2, 3]),
        ("classes", "abcd"), ("classes", ["a", "b"]), ("layout", 3), ("layout", "tall"), ("columns", ["id"]),
        ("columns", {"id": 3}), ("columns", {"mood": "x"}), ("calibrated", 1), ("training_rows", "many"), ("training_rows", -1),
    ],
)  # fmt: skip
def test_every_value_of_the_table_of_a_fit_is_checked(key, value):
    calibration = graphcal.calibrate(pa.table(wide("prob", P)), Y, calibrator="ts").calibration
    calibration.file = "c.safetensors"
    assert FittedTable.of(calibration).to_dict() == calibration.fitted_on["table"]
    calibration.fitted_on["table"][key] = value
    with pytest.raises(ValueError, match=r"^c\.safetensors has a damaged graphcal header: .* in fitted_on\.table$"):
        FittedTable.of(calibration)


def moved_rows(table, change, rng):
    """Rows of the same source, or not: class 0 three times as frequent, or probabilities sharpened to p^1.15."""
    logits = np.stack([table[f"logit_{k}"].to_numpy() for k in range(4)], 1)
    if change == "sharper":
        logits = 1.15 * logits
    rows = np.arange(len(logits))
    if change == "class 0":
        first = np.flatnonzero(logits.argmax(1) == 0)
        rows = np.concatenate([rows, rng.choice(first, 2 * len(first))])
    rows = rng.permutation(rows)
    return pa.table({"id": np.arange(len(rows)), **{f"logit_{k}": logits[rows, k] for k in range(4)}})


@pytest.mark.slow_cases("wide-", "top-label-class 0", "top-label-sharper")
@pytest.mark.parametrize("change", ["none", "class 0", "sharper"])
@pytest.mark.parametrize("form", ["wide", "top-label"])
def test_score_and_watch_say_the_same_of_the_same_rows(change, form, tmp_path):
    rng = np.random.default_rng(0)

    def source(n):
        y = rng.integers(0, 4, n)
        z = rng.standard_normal((n, 4))
        z[np.arange(n), y] += 1.2
        return y, pa.table({"id": np.arange(n), **{f"logit_{k}": 2.5 * z[:, k] for k in range(4)}})

    def written(table, path):
        if form == "top-label":
            z = torch.from_numpy(np.stack([table[f"logit_{k}"].to_numpy() for k in range(4)], 1)).softmax(1).max(1)
            table = pa.table({"id": table["id"], "prediction": z.indices.numpy(), "confidence": z.values.numpy()})
        pq.write_table(table, path)

    y, table = source(6000)
    written(table, tmp_path / "p.parquet")
    pq.write_table(pa.table({"id": np.arange(6000), "label": y}), tmp_path / "l.parquet")
    for part, rows in (("a", source(4000)[1]), ("b", source(3000)[1])):
        (tmp_path / "new").mkdir(exist_ok=True)
        written(moved_rows(rows, change, rng), tmp_path / "new" / f"{part}.parquet")
    out = tmp_path / "out"
    steps = (
        ["calibrate", tmp_path / "p.parquet", "--labels", tmp_path / "l.parquet", "--calibrator", "ts", "--out", out],
        ["score", out, tmp_path / "new", "--out", tmp_path / "scored", "--json"],
        ["watch", out, tmp_path / "scored", "--json"],
    )
    done = [CliRunner().invoke(app, [str(word) for word in step]) for step in steps]
    drift, seen = (json.loads(step.stdout) for step in done[1:])
    assert drift["drift"]["differ"] is (change != "none")
    assert done[2].exit_code == (0 if change == "none" else 3), seen
