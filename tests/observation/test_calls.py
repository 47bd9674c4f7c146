"""Signatures, outputs and wrappers as people write them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, SAGEConv, to_hetero

from conftest import random_graph
from graphcal import SCAR, CalibratedModel, TemperatureScaling, observe

GRAPH = random_graph()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = GCNConv(10, 8), GCNConv(8, 4)

    def logits(self, x, edge_index, edge_weight=None):
        return self.last(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    def forward(self, x, edge_index):
        return self.logits(x, edge_index)


class TakesData(Net):
    def forward(self, data):
        return self.logits(data.x, data.edge_index)


class AnnotatedData(Net):
    def forward(self, thing: Data, scale: float = 1.0):
        return scale * self.logits(thing.x, thing.edge_index)


class OtherNames(Net):
    def forward(self, features, edges):
        return self.logits(features, edges)


class KeywordOnly(Net):
    def forward(self, *, x, edge_index):
        return self.logits(x, edge_index)


class PositionalOnly(Net):
    def forward(self, x, edge_index, /):
        return self.logits(x, edge_index)


class Weighted(Net):
    def forward(self, x, edge_index, edge_weight=None, y=None):
        assert y is None  # labels are never handed over
        return self.logits(x, edge_index, edge_weight)


class Adjacency(Net):
    def forward(self, x, adj_t):
        return self.logits(x, adj_t)


class Tuple(Net):
    def forward(self, x, edge_index):
        return self.logits(x, edge_index), torch.arange(len(x))


class TwoTensors(Net):
    def forward(self, x, edge_index):
        return x, self.logits(x, edge_index)


class Dict(Net):
    def forward(self, x, edge_index):
        return {"embedding": x, "logits": self.logits(x, edge_index)}


SIGNATURES = [Net, TakesData, AnnotatedData, OtherNames, KeywordOnly, PositionalOnly, Weighted, Adjacency, Tuple, Dict]


@pytest.mark.parametrize("cls", SIGNATURES)
def test_every_signature_gives_the_logits(cls):
    model = cls()
    out = observe(model, GRAPH)
    torch.testing.assert_close(out.logits, model.logits(GRAPH.x, GRAPH.edge_index), atol=1e-5, rtol=1e-4)
    assert out.final is not None
    calibrate = SCAR().fit(out, on=GRAPH.val_mask)
    call = {
        TakesData: ((GRAPH,), {}),
        AnnotatedData: ((GRAPH,), {}),
        KeywordOnly: ((), {"x": GRAPH.x, "edge_index": GRAPH.edge_index}),
        Adjacency: ((GRAPH.x, adjacency(GRAPH)), {}),
        OtherNames: ((GRAPH.x, GRAPH.edge_index), {}),
    }
    args, kwargs = call.get(cls, ((GRAPH.x, GRAPH.edge_index), {}))
    as_graph = (lambda x, e: Data(x=x, edge_index=e)) if cls is OtherNames else None
    served = CalibratedModel(model, calibrate, GRAPH.train_mask, as_graph=as_graph)
    torch.testing.assert_close(served(*args, **kwargs), calibrate(out), atol=1e-5, rtol=1e-4)


def adjacency(graph: Data) -> torch.Tensor:
    source, target = graph.edge_index
    size = (graph.num_nodes, graph.num_nodes)
    return torch.sparse_coo_tensor(torch.stack([target, source]), torch.ones(len(source)), size).to_sparse_csr()


def test_an_adjacency_of_the_data_is_used_and_its_edges_are_known():
    graph = GRAPH.clone()
    graph.adj_t = adjacency(graph)
    del graph.edge_index
    out = observe(Adjacency(), graph)
    edges = torch.unique(out.graph.edge_index, dim=1)
    assert torch.equal(edges, torch.unique(GRAPH.edge_index, dim=1))


def test_weights_of_the_edges_are_used_or_missed_aloud():
    graph = GRAPH.clone()
    graph.edge_weight = torch.rand(graph.edge_index.shape[1])
    model = Weighted()
    out = observe(model, graph)
    torch.testing.assert_close(out.logits, model.logits(graph.x, graph.edge_index, graph.edge_weight))
    with pytest.warns(UserWarning, match="data.edge_weight is not used: Net.forward has no edge_weight"):
        observe(Net(), graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        observe(Net(), graph, call=lambda model, data: model.logits(data.x, data.edge_index, data.edge_weight))


def test_several_tensors_need_to_be_told_apart():
    model = TwoTensors()
    with pytest.raises(ValueError, match=r"tuple\(0: \(150, 10\), 1: \(150, 4\)\): say which are the logits"):
        observe(model, GRAPH)
    with pytest.raises(ValueError, match="pick=2 is not in what TwoTensors returned"):
        observe(model, GRAPH, pick=2)
    out = observe(model, GRAPH, pick=1)
    assert torch.equal(observe(model, GRAPH, pick=lambda output: output[1]).logits, out.logits)
    calibrate = TemperatureScaling().fit(out, on=GRAPH.val_mask)
    served = CalibratedModel(model, calibrate, pick=1)(GRAPH.x, GRAPH.edge_index)
    torch.testing.assert_close(served, calibrate(out))


def test_what_the_data_lacks_is_named():
    class Positions(Net):
        def forward(self, x, edge_index, pos):
            return self.logits(x, edge_index)

    with pytest.raises(
        ValueError, match=r"Positions.forward\(x, edge_index, pos\) needs 'pos', which the data does not have"
    ):
        observe(Positions(), GRAPH)


def test_something_else_than_tensors_is_refused():
    class Nothing(Net):
        def forward(self, x, edge_index):
            return None

    with pytest.raises(ValueError, match="returned NoneType, not a tensor of logits"):
        observe(Nothing(), GRAPH)


@pytest.mark.slow
def test_a_compiled_model():
    model = Net()
    compiled = torch.compile(model, backend="eager")
    out = observe(compiled, GRAPH)
    assert out.final is not None
    calibrate = SCAR().fit(out, on=GRAPH.val_mask)
    served = CalibratedModel(compiled, calibrate, GRAPH.train_mask)(GRAPH.x, GRAPH.edge_index)
    torch.testing.assert_close(served, calibrate(out), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_other_precisions(dtype):
    graph, model = GRAPH.clone(), Net().to(dtype)
    graph.x = graph.x.to(dtype)
    out = observe(model, graph)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert out.logits.dtype == wide
    assert out.final is not None
    assert next(model.parameters()).dtype == dtype  # the model is as it was
    calibrate = SCAR().fit(out, on=graph.val_mask)
    served = CalibratedModel(model, calibrate, graph.train_mask)(graph.x, graph.edge_index)
    assert served.dtype == wide
    torch.testing.assert_close(served, calibrate(out), atol=0.1 if wide != dtype else 1e-9, rtol=0.1)


def hetero() -> HeteroData:
    data = HeteroData()
    data["paper"].x, data["paper"].y = GRAPH.x, GRAPH.y[:, None]
    for name in ("train_mask", "val_mask", "test_mask"):
        data["paper"][name] = GRAPH[name]
    data["author"].x = torch.randn(20, 6)
    data["paper", "cites", "paper"].edge_index = GRAPH.edge_index
    data["author", "writes", "paper"].edge_index = torch.stack([torch.arange(20), torch.arange(20) * 3])
    data["paper", "by", "author"].edge_index = torch.stack([torch.arange(20) * 3, torch.arange(20)])
    return data


def test_a_heterogeneous_graph():
    class Homogeneous(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), 4)

        def forward(self, x, edge_index):
            return self.last(self.first(x, edge_index).relu(), edge_index)

    data = hetero()
    model = to_hetero(Homogeneous(), data.metadata())
    out = observe(model, data, node_type="paper")
    assert out.final is not None
    assert out.num_nodes == 150
    assert torch.equal(out.graph.edge_index, GRAPH.edge_index)
    assert torch.equal(observe(model, data).logits, out.logits)  # the only type with labels
    calibrate = SCAR().fit(out, on=GRAPH.val_mask)
    served = CalibratedModel(model, calibrate, GRAPH.train_mask)  # the node type is that of the outputs
    torch.testing.assert_close(served(data.x_dict, data.edge_index_dict), calibrate(out), atol=1e-5, rtol=1e-4)
    del calibrate.fitted_on["node_type"]
    with pytest.raises(ValueError, match=r"node_type=\), one of paper, author"):
        CalibratedModel(model, calibrate, pick="paper")(data.x_dict, data.edge_index_dict)
    with pytest.raises(ValueError, match="node_type='venue' is not in the data, which has paper, author"):
        observe(model, data, node_type="venue")
    del data["paper"].y
    with pytest.raises(
        ValueError, match=r"say which nodes get a class: node_type= one of paper, author \(none has labels y\)"
    ):
        observe(model, data)
