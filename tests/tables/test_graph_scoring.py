"""Scoring with edges, everything in files: facts and probabilities are those in memory, for any ids, layout and parts."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data

import graphcal
from children import child, kill_after
from conftest import needs_lab
from graphcal.methods import CALIBRATORS
from graphcal.tables import disk_sums, scorer, scoring
from graphcal.tables.disk_sums import DiskColumns, DiskSums, write_blocks
from graphcal.tables.edges import RowNumbers
from graphcal.tables.scorer import calibrated_block
from graphcal.tables.scoring import score

N, C = 700, 4
EVERYTHING = slice(0, N)
SMALL = {"BITS": 7, "FEWEST_BITS": 7, "EDGES": 1000, "COLUMNS": 3}
METHODS = ("scar", "rbs", "graph-scaling", "graph-scaling-keep")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of 128 nodes, so that this graph has 36 blocks; three columns at once."""
    for name, value in SMALL.items():
        monkeypatch.setattr(disk_sums, name, value)
    monkeypatch.setattr(disk_sums, "ROWS", 100)


@pytest.fixture(scope="module")
def out():
    """Directed edges, some in both directions, with repeats, loops, a hub with leaves, and nodes without neighbours."""
    g = np.random.default_rng(0)
    z = 2 * g.standard_normal((N, C))
    edges = g.integers(0, N - 60, (2, 2500))
    edges = np.concatenate([edges, edges[::-1, :900], edges[:, :50]], 1)
    loops = np.stack([np.arange(30)] * 2)
    leaves = np.stack([np.full(40, N - 1), np.arange(N - 50, N - 10)])  # the hub's walks of length two all return
    edges = np.concatenate([edges, loops, leaves, leaves[::-1]], 1)
    around = np.zeros_like(z)
    np.add.at(around, edges[0], z[edges[1]] / 3)
    y = (z / 2 + around + np.arange(C) / 2 + g.gumbel(size=z.shape)).argmax(1)  # neighbours know something
    part = g.choice(3, N, p=[0.1, 0.6, 0.3])
    masks = {f"{name}_mask": torch.from_numpy(part == k) for k, name in enumerate(("train", "val", "test"))}
    graph = Data(edge_index=torch.from_numpy(edges), y=torch.from_numpy(y), num_nodes=N, **masks)
    return graphcal.Outputs.from_logits(torch.from_numpy(z).float(), graph, g.standard_normal((C, 8)), np.zeros(C))


@pytest.fixture(scope="module")
def fitted(out):
    return {name: CALIBRATORS[name]().fit(out, on=out.graph.val_mask) for name in METHODS}


def on_disk(out, folder, train=True):
    folder.mkdir()
    logits = DiskColumns.make(folder / "logits", C, N)
    logits.write(0, out.logits.numpy().T)
    pieces = out.graph.edge_index.numpy()
    blocks = write_blocks(folder / "edges", N, [(pieces[0, k::3], pieces[1, k::3]) for k in range(3)], 4000)
    assert blocks.parts == 6
    mask = DiskColumns.make(folder / "train", 1, N, "uint8") if train else None
    if mask is not None:
        mask.write(0, out.graph.train_mask.numpy()[None])
    return logits, DiskSums(blocks, mask, folder, workers=2)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_facts_from_files_are_those_of_the_calibration(out, fitted, tmp_path, name, train):
    logits, graph = on_disk(out, tmp_path / "g", train)
    context = torch.from_numpy(fitted[name].context(logits, graph).read(EVERYTHING).T)
    seen = out.graph if train else Data(edge_index=out.graph.edge_index, num_nodes=N)
    expected = fitted[name].context_of(graphcal.Outputs(out.logits, seen))
    assert context.shape == expected.shape
    torch.testing.assert_close(context.double(), expected.double(), atol=2e-6, rtol=2e-6, equal_nan=True)


@pytest.mark.parametrize("without_context", [False, True])
@pytest.mark.parametrize("name", ["graph-scaling", "graph-scaling-keep"])
def test_graph_scaling_by_blocks_equals_the_calibration(out, fitted, monkeypatch, name, without_context):
    monkeypatch.setattr(scorer, "BLOCK", 256)
    calibration = fitted[name]
    assert 0.01 < float(calibration.base.stack[0]) < 0.99  # a mixture of both members
    context = calibration.context_of(out)
    context[:200] = torch.nan  # nodes whose neighbourhood is not known
    if without_context:
        alone = graphcal.Outputs(out.logits, Data(y=out.graph.y, val_mask=out.graph.val_mask, num_nodes=N))
        calibration = CALIBRATORS[name]().fit(alone, on=alone.graph.val_mask)
        context = calibration.context_of(alone)
    expected = calibration.log_probs(out.logits, context).exp().numpy()
    given = context.numpy().T if context.shape[1] else None
    probs, pred = calibrated_block(calibration, list(out.logits.numpy().T), given)
    np.testing.assert_allclose(probs.T, expected, atol=1e-6)
    np.testing.assert_array_equal(pred, probs.argmax(0))
    if name.endswith("keep"):
        np.testing.assert_array_equal(pred, out.pred.numpy())


