"""`read_table`: every layout and every engine's files give the same logits, labels and ids; a guess is refused."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from graphcal.tables.reading import read_table

from engine_files import (  # isort: skip
    ids_of, predictions, softmax, write_gigl, write_graphstorm, write_kumo, write_labels, write_neo4j,
)  # fmt: skip

NAMES = ("news", "ads", "spam", "ham")  # not in alphabetical order
Z, Y = predictions()
IDS = ids_of(len(Z))
P = softmax(Z.astype(float))
LOG_P = torch.from_numpy(Z).double().log_softmax(1)


def wide(kind="prob", names=range(4), scores=P, **extra):
    return pa.table({"nid": IDS, **extra, **{f"{kind}_{n}": scores[:, k] for k, n in enumerate(names)}})


def lists(values=P):
    return pa.array(values.tolist())


LAYOUTS = {
    "wide.parquet": lambda path: pq.write_table(wide(label=Y), path),
    "wide-shuffled.csv": lambda path: pa.csv.write_csv(wide(label=Y).select([5, 3, 1, 0, 2, 4]), path),
    "logits.arrow": lambda path: write_arrow(wide("logit", scores=Z, label=Y), path),
    "log-probs.feather": lambda path: write_arrow(wide("log_prob", scores=np.log(P), label=Y), path),
    "list.parquet": lambda path: pq.write_table(pa.table({"nid": IDS, "label": Y, "probs": lists()}), path),
    "joined.csv": lambda path: pa.csv.write_csv(
        pa.table({"nid": IDS, "label": Y, "probs": [";".join(map(repr, row)) for row in P.tolist()]}), path
    ),
    "arrays.npz": lambda path: np.savez(path, nid=np.array(IDS), label=Y, log_probs=np.log(P)),
    "tensors.pt": lambda path: torch.save({"label": torch.from_numpy(Y), "logits": torch.from_numpy(Z)}, path),
    "long.parquet": lambda path: pq.write_table(
        pa.table(
            {
                "nid": np.repeat(IDS, 4),
                "class": np.tile(np.arange(4), len(P)),
                "prob": P.ravel(),
                "label": np.repeat(Y, 4),
            }
        ),
        path,
    ),
}


def write_arrow(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_reads_the_same(tmp_path, name):
    LAYOUTS[name](tmp_path / name)
    table = read_table(tmp_path / name)
    torch.testing.assert_close(table.log_probs.double(), LOG_P, atol=2e-6, rtol=0)
    assert table.y.tolist() == Y.tolist()
    assert table.ids.to_pylist() == (list(range(len(Y))) if name.endswith(".pt") else IDS)
    assert table.classes == ("0", "1", "2", "3")


def test_a_folder_of_shards_is_one_table(tmp_path):
    for k in range(3):
        pq.write_table(wide(label=Y).slice(200 * k, 200), tmp_path / f"part-{k}.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    table = read_table(tmp_path)
    assert table.ids.to_pylist() == IDS
    torch.testing.assert_close(table.log_probs, LOG_P)
    pq.write_table(wide().drop(["prob_2"]), tmp_path / "part-4.parquet")
    with pytest.raises(ValueError, match=r"part-4\.parquet: no column 'label', which part-0\.parquet has"):
        read_table(tmp_path)


def test_binary_scores_are_those_of_the_second_class(tmp_path):
    p, y = P[:, 0], (Y == 0).astype(int)
    for name, column in {"prob": p, "logit": np.log(p / (1 - p)), "log_prob": np.log(p)}.items():
        pq.write_table(pa.table({"label": y, name: column}), tmp_path / "b.parquet")
        table = read_table(tmp_path / "b.parquet")
        np.testing.assert_allclose(table.log_probs.exp()[:, 1], p, atol=1e-9)
        assert table.y.tolist() == y.tolist()
    pq.write_table(pa.table({"ENTITY": IDS, "True_PROB": p, "label": y == 1}), tmp_path / "k.parquet")
    kumo = read_table(tmp_path / "k.parquet", source="kumo")
    assert kumo.classes == ("False", "True")
    assert kumo.y.tolist() == y.tolist()
    pq.write_table(pa.table({"label": y, "score": p}), tmp_path / "s.parquet")
    with pytest.raises(ValueError, match="column 'score' holds probabilities or logits"):
        read_table(tmp_path / "s.parquet")
    assert read_table(tmp_path / "s.parquet", kind="probs").kind.name == "probs"


def test_a_kind_after_the_class_is_understood(tmp_path):
    pq.write_table(
        pa.table({"cat_log_prob": np.log(P[:, 0]), "dog_log_prob": np.log(1 - P[:, 0])}), tmp_path / "p.parquet"
    )
    table = read_table(tmp_path / "p.parquet")
    assert (table.classes, table.kind.name) == (("cat", "dog"), "log-probs")


def test_a_top_label_keeps_its_confidence_and_shares_the_rest(tmp_path):
    pred, conf = P.argmax(1), P.max(1)
    pq.write_table(
        pa.table({"nid": IDS, "prediction": np.array(NAMES)[pred], "confidence": conf}), tmp_path / "t.parquet"
    )
    write_labels(tmp_path / "labels.parquet", IDS, Y, names=NAMES)
    table = read_table(tmp_path / "t.parquet", labels=tmp_path / "labels.parquet")
    assert table.classes == tuple(sorted(NAMES))
    top, where = table.log_probs.exp().max(1)
    np.testing.assert_allclose(top, conf, atol=1e-9)
    assert [table.classes[k] for k in where] == [NAMES[k] for k in pred]
    assert [table.classes[k] for k in table.y] == [NAMES[k] for k in Y]
    pq.write_table(pa.table({"prediction": [0, 1], "confidence": [0.4, 0.9]}), tmp_path / "u.parquet")
    with pytest.raises(ValueError, match="Are there more classes than occur here"):
        read_table(tmp_path / "u.parquet")


@pytest.mark.parametrize("form", ["remapped", "docs names", "csv"])
def test_graphstorm(tmp_path, form):
    write_graphstorm(tmp_path / "preds", Z, IDS, docs_names=form == "docs names", csv=form == "csv")
    labels = write_labels(tmp_path / "labels.parquet", IDS[::-1], Y[::-1])
    table = read_table(tmp_path / "preds", source="graphstorm", labels=labels)
    assert table.ids.to_pylist() == IDS
    assert table.y.tolist() == Y.tolist()
    torch.testing.assert_close(table.log_probs.double(), LOG_P, atol=1e-5, rtol=0)
    assert table.split.val.sum() + table.split.test.sum() + table.split.train.sum() == len(Y)
    assert not table.notes


def test_graphstorm_faults(tmp_path):
    (tmp_path / "paper").mkdir()
    pq.write_table(pa.table({"pred": [1, 2], "nid": ["a", "b"]}), tmp_path / "paper" / "predict-00000_00000.parquet")
    with pytest.raises(ValueError, match="return_proba: true"):
        read_table(tmp_path, source="graphstorm")
    write_graphstorm(tmp_path / "more", Z, IDS)
    with pytest.raises(ValueError, match=r"several types or tasks \(more/paper, paper\)"):
        read_table(tmp_path, source="graphstorm")
    (tmp_path / "raw").mkdir()
    torch.save(torch.from_numpy(P), tmp_path / "raw" / "predict-00000.pt")
    with pytest.raises(ValueError, match="raw tensors hold GraphStorm's own node numbers"):
        read_table(tmp_path / "raw", source="graphstorm")


def test_gigl_embeddings_are_logits_and_an_arg_max_is_refused(tmp_path):
    labels = write_labels(tmp_path / "labels.parquet", np.arange(len(Y)), Y)
    table = read_table(write_gigl(tmp_path / "emb", Z, IDS), source="gigl", labels=labels)
    torch.testing.assert_close(table.log_probs.double(), LOG_P, atol=1e-5, rtol=0)
    assert table.y.tolist() == Y.tolist()
    with pytest.raises(ValueError, match="cannot be calibrated; give its embeddings table"):
        read_table(write_gigl(tmp_path / "pred", Z, IDS, emb=False), source="gigl")
    (tmp_path / "emb" / "shard_00000002.avro").write_bytes(b"Obj")
    with pytest.raises(ValueError, match=r"shard_00000002\.avro: cannot read \.avro files"):
        read_table(tmp_path / "emb", source="gigl")


def test_neo4j_has_the_order_of_the_model(tmp_path):
    path = write_neo4j(tmp_path / "p.parquet", Z, IDS, classes=(7, 3, 0, 1))
    labels = write_labels(tmp_path / "labels.parquet", np.arange(len(Y)), Y, names=(7, 3, 0, 1))
    with pytest.raises(ValueError, match="order of the model's classes"):
        read_table(path, source="neo4j", labels=labels)
    table = read_table(path, source="neo4j", labels=labels, classes="7,3,0,1")
    assert table.y.tolist() == Y.tolist()
    torch.testing.assert_close(table.log_probs.double(), LOG_P, atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="not the class of the highest score in .* in another order"):
        read_table(path, source="neo4j", labels=labels, classes="0,1,3,7")
    empty = write_neo4j(tmp_path / "e.parquet", Z, IDS, (7, 3, 0, 1), probabilities=False)
    with pytest.raises(ValueError, match="row 0 of column 'predictedProbabilities' is empty"):
        read_table(empty, source="neo4j", classes="7,3,0,1")


def test_kumo_long_tables_are_read_by_class_name(tmp_path):
    path = write_kumo(tmp_path / "p.parquet", Z, IDS, NAMES)
    labels = write_labels(tmp_path / "labels.parquet", IDS, Y, names=NAMES)
    kumo = read_table(path, source="kumo", labels=labels)
    assert kumo.ids.to_pylist() == IDS
    assert kumo.classes == tuple(sorted(NAMES))
    assert [kumo.classes[k] for k in kumo.y] == [NAMES[k] for k in Y]
    order = [NAMES.index(name) for name in kumo.classes]
    torch.testing.assert_close(kumo.log_probs, LOG_P[:, order], atol=1e-6, rtol=0)
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    with pytest.raises(ValueError, match=r"id 'n00000' has 0 scores for class"):
        read_table(path, source="kumo")


def test_columns_named_after_classes_need_no_order(tmp_path):
    pq.write_table(wide(names=NAMES, label=np.array(NAMES)[Y]), tmp_path / "p.parquet")
    table = read_table(tmp_path / "p.parquet")
    assert (table.classes, table.y.tolist()) == (NAMES, Y.tolist())
    pq.write_table(wide(names=NAMES, label=Y), tmp_path / "n.parquet")
    with pytest.raises(ValueError, match="which number is which class"):
        read_table(tmp_path / "n.parquet")


def test_a_column_of_predictions_betrays_a_wrong_order(tmp_path):
    pq.write_table(wide(prediction=np.array(NAMES)[P.argmax(1)], label=np.array(NAMES)[Y]), tmp_path / "p.parquet")
    assert read_table(tmp_path / "p.parquet", classes=NAMES).y.tolist() == Y.tolist()
    with pytest.raises(ValueError, match="in another order than the scores"):
        read_table(tmp_path / "p.parquet", classes=sorted(NAMES))


def test_ids_missing_unknown_and_repeated_are_counted(tmp_path):
    pq.write_table(wide(), tmp_path / "p.parquet")
    ids = [*IDS[10:], "stranger", "other"]
    pq.write_table(pa.table({"nid": ids, "label": [*Y[10:], 0, 1]}), tmp_path / "labels.parquet")
    table = read_table(tmp_path / "p.parquet", labels=tmp_path / "labels.parquet")
    assert table.y.tolist() == [-1] * 10 + Y[10:].tolist()
    assert table.notes == (
        "10 of 600 rows have no label in labels.parquet",
        "2 labels are of ids without a prediction (first: 'stranger')",
    )
    pq.write_table(pa.table({"nid": [IDS[0], IDS[0]], "label": [0, 1]}), tmp_path / "twice.parquet")
    with pytest.raises(ValueError, match=r"twice\.parquet: 1 rows repeat an id \(first: 'n00000'\)"):
        read_table(tmp_path / "p.parquet", labels=tmp_path / "twice.parquet")


def test_a_split_comes_from_a_column_or_a_file_of_ids(tmp_path):
    words = np.resize(["train", "val", "test", "test"], len(Y))
    pq.write_table(wide(label=Y, part=words), tmp_path / "p.parquet")
    assert read_table(tmp_path / "p.parquet").split is None
    split = read_table(tmp_path / "p.parquet", split="part").split
    assert (split.train.tolist(), split.test.tolist()) == ((words == "train").tolist(), (words == "test").tolist())
    (tmp_path / "val.csv").write_text("id\n" + "\n".join(IDS[:50]) + "\nnobody\n")
    table = read_table(tmp_path / "p.parquet", split=tmp_path / "val.csv")
    assert table.split.val.nonzero()[0].tolist() == list(range(50))
    assert table.split.test.sum() == len(Y) - 50
    assert "1 ids have no prediction" in table.notes[0]
    with pytest.raises(ValueError, match="--split nonsense: neither a column"):
        read_table(tmp_path / "p.parquet", split="nonsense")


def test_rounded_probabilities_and_exact_zeros(tmp_path):
    rounded = np.round(P, 2)  # rows miss 1 by up to 0.02
    assert (rounded == 0).any()
    assert np.abs(rounded.sum(1) - 1).max() > 1e-3
    pq.write_table(wide(scores=rounded, label=Y), tmp_path / "p.parquet")
    table = read_table(tmp_path / "p.parquet")
    assert table.kind.digits == 2
    assert float(table.logits.min()) == pytest.approx(np.log(0.0025))
    hard = P.copy()
    hard[0] = [0.3, 0.7, 0.0, 0.0]
    pq.write_table(wide(scores=hard, label=Y), tmp_path / "z.parquet")
    table = read_table(tmp_path / "z.parquet")
    assert table.kind.digits is None
    assert float(table.logits[0, 3]) == pytest.approx(np.log(1e-12))
    pq.write_table(wide(scores=np.eye(4)[Y], label=Y), tmp_path / "o.parquet")
    with pytest.raises(ValueError, match="every probability is 0 or 1"):
        read_table(tmp_path / "o.parquet")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label,a,b\n0,1,0\n", r"expected columns prob_0.*found none of them; the columns are label, a, b"),
        ("label,prob_0,prob_1,logit_0,logit_1\n0,1,0,1,2\n", r"found prob_0\.\. and logit_0\.\."),
        ("label,prob_0,prob_2\n0,1,0\n", "column prob_1 is missing; there is prob_2"),
        ("label,prob_0,prob_300000000\n0,0.5,0.5\n", "column prob_1 is missing"),
        (
            "label,prob_0,prob_1\n0,0.55,0.45\n0,0.5,0.9\n",
            "probabilities of row 1 must lie in 0..1 and sum to 1, they sum to 1.4",
        ),
        ("label,prob_0,prob_1\n0,55,45\n", "they sum to 100, the largest is 55: are they percentages, or logits"),
        ("label,prob\n0,10\n1,55\n", "they sum to 1, the largest is 10: are they percentages, or logits"),
        ("probs\r0.1;x\r", "numbers joined by ';'"),
        ("label;prob_0;prob_1\n0;0,55;0,45\n", "separated by ';'; write it with commas .* decimal points"),
        ("label,prob_0,prob_1\n0,1.1,-0.1\n", "probabilities of row 0 must lie in 0..1"),
        ("label,logit_0,logit_1\n0,1,nan\n", "row 0 has a score .* that is not a number"),
        ("label,logit_0,logit_1\n0,1,\n", "row 0 has a score .* that is not a number"),
        ("label,prob_0,prob_1\n2,0.55,0.45\n", r"labels must lie in 0\.\.1, got 2"),
        ("label,prob_0,prob_1\n0.5,0.55,0.45\n", "must hold class numbers or names, got 0.5"),
        ("label,prob_0,prob_1\na,0.55,0.45\nb,0.55,0.45\n", "which column is which class"),
        ("label,prob_0\n0,1\n", "needs two classes or more"),
        ("label,probs\n0,0.1;0.9\n1,0.1;0.2;0.7\n", "have different lengths, 2, 3"),
        ("label,probs\n0,0.1;x\n", "numbers joined by ';'"),
        ("label,prob_0,prob_1\n", "no rows"),
        ("label,prob_0,prob_1\n0,x,0.5\n", "column 'prob_0' must hold numbers"),
    ],
)
def test_every_fault_is_named(tmp_path, text, message):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as fault:
        read_table(tmp_path / "p.csv")
    assert str(tmp_path / "p.csv") in str(fault.value)


def test_files_that_are_no_tables_are_refused(tmp_path):
    (tmp_path / "p.txt").write_text("x")
    with pytest.raises(ValueError, match=r"cannot read \.txt; use \.parquet"):
        read_table(tmp_path / "p.txt")
    with pytest.raises(ValueError, match="holds no table"):
        read_table(tmp_path)

    class Evil:
        def __reduce__(self):
            return (print, ("ran",))

    torch.save({"logits": Evil()}, tmp_path / "e.pt")
    with pytest.raises(ValueError, match="e.pt: cannot be opened safely: it asks for print"):
        read_table(tmp_path / "e.pt")
