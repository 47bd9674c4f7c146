"""torch.export and ONNX Runtime say the same as the calibrated model, on another graph than the traced one."""

from __future__ import annotations

import doctest
import logging

import pytest
import torch
from torch_geometric.data import Data

import graphcal.serving.torch_export
from conftest import needs_lab, random_graph
from graphcal import CALIBRATORS, CalibratedModel, observe
from graphcal.serving.torch_export import Exportable, export_onnx, export_program
from user_models import HEADS, build

GRAPH = random_graph()
OTHER = random_graph(nodes=70, train=20, val=30, seed=5)
REPEATED = OTHER.edge_index[:, :9]
LOOPS = torch.tensor([[3, 69], [3, 69]])
OTHER.edge_index = torch.cat([OTHER.edge_index, REPEATED, REPEATED.flip(0), LOOPS], 1)


def calibrated(name: str, head: str = "GCNConv") -> CalibratedModel:
    model = build(HEADS[head])
    return CalibratedModel(model, CALIBRATORS[name]().fit(observe(model, GRAPH), on=GRAPH.val_mask))


def expected(shipped: CalibratedModel) -> torch.Tensor:
    told = CalibratedModel(shipped.model, shipped.calibration, train_mask=OTHER.train_mask)
    return told(OTHER.x, OTHER.edge_index).detach()


@pytest.mark.slow_cases("graph-scaling-keep-SAGEConv", "scar-GATv2Conv", "rbs-GCNConv", "graph-scaling-GCNConv")
@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("ts", "GCNConv"),
        ("scar", "GATv2Conv"),
        ("graph-scaling-keep", "SAGEConv"),
        ("rbs", "GCNConv"),
        ("graph-scaling", "GCNConv"),
    ],
)
def test_torch_export(name, head):
    shipped = calibrated(name, head)
    program = export_program(
        shipped.exportable(), Data(x=GRAPH.x, edge_index=GRAPH.edge_index, train_mask=GRAPH.train_mask)
    )
    log_probs = program.module()(x=OTHER.x, edge_index=OTHER.edge_index, train_mask=OTHER.train_mask)
    torch.testing.assert_close(log_probs, expected(shipped), atol=1e-5, rtol=1e-5)


@pytest.mark.slow_cases("scar")
@pytest.mark.parametrize("name", ["ts", "scar"])
def test_onnx_runtime(name, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    shipped = calibrated(name)
    path = export_onnx(shipped.exportable(), GRAPH, tmp_path / "model.onnx")
    session = runtime.InferenceSession(path)
    inputs = {one.name: OTHER[one.name].numpy() for one in session.get_inputs()}
    (log_probs,) = session.run(None, inputs)
    torch.testing.assert_close(torch.from_numpy(log_probs), expected(shipped), atol=1e-5, rtol=1e-5)


def test_a_closing_log_softmax_is_looked_through_and_training_nodes_are_optional():
    class Ends(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = build(HEADS["GCNConv"])

        def forward(self, x, edge_index):
            return self.model(x, edge_index).log_softmax(-1)

    model = Ends()
    shipped = CalibratedModel(model, CALIBRATORS["vs"]().fit(observe(model, GRAPH), on=GRAPH.val_mask))
    program = export_program(shipped, Data(x=GRAPH.x, edge_index=GRAPH.edge_index))
    log_probs = program.module()(x=OTHER.x, edge_index=OTHER.edge_index)
    torch.testing.assert_close(log_probs, shipped(OTHER.x, OTHER.edge_index).detach(), atol=1e-5, rtol=1e-5)


def test_a_model_without_calibration_is_refused():
    with pytest.raises(ValueError, match="got Encoded"):
        export_program(build(HEADS["GCNConv"]), GRAPH)


@needs_lab
def test_what_reads_the_whole_graph_is_refused():
    model = build(HEADS["GCNConv"])
    gats = CALIBRATORS["gats"](epochs=2).fit(observe(model, GRAPH), on=GRAPH.val_mask)
    with pytest.raises(ValueError, match="AttentionTemperature cannot be exported: it needs the whole graph"):
        Exportable(model, gats)


@pytest.mark.slow
def test_the_example_runs():
    assert doctest.testmod(graphcal.serving.torch_export, raise_on_error=True).attempted > 0
