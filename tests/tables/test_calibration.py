"""`graphcal calibrate` end to end on every engine's files, and `graphcal.calibrate` on every container."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

import graphcal
from graphcal.cli import main
from graphcal.tables.reading import read_table

from engine_files import (  # isort: skip
    ids_of, predictions, softmax, write_gigl, write_graphstorm, write_graphstorm_edges, write_kumo,
    write_labels, write_neo4j,
)  # fmt: skip

NAMES = ("news", "ads", "spam", "ham")
Z, Y = predictions(1500)
IDS = ids_of(len(Z))
P = softmax(Z.astype(float))


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


def ring(n):
    """Edges of a ring, both ways."""
    at = np.arange(n)
    return np.concatenate([at, (at + 1) % n]), np.concatenate([(at + 1) % n, at])


def made(tmp_path, name):
    """The files of an engine or layout, and the options that calibrate them."""
    labels = tmp_path / "labels.parquet"
    path = tmp_path / "preds"
    numbers = name in ("gigl", "neo4j")
    classes = {"neo4j": (7, 3, 0, 1), "kumo": NAMES, "named.csv": NAMES, "top.parquet": NAMES}.get(name)
    write_labels(labels, np.arange(len(Y)) if numbers else IDS, Y, names=classes)
    options = ["--labels", labels]
    if name == "graphstorm":
        write_graphstorm(path, Z, IDS)
    elif name == "graphstorm-csv":
        write_graphstorm(path, Z, IDS, csv=True)
    elif name == "gigl":
        write_gigl(path, Z, IDS)
    elif name == "neo4j":
        path = write_neo4j(tmp_path / "p.parquet", Z, IDS, classes)
        options += ["--classes", "7,3,0,1"]
    elif name == "kumo":
        path = write_kumo(tmp_path / "p.parquet", Z, IDS, NAMES)
    elif name == "named.csv":
        path = tmp_path / name
        pa.csv.write_csv(
            pa.table({"nid": IDS, **{f"log_prob_{n}": np.log(P[:, k]) for k, n in enumerate(NAMES)}}), path
        )
    elif name == "top.parquet":
        path = tmp_path / name
        pq.write_table(pa.table({"nid": IDS, "prediction": np.array(NAMES)[P.argmax(1)], "confidence": P.max(1)}), path)
    elif name == "arrays.npz":
        path = tmp_path / name
        np.savez(path, nid=np.array(IDS), logits=Z)
    elif name == "binary.parquet":
        path = tmp_path / name
        pq.write_table(pa.table({"nid": IDS, "label": (Y == 0).astype(int), "prob": P[:, 0]}), path)
        options = []
    engine = name.split("-")[0]
    return path, options + (["--from", engine] if engine in ("graphstorm", "gigl", "neo4j", "kumo") else [])


FORMS = [
    "graphstorm", "graphstorm-csv", "gigl", "neo4j", "kumo", "named.csv", "top.parquet", "arrays.npz",
    "binary.parquet",
]  # fmt: skip


@pytest.mark.slow_cases(
    "kumo", "arrays.npz", "named.csv", "graphstorm", "top.parquet", "neo4j", "graphstorm-csv", "gigl"
)
@pytest.mark.parametrize("name", FORMS)
def test_every_engines_files_are_calibrated_and_scored(tmp_path, run, name):
    path, options = made(tmp_path, name)
    code, out, err = run("calibrate", path, *options, "--calibrator", "ts", "--json", "--out", tmp_path / "out")
    assert code == 0, err
    record = json.loads(out)
    before, after = (record["methods"][m]["ece"]["mean"] for m in ("none", "ts"))
    assert after < 0.6 * before
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "calibrated.parquet", "calibrator.safetensors", "report.html", "results.json",
    }  # fmt: skip
    calibrated = pq.read_table(tmp_path / "out" / "calibrated.parquet")
    given = read_table(
        path, **({"source": options[-1]} if "--from" in options else {}), classes="7,3,0,1" if name == "neo4j" else None
    )
    tables = pa.concat_tables([given.source.read(s) for s in given.source.shards])
    assert calibrated.select(tables.column_names).equals(tables.cast(calibrated.select(tables.column_names).schema))
    again = read_table(
        tmp_path / "out" / "calibrated.parquet",
        classes="7,3,0,1" if name == "neo4j" else None,
        columns=dict(given.source.columns) | {"scores": "calibrated_probs"}
        if "calibrated_probs" in calibrated.column_names
        else None,
    )
    assert again.layout.scores[0].startswith("calibrated_")
    temperature = graphcal.restore(tmp_path / "out" / "calibrator.safetensors")
    expected = (given.logits.double() * temperature.scale.double()).softmax(1)
    if name != "top.parquet":
        torch.testing.assert_close(again.log_probs.exp().double(), expected, atol=2e-6, rtol=0)
    score = ["--from", options[-1]] if "--from" in options else []
    code, out, err = run(
        "score", tmp_path / "out" / "calibrator.safetensors", path, *score, "--out", tmp_path / "scored"
    )
    assert code == 0, err
    scored = pa.concat_tables([pq.read_table(f) for f in sorted((tmp_path / "scored").rglob("*.parquet"))])
    for column in scored.column_names:
        if column.startswith("calibrated_"):
            want, got = calibrated[column].combine_chunks(), scored[column].combine_chunks()
            if pa.types.is_list(got.type):
                want, got = want.flatten(), got.flatten()
            if pa.types.is_floating(got.type):
                np.testing.assert_allclose(got.to_numpy(), want.to_numpy(), atol=2e-6)
            else:
                assert got.to_pylist() == want.to_pylist()


def test_graphstorms_predictions_of_edges_are_joined_by_both_ends(tmp_path, run):
    ends = write_graphstorm_edges(tmp_path / "preds", Z, IDS)
    part = np.where(np.arange(len(Y)) % 2, "val", "test")
    labels = pa.table({**ends, "label": Y, "split": part}).take(np.random.default_rng(0).permutation(len(Y)))
    pq.write_table(labels, tmp_path / "labels.parquet")
    options = ["--from", "graphstorm", "--labels", tmp_path / "labels.parquet", "--calibrator", "ts", "--json"]
    code, out, err = run("calibrate", tmp_path / "preds", *options, "--out", tmp_path / "out")
    assert code == 0, err
    methods = json.loads(out)["methods"]
    assert methods["ts"]["ece"]["mean"] < 0.6 * methods["none"]["ece"]["mean"]
    table = read_table(tmp_path / "preds", source="graphstorm", labels=tmp_path / "labels.parquet")
    assert table.ids[0].as_py() == f"{ends['src_nid'][0]} -> {ends['dst_nid'][0]}"
    assert table.y.tolist() == Y.tolist()  # however the labels are ordered
    calibrated = pq.read_table(tmp_path / "out" / "calibrated.parquet")
    assert calibrated["src_nid"].to_pylist() == ends["src_nid"]
    assert calibrated["dst_nid"].to_pylist() == ends["dst_nid"]
    given = ["--edges", tmp_path / "labels.parquet", "--out", tmp_path / "no"]
    code, _, err = run("calibrate", tmp_path / "preds", *options, *given)
    assert code == 2
    assert "every row is an edge" in err
    score = ["score", tmp_path / "out" / "calibrator.safetensors", tmp_path / "preds", "--from", "graphstorm"]
    assert run(*score, "--out", tmp_path / "scored")[0] == 0
    scored = pa.concat_tables([pq.read_table(f) for f in sorted((tmp_path / "scored").rglob("*.parquet"))])
    want, got = (t["calibrated_probs"].combine_chunks().flatten().to_numpy() for t in (calibrated, scored))
    np.testing.assert_allclose(got, want, atol=2e-6)
    raw = tmp_path / "raw" / "user_rates_movie"
    raw.mkdir(parents=True)
    for name in ("predict", "src_nids", "dst_nids"):
        torch.save(torch.from_numpy(P), raw / f"{name}-00000.pt")
    code, _, err = run("calibrate", tmp_path / "raw", *options, "--out", tmp_path / "no")
    assert code == 2
    assert "let it map them back" in " ".join(err.split())


def test_edges_and_a_final_layer_open_the_graph_aware_calibrators(tmp_path, run):
    out = graphcal.example(600)
    data = out.graph
    path = graphcal.export(out, tmp_path / "exported")
    folder = path.parent
    options = ["--edges", folder / "edges.parquet", "--final-layer", folder / "final_layer.safetensors"]
    code, text, err = run("calibrate", path, *options, "--calibrator", "rbs,scar", "--json", "--out", tmp_path / "out")
    assert code == 0, err
    record = json.loads(text)
    assert set(record["methods"]) == {"none", "rbs", "scar"}
    assert record["nodes"] == {m: int(data[f"{m}_mask"].sum()) for m in ("train", "val", "test")}
    expected = graphcal.CALIBRATORS[record["chosen_method"]]().fit(out, on=data.val_mask)(out).exp()
    calibrated = pq.read_table(tmp_path / "out" / "calibrated.parquet")
    probs = np.stack([calibrated[f"calibrated_prob_{k}"].to_numpy() for k in range(out.num_classes)], 1)
    np.testing.assert_allclose(probs, expected.numpy(), atol=1e-5)
    assert "slices" in record["methods"]["scar"]
    code, _, err = run("calibrate", path, "--calibrator", "scar", "--out", tmp_path / "no")
    assert code == 2
    assert "SCAR needs the final layer" in err


def test_own_ids_and_class_names_are_in_the_record_and_on_the_page(tmp_path, run):
    columns = {"nid": IDS, "label": np.array(NAMES)[Y], **{f"logit_{name}": Z[:, k] for k, name in enumerate(NAMES)}}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    src, dst = ring(len(IDS))
    pq.write_table(pa.table({"src": np.array(IDS)[src], "dst": np.array(IDS)[dst]}), tmp_path / "e.parquet")
    options = ["--edges", tmp_path / "e.parquet", "--calibrator", "rbs", "--out", tmp_path / "out"]
    code, _, err = run("calibrate", tmp_path / "p.parquet", *options)
    assert code == 0, err
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    changed = record["methods"]["rbs"]["changed"]
    assert len(changed) == 12
    for node in changed:
        assert node["id"] == IDS[node["node"]]
        assert node["predicted_class"] == NAMES[Z[node["node"]].argmax()]
        assert node["label_class"] == NAMES[Y[node["node"]]]
    assert record["map"]["names"]["classes"] == list(NAMES)
    assert set(record["map"]["names"]["ids"]) == set(IDS)
    assert changed[0]["id"] in (tmp_path / "out" / "report.html").read_text()


def test_a_draw_is_said_and_an_unknown_end_of_an_edge_is_refused(tmp_path, run):
    table = {"nid": IDS, "label": Y, **{f"logit_{k}": Z[:, k] for k in range(4)}}
    pq.write_table(pa.table(table), tmp_path / "p.parquet")
    code, _, err = run("calibrate", tmp_path / "p.parquet", "--seed", 5, "--out", tmp_path / "out")
    assert code == 0
    assert "750 of 1,500 labelled rows, drawn with seed 5, are fitted on" in " ".join(err.split())
    src, dst = ring(len(IDS))
    pq.write_table(
        pa.table({"src": [IDS[k] for k in src], "dst": [*(IDS[k] for k in dst[1:]), "ghost"]}), tmp_path / "e.parquet"
    )
    code, _, err = run("calibrate", tmp_path / "p.parquet", "--edges", tmp_path / "e.parquet", "--out", tmp_path / "no")
    assert code == 2
    assert "1 ends of edges name 1 nodes without a prediction (first: 'ghost')" in " ".join(err.split())


def test_a_split_without_rows_to_fit_on_is_refused(tmp_path, run):
    words = np.where(np.arange(len(Y)) % 2, "train", "test")
    table = {"nid": IDS, "label": Y, "split": words, **{f"logit_{k}": Z[:, k] for k in range(4)}}
    pq.write_table(pa.table(table), tmp_path / "p.parquet")
    code, _, err = run("calibrate", tmp_path / "p.parquet", "--out", tmp_path / "out")
    assert code == 2
    assert "no labelled rows to fit on (val)" in err


def test_labels_of_measured_rows_do_not_touch_the_fit(tmp_path):
    """Whatever the test labels are, the calibrated probabilities stay."""
    on = np.arange(len(Y)) % 2 == 0
    other = np.where(on, Y, (Y + 1) % 4)
    first, second = (graphcal.calibrate(Z, y, on=on, kind="logits") for y in (Y, other))
    np.testing.assert_array_equal(first.probs, second.probs)
    assert first.measurement.accuracy != second.measurement.accuracy


@pytest.mark.parametrize("container", ["numpy", "torch", "pandas", "arrow"])
def test_containers_come_back_as_they_came(container):
    names = [f"prob_{k}" for k in range(4)]
    if container == "numpy":
        scores = P
    elif container == "torch":
        scores = torch.from_numpy(P)
    elif container == "pandas":
        pandas = pytest.importorskip("pandas")
        scores = pandas.DataFrame(P, columns=names, index=IDS)
    else:
        scores = pa.table(dict(zip(names, P.T)))
    kind = "probs" if container in ("numpy", "torch") else None
    result = graphcal.calibrate(scores, Y, calibrator="ts", kind=kind)
    assert type(result.probs) is type(scores)
    values = np.stack([result.probs[n].to_numpy() for n in names], 1) if kind is None else np.asarray(result.probs)
    expected = graphcal.calibrate(np.log(P), Y, calibrator="ts", kind="log-probs").probs
    np.testing.assert_allclose(values, expected, atol=1e-6)
    assert result.measurement.ece < 0.5 * result.before.ece
    if container == "pandas":
        assert list(result.probs.index) == IDS


def test_calibrate_takes_names_rows_and_edges():
    text = np.array(NAMES)[Y].astype(object)
    text[:5] = None
    result = graphcal.calibrate(
        Z, text, kind="logits", classes=NAMES, on=np.arange(600), edges=np.stack(ring(len(Y))), calibrator="rbs"
    )
    assert result.study.graph.y[:5].tolist() == [-1] * 5
    assert int(result.study.graph.val_mask.sum()) == 595
    with pytest.raises(ValueError, match="Cannot tell what an array holds"):
        graphcal.calibrate(Z, Y)
    with pytest.raises(ValueError, match=r"y must have shape \(1500,\)"):
        graphcal.calibrate(Z, Y[:5], kind="logits")


@pytest.mark.slow
def test_what_auto_chose_scores_other_tables_as_it_did_its_own(tmp_path, run):
    table = pa.table({"nid": IDS, "label": Y, **{f"logit_{k}": Z[:, k] for k in range(4)}})
    pq.write_table(table, tmp_path / "p.parquet")
    assert run("calibrate", tmp_path / "p.parquet", "--out", tmp_path / "out")[0] == 0
    code, _, err = run(
        "score", tmp_path / "out" / "calibrator.safetensors", tmp_path / "p.parquet", "--out", tmp_path / "s"
    )
    assert code == 0, err
    calibrated, scored = (pq.read_table(tmp_path / f) for f in ("out/calibrated.parquet", "s/p.parquet"))
    for k in range(4):
        want, got = (t[f"calibrated_prob_{k}"].to_numpy() for t in (calibrated, scored))
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("by", ["a draw", "a file of ids"])
def test_what_calibrate_wrote_can_be_decided_though_labels_and_split_were_files(tmp_path, run, by):
    """Rows that were fitted on do not certify."""
    pq.write_table(pa.table({"nid": IDS, **{f"logit_{k}": Z[:, k] for k in range(4)}}), tmp_path / "p.parquet")
    pq.write_table(pa.table({"nid": IDS, "label": Y}), tmp_path / "labels.parquet")
    (tmp_path / "fit.csv").write_text("nid\n" + "\n".join(IDS[:600]) + "\n")
    options = ["--split", tmp_path / "fit.csv"] if by == "a file of ids" else []
    labels = ["--labels", tmp_path / "labels.parquet"]
    code, _, err = run(
        "calibrate", tmp_path / "p.parquet", *labels, *options, "--calibrator", "ts", "--out", tmp_path / "out"
    )
    assert code == 0, err
    table = pq.read_table(tmp_path / "out" / "calibrated.parquet")
    fitted = np.array(table["split"].to_pylist()) == "val"
    assert fitted.sum() == (600 if by == "a file of ids" else 750)
    assert [int(label) for label in table["label"].to_pylist()] == Y.tolist()
    decide = ("decide", tmp_path / "out", "--max-error", 0.4, "--certify", 0.5, "-o", tmp_path / "d.parquet")
    code, out, err = run(*decide, "--json")
    assert code == 0, err
    assert json.loads(out)["labels"] == (1500 - fitted.sum()) // 2
    decisions = np.array(pq.read_table(tmp_path / "d.parquet")["decision"].to_pylist())
    assert ((decisions == "fitted") == fitted).all()


def test_a_long_table_knows_which_of_its_rows_were_fitted_on(tmp_path, run):
    long = {"nid": np.repeat(IDS, 4), "class": np.tile(np.arange(4), len(IDS)), "logit": Z.reshape(-1)}
    pq.write_table(pa.table(long), tmp_path / "p.parquet")
    pq.write_table(pa.table({"nid": IDS, "label": Y}), tmp_path / "labels.parquet")
    (tmp_path / "fit.csv").write_text("nid\n" + "\n".join(IDS[:600]) + "\n")
    labels = ["--labels", tmp_path / "labels.parquet", "--split", tmp_path / "fit.csv"]
    code, _, err = run("calibrate", tmp_path / "p.parquet", *labels, "--calibrator", "ts", "--out", tmp_path / "out")
    assert code == 0, err
    table = pq.read_table(tmp_path / "out" / "calibrated.parquet")
    assert (np.array(table["split"].to_pylist()) == "val").sum() == 4 * 600
    assert [int(label) for label in table["label"].to_pylist()] == np.repeat(Y, 4).tolist()
    code, out, err = run(
        "decide", tmp_path / "out", "--max-error", 0.4, "--certify", 0.5, "--json", "-o", tmp_path / "d.parquet"
    )
    assert code == 0, err
    assert json.loads(out)["labels"] == 450  # half of those that were not fitted on
