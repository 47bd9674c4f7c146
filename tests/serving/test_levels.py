"""Graph scaling serves the level with the hidden representation, however a model is served."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

import graphcal
from five_models import BINARY, FIVE, GRAPH, made
from graphcal.serving import export_onnx, export_program

CLOSE: dict[str, float] = {"atol": 1e-6, "rtol": 1e-6}  # in double precision


def in_double(name: str) -> tuple[nn.Module, Data | HeteroData]:
    model, data, _, _, _ = made(name)
    return model.double(), data.clone().apply(lambda t: t.double() if t.is_floating_point() else t)


def call_of(data: Data | HeteroData, name: str) -> tuple[Any, ...]:
    if isinstance(data, HeteroData):
        return data.x_dict, data.edge_index_dict
    return (data,) if name == "forward(data)" else (data.x, data.edge_index)


def in_onnx_runtime(shipped: graphcal.CalibratedModel, data: Data, path: Any) -> Tensor:
    runtime = pytest.importorskip("onnxruntime")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    session = runtime.InferenceSession(export_onnx(shipped.exportable(), data, path))
    return torch.from_numpy(session.run(None, {one.name: data[one.name].numpy() for one in session.get_inputs()})[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", FIVE)
def test_the_level_with_the_hidden_representation_serves(name, tmp_path):
    model, data = in_double(name)
    args = call_of(data, name)
    node_type = "paper" if isinstance(data, HeteroData) else None
    labelled = BINARY if name == "one logit" else GRAPH
    out = graphcal.observe(model, data)
    calibrate = graphcal.GraphScaling().fit(out, on=labelled.val_mask)
    assert calibrate.level == "logits · edges · hidden"
    expected, lower = calibrate(out), calibrate(graphcal.Outputs.from_logits(out.logits, out.graph))
    assert float((expected - lower).abs().max()) > 0.05  # what follows can tell the levels apart

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        table = calibrate.context_of(out)
        shipped = graphcal.CalibratedModel(model, calibrate, node_type=node_type, context=table)
        torch.testing.assert_close(shipped(*args), expected, **CLOSE)

        graphcal.save(shipped, tmp_path / "model.safetensors")
        restored = graphcal.restore(tmp_path / "model.safetensors", model=in_double(name)[0])
        torch.testing.assert_close(restored(*args), expected, **CLOSE)

        nodes = torch.arange(0, 150, 2)  # a batch without half of the neighbours
        batch = data.subgraph(nodes if node_type is None else {"paper": nodes})
        logits = graphcal.observe(model, batch).logits
        for served in (shipped, restored):
            sampled = served(*call_of(batch, name), n_id=nodes)
            torch.testing.assert_close(sampled, calibrate.log_probs(logits, table[nodes]), **CLOSE)
        without = table[nodes].clone()
        without[:, calibrate.width :] = torch.nan
        assert float((sampled - calibrate.log_probs(logits, without)).abs().max()) > 0.05

    if node_type is not None:
        with pytest.raises(ValueError, match="got HeteroData"):
            export_program(shipped.exportable(), data)
        return
    pytest.importorskip("onnxscript")
    inputs = Data(x=data.x, edge_index=data.edge_index)
    torch.testing.assert_close(in_onnx_runtime(shipped, inputs, tmp_path / "m.onnx"), expected, **CLOSE)
