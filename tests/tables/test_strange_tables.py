"""Tables as strangers write them: each is read as it is meant, or refused with what to do; none is silently misread."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import graphcal
from graphcal.calibrate_table import calibrate_files
from graphcal.cli import app
from graphcal.tables.edges import read_edges
from graphcal.tables.estimator import CalibratedScores
from graphcal.tables.reading import read_table
from graphcal.tables.scorer import scorer_of
from graphcal.tables.scoring import score

N, C = 120, 12
rng = np.random.default_rng(0)
Z = 2 * rng.standard_normal((N, C))
P = np.exp(Z) / np.exp(Z).sum(1, keepdims=True)
Y = (Z / 2 + rng.gumbel(size=Z.shape)).argmax(1)
SPLIT = np.array(["train", "val", "val", "test", "test"])[np.arange(N) % 5]
IDS = np.arange(N)
KNOWN = {"id": IDS, "label": Y, "split": SPLIT}
NAMES = [f"cls{k}" for k in range(C)]
Z2 = Z[:, :2]
P2 = np.exp(Z2) / np.exp(Z2).sum(1, keepdims=True)
Y2 = (Z2 / 2 + rng.gumbel(size=Z2.shape)).argmax(1)


def wide(prefix="prob_", scores=P, names=range(C)):
    return {f"{prefix}{name}": scores[:, k] for k, name in enumerate(names)}


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def probs_of(table):
    return table.logits.double().softmax(-1).numpy()


def is_as_meant(table, probs=P, y=Y):
    assert np.abs(probs_of(table) - probs).max() < 1e-4
    assert np.array_equal(table.y.numpy(), y)
    assert np.array_equal(table.split.val, SPLIT == "val")
    assert np.array_equal(table.split.train, SPLIT == "train")


# --- labels and classes


def test_labels_of_minus_one_and_one_are_two_classes_or_refused(tmp_path):
    path = write(tmp_path / "p.parquet", id=IDS, split=SPLIT, label=2 * Y2 - 1, prob=P2[:, 1])
    with pytest.raises(ValueError, match="-1 and 1.*--classes -1,1"):
        read_table(path)
    table = read_table(path, classes="-1,1")
    assert np.array_equal(table.y.numpy(), Y2)
    with pytest.raises(ValueError, match="--classes -1,1"):
        graphcal.calibrate(Z2, 2 * Y2 - 1, kind="logits")


def test_minus_one_is_no_label_where_other_labels_are(tmp_path):
    y = np.where(IDS % 4 == 0, -1, Y2)
    assert np.array_equal(read_table(write(tmp_path / "p.parquet", id=IDS, label=y, prob=P2[:, 1])).y.numpy(), y)


@pytest.mark.parametrize("labels", [Y2 == 1, Y2, np.where(Y2 == 1, "fraud", "not fraud")])
def test_a_column_named_after_the_positive_class_takes_plain_labels(tmp_path, labels):
    table = read_table(write(tmp_path / "p.parquet", id=IDS, label=labels, fraud_PROB=P2[:, 1]))
    assert np.array_equal(table.y.numpy(), Y2)
    assert table.classes == ("not fraud", "fraud")


def test_top_label_predictions_and_labels_in_two_spellings_are_refused(tmp_path):
    pred = np.array(NAMES)[P.argmax(1)]
    path = write(tmp_path / "p.parquet", **KNOWN, prediction=pred, confidence=P.max(1))
    with pytest.raises(ValueError, match="no label .* occurs among the predictions .*--classes"):
        read_table(path)
    table = read_table(path, classes=NAMES)
    assert np.array_equal(table.y.numpy(), Y)
    assert table.num_classes == C


def test_decimal_labels_are_whole_numbers(tmp_path):
    label = pa.array(Y.tolist(), pa.decimal128(10, 0))
    is_as_meant(read_table(write(tmp_path / "p.parquet", id=IDS, label=label, split=SPLIT, **wide())))


def test_predictions_at_another_threshold_are_no_other_order(tmp_path):
    columns = {"id": IDS, "label": Y2, "prob": P2[:, 1]}
    table = read_table(write(tmp_path / "p.parquet", **columns, prediction=(P2[:, 1] > 0.3).astype(int)))
    assert np.array_equal(table.y.numpy(), Y2)
    with pytest.raises(ValueError, match="another order"):
        read_table(write(tmp_path / "p.parquet", **columns, prediction=(P2[:, 1] < 0.3).astype(int)))


# --- splits


def test_the_split_of_the_predictions_stays_when_labels_come_from_a_file(tmp_path):
    predictions = write(tmp_path / "p.parquet", id=IDS, split=SPLIT, **wide())
    is_as_meant(read_table(predictions, labels=write(tmp_path / "l.parquet", id=IDS[::-1], label=Y[::-1])))


def test_masks_as_pyg_has_them_are_a_split(tmp_path):
    masks = {f"{part}_mask": torch.tensor(part == SPLIT) for part in ("train", "val", "test")}
    torch.save({"logits": torch.tensor(Z), "y": torch.tensor(Y)[:, None], **masks}, tmp_path / "p.pt")
    is_as_meant(read_table(tmp_path / "p.pt"))
    overlap = {**masks, "test_mask": masks["val_mask"]}
    torch.save({"logits": torch.tensor(Z), "y": torch.tensor(Y), **overlap}, tmp_path / "p.pt")
    with pytest.raises(ValueError, match="two of train_mask, val_mask and test_mask"):
        read_table(tmp_path / "p.pt")


def test_folders_named_after_a_column_are_that_column(tmp_path):
    for part in ("train", "val", "test"):
        rows = part == SPLIT
        columns = {name: column[rows] for name, column in wide().items()}
        write(tmp_path / "q" / f"split={part}" / "part-0.parquet", id=IDS[rows], label=Y[rows], **columns)
    table = read_table(tmp_path / "q")
    order = table.ids.to_numpy()
    assert np.array_equal(table.split.val, SPLIT[order] == "val")
    assert np.array_equal(table.split.test, SPLIT[order] == "test")


# --- kinds and columns


def test_a_kind_that_contradicts_the_columns_names_is_refused(tmp_path):
    path = write(tmp_path / "p.parquet", **KNOWN, **wide())
    with pytest.raises(ValueError, match="'prob_0' is called probs, --kind says logits"):
        read_table(path, kind="logits")


def test_log_probabilities_must_be_normalised(tmp_path):
    is_as_meant(read_table(write(tmp_path / "p.parquet", **KNOWN, **wide("log_prob_", np.log(P)))))
    with pytest.raises(ValueError, match="natural logarithms"):
        read_table(write(tmp_path / "p.parquet", **KNOWN, **wide("log_prob_", np.log10(P))))


def test_logits_that_are_probabilities_are_refused():
    with pytest.raises(ValueError, match="sums to 1, as probabilities do"):
        graphcal.calibrate(P, Y, kind="logits")


@pytest.mark.parametrize("prefix", ["score_", "p", "", "class_"])
def test_numbered_columns_of_any_name_are_scores_with_a_kind(tmp_path, prefix):
    path = write(tmp_path / "p.parquet", **KNOWN, **wide(prefix))
    is_as_meant(read_table(path, kind="probs"))
    with pytest.raises(ValueError, match="--kind"):
        read_table(path)


@pytest.mark.parametrize("prefix", ["proba_", "probability_"])
def test_other_words_for_probability(tmp_path, prefix):
    is_as_meant(read_table(write(tmp_path / "p.parquet", **KNOWN, **wide(prefix))))


@pytest.mark.parametrize("role", ["id", "label", "split", "scores"])
def test_a_column_that_no_file_has_is_refused(tmp_path, role):
    path = write(tmp_path / "p.parquet", **KNOWN, probs=pa.array(list(P)))
    with pytest.raises(ValueError, match="no column 'typo'"):
        read_table(path, columns={role: "typo"})


def test_files_may_call_their_ids_by_names_of_their_own(tmp_path):
    predictions = write(tmp_path / "p.parquet", paper=IDS, **wide())
    labels = write(tmp_path / "l.parquet", nid=IDS, label=Y, split=SPLIT)
    is_as_meant(read_table(predictions, labels=labels, columns={"id": "paper"}))


def test_a_class_without_a_confidence_is_refused_with_advice(tmp_path):
    with pytest.raises(ValueError, match="'y_pred' is a class without its confidence"):
        read_table(write(tmp_path / "p.parquet", y_pred=P.argmax(1)))


def test_numbers_written_as_text_are_numbers(tmp_path):
    text = {name: [f"{v:.9f}" for v in column] for name, column in wide().items()}
    is_as_meant(read_table(write(tmp_path / "p.parquet", **KNOWN, **text)))
    table = read_table(write(tmp_path / "p.parquet", id=IDS, label=Y2, prob=[f"{v:.9f}" for v in P2[:, 1]]))
    assert np.abs(probs_of(table) - P2).max() < 1e-6
    with pytest.raises(ValueError, match="'prob' must hold numbers .*high"):
        read_table(write(tmp_path / "p.parquet", id=IDS, label=Y2, prob=["high"] * N))


def test_text_of_any_type_joins_a_list(tmp_path):
    joined = [";".join(repr(float(v)) for v in row) for row in P]
    for kind in (pa.large_string(), pa.string()):
        is_as_meant(read_table(write(tmp_path / "p.parquet", **KNOWN, probs=pa.array(joined, kind))))


def test_one_logit_in_a_column_of_its_own(tmp_path):
    np.savez(tmp_path / "p.npz", label=Y2, logits=(Z2[:, 1] - Z2[:, 0])[:, None])
    assert np.abs(probs_of(read_table(tmp_path / "p.npz")) - P2).max() < 1e-6
    assert np.abs(probs_of(read_table(write(tmp_path / "p.parquet", label=Y2, prob_1=P2[:, 1]))) - P2).max() < 1e-6


# --- ids and shards


def test_a_bare_tensor_has_rows(tmp_path):
    torch.save(torch.tensor(Z), tmp_path / "p.pt")
    labels = write(tmp_path / "l.parquet", label=Y, split=SPLIT)
    is_as_meant(read_table(tmp_path / "p.pt", kind="logits", labels=labels))


def test_ids_beyond_the_signed_numbers(tmp_path):
    ids = pa.array(IDS.astype("uint64") + np.uint64(2**63))
    labels = write(tmp_path / "l.parquet", id=ids, label=Y, split=SPLIT)
    is_as_meant(read_table(write(tmp_path / "p.parquet", id=ids, **wide()), labels=labels))


def test_labels_of_other_ids_are_refused_with_both(tmp_path):
    predictions = write(tmp_path / "p.parquet", id=[f"{k:05d}" for k in IDS], **wide())
    with pytest.raises(ValueError, match="none of its 120 ids .*'00000'.*'0'.*leading zeros"):
        read_table(predictions, labels=write(tmp_path / "l.parquet", id=IDS, label=Y, split=SPLIT))


def test_empty_labels_are_counted(tmp_path):
    label = pa.array([None if k < 7 else int(v) for k, v in enumerate(Y)])
    table = read_table(
        write(tmp_path / "p.parquet", id=IDS, **wide()), labels=write(tmp_path / "l.parquet", id=IDS, label=label)
    )
    assert table.notes == ("7 labels in l.parquet are empty",)


def test_shards_may_write_an_id_as_number_and_as_text(tmp_path):
    table = pa.table({**KNOWN, **wide()})
    text = table.slice(60).set_column(0, "id", table["id"].slice(60).cast(pa.string()).dictionary_encode())
    (tmp_path / "p").mkdir()
    pq.write_table(table.slice(0, 60), tmp_path / "p" / "a.parquet")
    pq.write_table(text, tmp_path / "p" / "b.parquet")
    is_as_meant(shards := read_table(tmp_path / "p"))
    assert shards.ids.to_pylist() == [str(k) for k in IDS]
    written = calibrate_files(shards, None, None, ["ts"]).save(tmp_path / "out").parent / "calibrated.parquet"
    assert pq.read_table(written)["id"].to_pylist() == [str(k) for k in IDS]


def test_a_shard_with_one_class_more_is_refused(tmp_path):
    rows = slice(0, 60)
    first = {name: column[rows] for name, column in {**KNOWN, **wide("logit_", Z)}.items()}
    write(tmp_path / "p" / "a.parquet", **first)
    write(tmp_path / "p" / "b.parquet", **first, logit_12=np.zeros(60))
    with pytest.raises(ValueError, match=r"b\.parquet: a column 'logit_12' of scores, which a\.parquet"):
        read_table(tmp_path / "p")
    calibration = graphcal.calibrate(Z, Y, kind="logits", calibrator="ts").calibration
    graphcal.save(calibration, tmp_path / "c.safetensors")
    with pytest.raises(ValueError, match=r"b\.parquet: a column 'logit_12'"):
        score(tmp_path / "c.safetensors", tmp_path / "p", tmp_path / "out")
    assert not (tmp_path / "out" / "b.parquet").exists()


# --- CSV


def test_leading_zeros_stay_in_a_column_of_any_name(tmp_path):
    papers = [f"{k:04d}" for k in IDS]
    pa.csv.write_csv(pa.table({"paper": papers, "label": Y, "split": SPLIT, **wide()}), tmp_path / "p.csv")
    text = (tmp_path / "p.csv").read_text().replace('"', "")
    (tmp_path / "p.csv").write_text(text)
    table = read_table(tmp_path / "p.csv", columns={"id": "paper"})
    is_as_meant(table)
    assert table.ids.to_pylist() == papers


def test_a_packed_csv_file(tmp_path):
    with gzip.open(tmp_path / "p.csv.gz", "wb") as file:
        pa.csv.write_csv(pa.table({**KNOWN, **wide()}), file)
    is_as_meant(read_table(tmp_path / "p.csv.gz"))


def test_a_packed_csv_file_may_not_unpack_to_anything(tmp_path, monkeypatch):
    monkeypatch.setattr("graphcal.files.MEMORY", 1 << 20)
    with gzip.open(tmp_path / "p.csv.gz", "wb") as file:
        file.write(b"id,prob\n" + b"1,0.5\n" * (6 << 20))
    with pytest.raises(ValueError, match="its unpacked content would take"):
        read_table(tmp_path / "p.csv.gz")


def test_another_separator_is_named(tmp_path):
    (tmp_path / "p.csv").write_text("id;prob\n1;0.5\n")
    with pytest.raises(ValueError, match="separated by ';'"):
        read_table(tmp_path / "p.csv")


def test_whole_numbers_that_a_data_frame_wrote_as_floats(tmp_path):
    lines = "\n".join(f"{a}.0,{(a + 1) % N}.0" for a in IDS)
    (tmp_path / "e.csv").write_text("src,dst\n" + lines + "\n")
    edges = read_edges(tmp_path / "e.csv", pa.array(IDS))
    assert edges.tolist() == [IDS.tolist(), ((IDS + 1) % N).tolist()]


def test_an_id_called_null_is_an_id(tmp_path):
    (tmp_path / "e.csv").write_text("src,dst\nNA,null\nnull,a\n")
    assert read_edges(tmp_path / "e.csv", pa.array(["a", "null", "NA"])).tolist() == [[2, 1], [1, 0]]


# --- edges


@pytest.mark.parametrize("turned", [False, True])
def test_edges_as_an_array(tmp_path, turned):
    edges = np.stack([IDS, (IDS + 1) % N])
    np.savez(tmp_path / "e.npz", edge_index=edges.T if turned else edges)
    torch.save(torch.tensor(edges.T if turned else edges), tmp_path / "e.pt")
    for name in ("e.npz", "e.pt"):
        assert np.array_equal(read_edges(tmp_path / name, pa.array(IDS)).numpy(), edges)


def test_names_of_ends_that_no_file_has_are_refused(tmp_path):
    path = write(tmp_path / "e.parquet", src=IDS, dst=IDS)
    with pytest.raises(ValueError, match="no column 'u', which --columns source=u names"):
        read_edges(path, pa.array(IDS), {"source": "u"})


def test_edges_in_one_direction_are_told(tmp_path):
    table = read_table(write(tmp_path / "p.parquet", **KNOWN, **wide()))
    once = np.r_[IDS, 1], np.r_[(IDS + 1) % N, 0]  # but for one edge
    one = calibrate_files(table, write(tmp_path / "e.parquet", src=once[0], dst=once[1]), None, ["ts"])
    assert any("one direction only" in note for note in one.record["notes"])
    both = np.r_[IDS, (IDS + 1) % N], np.r_[(IDS + 1) % N, IDS]
    two = calibrate_files(table, write(tmp_path / "e.parquet", src=both[0], dst=both[1]), None, ["ts"])
    assert not any("one direction" in note for note in two.record["notes"])


def test_edges_that_join_no_rows_are_told(tmp_path):
    table = read_table(write(tmp_path / "p.parquet", **KNOWN, **wide()))
    for ends in (IDS[:0], IDS):
        run = calibrate_files(table, write(tmp_path / "e.parquet", src=ends, dst=ends), None, ["ts"])
        assert any("no two different rows" in note for note in run.record["notes"])


def test_what_a_calibrator_lacks_is_told_by_its_option(tmp_path):
    table = read_table(write(tmp_path / "p.parquet", **KNOWN, **wide()))
    with pytest.raises(ValueError, match="--final-layer FILE"):
        calibrate_files(table, None, None, ["scar"])
    with pytest.raises(ValueError, match="--edges FILE"):
        calibrate_files(table, None, None, ["rbs"])


# --- what is written is read again


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def calibrated(tmp_path, columns, *options):
    path = write(tmp_path / "p.parquet", **columns)
    done = run("calibrate", path, "--calibrator", "ts", "--out", tmp_path / "out", *options)
    assert done.exit_code == 0, done.output
    return tmp_path / "out"


@pytest.mark.parametrize("names", [["no", "yes"], ["-1", "1"]])
def test_class_names_of_a_single_score_travel_with_the_table(tmp_path, names):
    label = np.array(names)[Y2]
    out = calibrated(
        tmp_path, {"id": IDS, "label": label, "split": SPLIT, "prob": P2[:, 1]}, "--classes", ",".join(names)
    )
    table = read_table(out / "calibrated.parquet")
    assert table.classes == tuple(names)
    assert np.array_equal(table.y.numpy(), Y2)
    score(out / "calibrator.safetensors", tmp_path / "p.parquet", tmp_path / "scored")
    assert np.array_equal(read_table(tmp_path / "scored").y.numpy(), Y2)


def test_numbered_classes_in_another_order_travel_with_the_table(tmp_path):
    order = np.random.default_rng(3).permutation(C)
    columns = {**KNOWN, "probs": pa.array(list(P[:, order]))}
    out = calibrated(tmp_path, columns, "--classes", ",".join(map(str, order)))
    table = read_table(out / "calibrated.parquet")
    assert np.array_equal(np.array(table.classes, int)[table.y.numpy()], Y)
    plain = pq.read_table(out / "calibrated.parquet").replace_schema_metadata(None)  # as another tool writes it again
    pq.write_table(plain, tmp_path / "copy.parquet")
    with pytest.raises(ValueError, match="'calibrated_prediction' is not the class of the highest score"):
        read_table(tmp_path / "copy.parquet")


def test_the_calibrated_score_is_read_where_the_column_has_a_class_name(tmp_path):
    out = calibrated(tmp_path, {"id": IDS, "label": Y2, "split": SPLIT, "fraud_PROB": P2[:, 1]})
    table = read_table(out / "calibrated.parquet")
    assert table.layout.scores == ("calibrated_prob",)
    written = pq.read_table(out / "calibrated.parquet")["calibrated_prob"].to_numpy()
    assert np.abs(probs_of(table)[:, 1] - written).max() < 1e-6


def test_names_of_columns_travel_with_the_table(tmp_path):
    columns = {"paper": IDS + 7, "topic": Y2, "split": SPLIT, "prob": P2[:, 1]}
    out = calibrated(tmp_path, columns, "--columns", "id=paper,label=topic")
    done = run("decide", out, "--max-error", "0.5", "--certify", "0.5", "--out", tmp_path / "d.parquet")
    assert done.exit_code in (0, 1, 3), done.output
    assert set(pq.read_table(tmp_path / "d.parquet")["node"].to_pylist()) <= set((IDS + 7).tolist())


def test_the_own_split_column_stays_as_it_came(tmp_path):
    words = np.where(SPLIT == "val", "valid", SPLIT)
    out = calibrated(tmp_path, {**KNOWN, "split": words, **wide()})
    written = pq.read_table(out / "calibrated.parquet")
    assert written.column_names[: 3 + C] == ["id", "label", "split", *wide()]
    assert written["split"].to_pylist() == words.tolist()


def test_joined_labels_replace_empty_ones(tmp_path):
    labels = write(tmp_path / "l.parquet", id=IDS, label=Y)
    out = calibrated(tmp_path, {**KNOWN, "label": pa.nulls(N, pa.int64()), **wide()}, "--labels", labels)
    assert np.array_equal(read_table(out / "calibrated.parquet").y.numpy(), Y)


def test_a_shard_without_rows_is_scored_to_one_that_can_be_read(tmp_path):
    table = pa.table({"id": IDS, "probs": pa.array(list(P))})
    (tmp_path / "p").mkdir()
    pq.write_table(table.slice(0, 0), tmp_path / "p" / "a.parquet")
    pq.write_table(table, tmp_path / "p" / "b.parquet")
    calibration = graphcal.calibrate(P, Y, kind="probs", calibrator="ts").calibration
    graphcal.save(calibration, tmp_path / "c.safetensors")
    score(tmp_path / "c.safetensors", tmp_path / "p", tmp_path / "out")
    empty, whole = (pq.read_table(tmp_path / "out" / name) for name in ("a.parquet", "b.parquet"))
    assert empty.num_rows == 0
    assert empty.schema == whole.schema
    assert score(tmp_path / "c.safetensors", tmp_path / "p", tmp_path / "out")["kept"] == 2
    scorer = scorer_of(calibration, table, "p")
    assert scorer.schema(table.schema) == scorer(table).schema


def test_a_csv_file_that_changed_in_its_middle_is_scored_again(tmp_path):
    rows = [f"{k},0.{k % 9 + 1}" for k in range(60_000)]
    path = tmp_path / "p.csv"
    path.write_text("id,prob\n" + "\n".join(rows) + "\n")
    graphcal.save(graphcal.calibrate(P2, Y2, kind="probs", calibrator="ts").calibration, tmp_path / "c.safetensors")
    score(tmp_path / "c.safetensors", path, tmp_path / "out")
    rows[30_000] = "30000,0.9"
    path.write_text("id,prob\n" + "\n".join(rows) + "\n")
    assert score(tmp_path / "c.safetensors", path, tmp_path / "out")["kept"] == 0
    scored = pq.read_table(tmp_path / "out")["calibrated_prob"].to_numpy()
    assert scored[30_000] == scored[8]  # of 0.9 as well


# --- in Python


def test_arrays_of_half_precision_and_columns(tmp_path):
    whole = graphcal.calibrate(Z2, Y2, kind="logits", calibrator="ts").probs
    half = graphcal.calibrate(
        torch.tensor(Z2).bfloat16(), torch.tensor(Y2)[:, None], kind="logits", calibrator="ts"
    ).probs
    one = graphcal.calibrate((Z2[:, 1] - Z2[:, 0])[:, None], Y2, kind="logits", calibrator="ts").probs
    assert np.abs(half.numpy() - whole).max() < 0.02
    assert np.abs(one - whole).max() < 1e-4


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ((SPLIT == "val").astype(int), "a mask is of booleans"),
        ((SPLIT == "val").astype(float), "booleans or row numbers"),
        ([], "booleans or row numbers"),
        ([N], "rows 0..119"),
    ],
)
def test_rows_to_fit_on_are_a_mask_or_numbers(on, message):
    with pytest.raises(ValueError, match=message):
        graphcal.calibrate(Z, Y, kind="logits", on=on)


def test_edges_are_whole_numbers():
    with pytest.raises(ValueError, match=r"\(2, E\) row numbers"):
        graphcal.calibrate(Z, Y, kind="logits", edges=np.stack([IDS, IDS]) + 0.5)


def test_labels_in_another_order_of_the_index_are_refused():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(P, columns=[f"prob_{k}" for k in range(C)])
    with pytest.raises(ValueError, match=r"y\.loc\[scores\.index\]"):
        graphcal.calibrate(frame, pd.Series(Y).iloc[::-1])
    estimator = CalibratedScores("ts").fit(frame, Y)
    with pytest.raises(ValueError, match="same order"):
        estimator.predict_proba(frame[frame.columns[::-1]])


def test_scoring_tells_a_training_set_that_is_not_given(tmp_path):
    edges = write(tmp_path / "e.parquet", src=np.r_[IDS, IDS], dst=np.r_[(IDS + 1) % N, (IDS - 1) % N])
    path = write(tmp_path / "p.parquet", **KNOWN, **wide("logit_", Z))
    layer = tmp_path / "layer.safetensors"
    save_file({"weight": torch.randn(C, 8, generator=torch.Generator().manual_seed(0)), "bias": torch.zeros(C)}, layer)
    results = calibrate_files(read_table(path), edges, layer, ["scar"])
    results.save(tmp_path / "out")
    calibrator = tmp_path / "out" / "calibrator.safetensors"
    summary = score(calibrator, path, tmp_path / "a", edges=edges)
    assert "24 training rows; without --train-ids" in summary["notes"][0]
    train = write(tmp_path / "t.parquet", id=IDS[SPLIT == "train"])
    assert "notes" not in score(calibrator, path, tmp_path / "b", edges=edges, train_ids=train)
    with pytest.raises(ValueError, match="no column 'paper', which --columns id=paper names"):
        score(calibrator, path, tmp_path / "c", edges=edges, columns={"id": "paper"})