NAMES = {
    "in order": np.arange(N),
    "shuffled": np.random.default_rng(1).permutation(N) * 7 - 300,
    "text": np.array([f"n{k:04d}" for k in np.random.default_rng(1).permutation(N)]),
}


def written(out, folder, ids, form="wide", edges="parquet"):
    """Predictions in three shards, edges and training set."""
    name, z = NAMES[ids], out.logits.numpy()
    columns = {
        "wide": {"id": name, **{f"logit_{c}": z[:, c] for c in range(C)}},
        "list": {"id": name, "logits": list(z)},
        "long": {"id": np.repeat(name, C), "class": np.tile(np.arange(C), N), "logit": z.reshape(-1)},
    }[form]
    table, each = pa.table(columns), (C if form == "long" else 1) * 300
    (folder / "preds").mkdir(parents=True)
    for k in range(3):
        pq.write_table(table.slice(k * each, each), folder / "preds" / f"p{k}.parquet", row_group_size=90)
    source, target = out.graph.edge_index.numpy()
    ends = pa.table({"src": name[source], "dst": name[target]})
    if edges == "csv":
        pa.csv.write_csv(ends, folder / "edges.csv")
    else:
        pq.write_table(ends, folder / "edges.parquet", row_group_size=500)
    pq.write_table(pa.table({"id": name[out.graph.train_mask.numpy()]}), folder / "train.parquet")
    return folder / "preds", folder / f"edges.{edges}", folder / "train.parquet"


def probabilities(folder):
    table = pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])
    if "calibrated_probs" in table.column_names:
        return np.array(table["calibrated_probs"].to_pylist())
    if "calibrated_prob" in table.column_names:
        return table["calibrated_prob"].to_numpy().reshape(N, C)
    return np.stack([table[f"calibrated_prob_{c}"].to_numpy() for c in range(C)], 1)


@pytest.mark.slow_cases(
    "in order-long-csv", "shuffled-wide-csv", "text-wide-csv", "shuffled-long-parquet", "text-list-parquet"
)
@pytest.mark.parametrize(
    ("ids", "form", "edges"),
    [
        ("in order", "wide", "parquet"),
        ("in order", "long", "csv"),
        ("shuffled", "long", "parquet"),
        ("shuffled", "wide", "csv"),
        ("text", "list", "parquet"),
        ("text", "wide", "csv"),
    ],
)
def test_scores_equal_those_in_memory(out, fitted, tmp_path, ids, form, edges):
    preds, path, train = written(out, tmp_path / "in", ids, form, edges)
    saved = graphcal.save(fitted["graph-scaling"], tmp_path / "c.safetensors")
    stages = []
    score(saved, preds, tmp_path / "out", path, train, progress=lambda stage, done, total: stages.append(stage))
    np.testing.assert_allclose(probabilities(tmp_path / "out"), fitted["graph-scaling"](out).exp(), atol=1e-6)
    assert not list((tmp_path / "out").glob(".*"))
    assert {"reading predictions", "sorting edges", "reading neighbourhoods", "scoring"} <= set(stages)


@pytest.mark.parametrize(
    ("ids", "end", "shown"),
    [
        ("in order", N + 3, "703"),
        ("shuffled", 10**6, "1000000"),
        ("text", "ghost", "'ghost'"),
        ("in order", "x", "'x'"),
    ],
)
def test_an_unknown_end_is_named_and_nothing_is_left(out, fitted, tmp_path, ids, end, shown):
    preds, path, train = written(out, tmp_path / "in", ids)
    table = pq.read_table(path)
    kind = pa.string() if isinstance(end, str) else table["src"].type
    more = pa.table({"src": pa.array([end, end], kind), "dst": table["src"][:2].cast(kind)})
    pq.write_table(more, tmp_path / "more.parquet")
    (tmp_path / "edges").mkdir()
    path.rename(tmp_path / "edges" / "a.parquet")
    (tmp_path / "more.parquet").rename(tmp_path / "edges" / "b.parquet")
    saved = graphcal.save(fitted["rbs"], tmp_path / "c.safetensors")
    with pytest.raises(ValueError, match=rf"2 ends of edges name 1 nodes without a prediction \(first: {shown}\)"):
        score(saved, preds, tmp_path / "out", tmp_path / "edges", train)
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]


