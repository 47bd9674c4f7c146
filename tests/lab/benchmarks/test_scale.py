"""benchmarks/scale.py: what is compared does the same, and the page says which SQL is five times slower."""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb")
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import duckdb_softmax
import graph_scoring
import scale


def probabilities(folder, layout):
    table = pq.read_table(folder).sort_by(
        [("id", "ascending"), *([("class", "ascending")] if layout == "long" else [])]
    )
    if layout == "wide":
        return np.stack([table[f"prob_{c}"].to_numpy() for c in range(scale.CLASSES)], 1)
    flat = table["probs"].combine_chunks().flatten() if layout == "list" else table["prob"]
    return flat.to_numpy().reshape(-1, scale.CLASSES)


@pytest.mark.parametrize("layout", scale.LAYOUTS)
def test_every_sql_is_the_softmax_that_scoring_does(tmp_path, layout, monkeypatch):
    import duckdb

    monkeypatch.setattr(scale, "SHARD", 300)
    scale.write_shards(tmp_path / "in", 500, layout)
    scale.save_calibrator(tmp_path / "c.safetensors", layout)
    scale.score(tmp_path / "in", tmp_path / "scored", tmp_path / "c.safetensors", 1)
    ours = [pq.read_table(path) for path in sorted((tmp_path / "scored").glob("*.parquet"))]
    columns = {
        "wide": [f"calibrated_prob_{c}" for c in range(10)],
        "list": ["calibrated_probs"],
        "long": ["calibrated_prob"],
    }
    parts = [[t[name].combine_chunks() for name in columns[layout]] for t in ours]
    if layout == "wide":
        expected = np.concatenate([np.stack([c.to_numpy() for c in part], 1) for part in parts])
    else:
        flat = [(part[0].flatten() if layout == "list" else part[0]).to_numpy() for part in parts]
        expected = np.concatenate(flat).reshape(-1, scale.CLASSES)
    assert len(expected) == 500
    for name in duckdb_softmax.LAYOUTS[layout]:
        duckdb.sql("DROP VIEW IF EXISTS logits")
        duckdb_softmax.run(name, tmp_path / "in", tmp_path / name, tmp_path, 1)
        np.testing.assert_allclose(probabilities(tmp_path / name, layout), expected, atol=1e-5)


def test_the_page_says_who_is_five_times_slower():
    cost = {"seconds": 1.0, "cpu": 1.0, "peak_mb": 500.0}
    tasks = {"copy": cost, "score": {**cost, "seconds": 1.5, "cpu": 1.25}, "copy-defaults": {**cost, "cpu": 2.0}}
    sql = {"duckdb-careful": {**cost, "cpu": 2.5}, "duckdb-columns": {**cost, "cpu": 6.25}}
    text = "\n".join(scale.markdown([{"layout": "wide", "rows": 1_000_000, **tasks, **sql}], 2, [1]))
    assert "| wide | 1,000,000 | 1.50 | 1.25 | 1.50 × (1.25) |  | 1.50 × (0.62) | 0.7 | 500 |" in text
    assert "| careful | 1,000,000 | 2.50 | 1.25 | 2.0 × | no |" in text
    assert "| columns | 1,000,000 | 6.25 | 1.25 | 5.0 × | yes |" in text
    one = {"ids": "in-order", "nodes": 1_000_000, "edges": 10_000_000, "seconds": 30.0, "cpu": 20.0, "peak_mb": 700.0}
    assert "| in-order | 1,000,000 | 10,000,000 | 30 | 20 | 50,000 | 700 |" in graph_scoring.markdown([one])
    tall = {"layout": "list", "rows": 5_000_000, "copy": cost, "score": cost}
    assert "<svg" in scale.picture([tall], [one])


def test_made_graphs_have_each_id_once_and_every_end_among_them(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_scoring, "SHARD", 400)
    for ids in graph_scoring.IDS:
        graph_scoring.write_graph(tmp_path / ids, 1000, ids)
        names = pq.read_table(tmp_path / ids / "preds")["id"].to_pylist()
        edges = pq.read_table(tmp_path / ids / "edges")
        assert len(set(names)) == 1000
        assert edges.num_rows == 10_000
        assert set(edges["src"].to_pylist()) | set(edges["dst"].to_pylist()) <= set(names)
