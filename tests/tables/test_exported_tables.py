"""`graphcal.export`: what a model said comes back from the files as it was."""

import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file

import graphcal
from graphcal.tables.calibration import read_final_layer
from graphcal.tables.edges import read_edges
from graphcal.tables.reading import read_table


def test_files_hold_all_of_the_outputs(tmp_path):
    simulated = graphcal.example(400)
    data = simulated.graph.clone()
    data.node_ids = [f"v{k}" for k in range(400)]
    data.class_names = ["e", "d", "c", "b", "a"]
    data.y[data.test_mask.nonzero()[0]] = -1
    data.test_mask[data.test_mask.nonzero()[0]] = False
    out = graphcal.Outputs(simulated.logits, data, simulated.final)
    path = graphcal.export(out, tmp_path / "x")
    table = read_table(path)
    torch.testing.assert_close(table.logits, out.logits)
    assert table.classes == tuple(data.class_names)
    assert table.ids.to_pylist() == data.node_ids
    assert table.y.tolist() == data.y.tolist()
    for part in ("train", "val", "test"):
        assert getattr(table.split, part).tolist() == data[f"{part}_mask"].tolist()
    edges = read_edges(tmp_path / "x" / "edges.parquet", table.ids)
    assert torch.equal(edges, data.edge_index)
    final = read_final_layer(tmp_path / "x" / "final_layer.safetensors")
    assert torch.equal(final.weight, out.final.weight)
    assert torch.equal(load_file(tmp_path / "x" / "final_layer.safetensors")["bias"], out.final.bias)
    assert pq.read_table(path)["label"].null_count == int((data.y < 0).sum())