def test_repeated_ids_strange_training_ids_and_missing_columns_are_refused(out, fitted, tmp_path):
    preds, path, _ = written(out, tmp_path / "in", "text")
    saved = graphcal.save(fitted["rbs"], tmp_path / "c.safetensors")
    pq.write_table(pa.table({"id": ["n0001", "nobody"]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"t\.parquet: 1 ids have no prediction \(first: 'nobody'\)"):
        score(saved, preds, tmp_path / "out", path, tmp_path / "t.parquet")
    pq.write_table(pq.read_table(path).rename_columns(["a", "b"]), tmp_path / "e.parquet")
    with pytest.raises(ValueError, match="no column for the source of an edge; the columns are a, b"):
        score(saved, preds, tmp_path / "out", tmp_path / "e.parquet")
    pq.write_table(pq.read_table(preds / "p0.parquet"), preds / "p3.parquet")
    with pytest.raises(ValueError, match=r"the predictions: 300 rows repeat an id \(first: 'n"):
        score(saved, preds, tmp_path / "out", path)
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]


@needs_lab
def test_a_calibration_that_needs_the_whole_graph_is_refused(out, tmp_path):
    preds, path, _ = written(out, tmp_path / "in", "in order")
    calibration = CALIBRATORS["gats"](epochs=1).fit(out, on=out.graph.val_mask)
    saved = graphcal.save(calibration, tmp_path / "c.safetensors")
    with pytest.raises(
        ValueError, match="needs the whole graph at once and cannot score a table in parts: calibrate the table"
    ):
        score(saved, preds, tmp_path / "out", path)


def test_ids_that_are_numbers_in_some_shards_and_text_in_others_are_text(tmp_path):
    numbers = RowNumbers(tmp_path)
    for ids in (pa.array([5, 17]), pa.array(["a", "09"])):
        numbers.add(ids)
    numbers.refuse_duplicates()
    given = [[pa.array([17, 5]), pa.array([5, 5])], [pa.array(["09", "a"]), pa.array(["5", "17"])]]
    edges = [np.stack(columns, 1) for columns in numbers.of(given, 2, "edges")]
    assert sorted(np.concatenate(edges).tolist()) == [[0, 0], [1, 0], [2, 1], [3, 0]]


def digests(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("*.parquet"))}


WAITS = f"""
import sys, time
from graphcal.tables import disk_sums, scoring

vars(disk_sums).update({SMALL})
disk_sums.ROWS = 100

def waits(now, done, total):
    if now == sys.argv[1]:
        print(".", end="", flush=True)
        time.sleep(30)

scoring.score(*sys.argv[2:], workers=1, progress=waits)
"""


@pytest.mark.slow_cases("sorting edges", "reading neighbourhoods")
@pytest.mark.parametrize("stage", ["sorting edges", "reading neighbourhoods", "scoring"])
def test_killed_while_edges_are_read_or_rows_are_scored_it_goes_on(out, fitted, tmp_path, monkeypatch, stage):
    preds, path, train = written(out, tmp_path / "in", "in order")
    saved = graphcal.save(fitted["graph-scaling"], tmp_path / "c.safetensors")
    score(saved, preds, tmp_path / "whole", path, train)
    kill_after(child(WAITS, stage, saved, preds, tmp_path / "out", path, train), 1)
    (left,) = (tmp_path / "out").glob(".graph-*")
    assert (left / "context.json").exists() == (stage == "scoring")
    made = []
    make = scoring.edges_context.__wrapped__.__globals__["make_context"]
    monkeypatch.setattr("graphcal.tables.contexts.make_context", lambda *args: made.append(1) or make(*args))
    summary = score(saved, preds, tmp_path / "out", path, train)
    assert len(made) == (stage != "scoring")  # a finished context is not made again
    assert summary["kept"] >= (1 if stage == "scoring" else 0)
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    assert not list((tmp_path / "out").glob(".*"))


def test_a_full_disk_is_said_and_leaves_nothing(out, fitted, tmp_path, monkeypatch):
    preds, path, train = written(out, tmp_path / "in", "in order")
    saved = graphcal.save(fitted["rbs"], tmp_path / "c.safetensors")

    def full(self, first_row, block, first_column=0):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DiskColumns, "write", full)
    with pytest.raises(ValueError, match=r"cannot write .*graph-.*: No space left on device"):
        score(saved, preds, tmp_path / "out", path, train)
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
