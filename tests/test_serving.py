"""A model with its repair: right wherever it goes."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.models import GCN

from conftest import random_graph
from graphcal import CALIBRATORS, SCAR, CalibratedModel, TemperatureScaling, observe
from graphcal.methods.scar import fit_pull

ALPHA, BETA = 0.03, 0.2
GRAPH = random_graph()


def gcn(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return GCN(10, 8, 2, out_channels=4, dropout=dropout)


MODEL = gcn().eval()
SHIPPED = {
    name: CalibratedModel(MODEL, CALIBRATORS[name]().fit(observe(MODEL, GRAPH), on=GRAPH.val_mask))
    for name in ("ts", "scar", "graph-scaling-keep", "rbs", "auto")
}


def test_has_the_models_signature_and_equals_the_calibration(graph):
    model = gcn()
    out = observe(model, graph)
    calibration = SCAR(ALPHA, BETA).fit(out, graph.val_mask)
    wrapped = CalibratedModel(model, calibration)
    assert torch.allclose(wrapped(graph.x, graph.edge_index), calibration(out), atol=1e-6)
    assert torch.allclose(wrapped(graph.x, edge_index=graph.edge_index), calibration(out), atol=1e-6)


@pytest.mark.parametrize("name", SHIPPED)
def test_on_its_own_graph_it_says_what_the_calibration_says(name):
    out = observe(MODEL, GRAPH)
    served = SHIPPED[name](GRAPH.x, GRAPH.edge_index)
    torch.testing.assert_close(served, SHIPPED[name].calibration(out), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), copies=st.booleans())
def test_nodes_added_elsewhere_change_no_other_node(name, seed, copies):
    """One isolated node, a copy of a known one, or a whole second graph beside it."""
    other = GRAPH if copies else random_graph(nodes=40, train=5, val=10, seed=seed)
    count = 1 if copies else 40
    x = torch.cat([GRAPH.x, other.x[seed % 100 : seed % 100 + 1] if copies else other.x])
    edges = GRAPH.edge_index if copies else torch.cat([GRAPH.edge_index, other.edge_index + 150], 1)
    before, after = SHIPPED[name](GRAPH.x, GRAPH.edge_index), SHIPPED[name](x, edges)
    assert len(after) == 150 + count
    assert float((after[:150].exp() - before.exp()).abs().max()) < 1e-6


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_renumbering_renumbers_the_answer(name, seed):
    order = torch.randperm(150, generator=torch.Generator().manual_seed(seed))
    place = torch.empty_like(order)
    place[order] = torch.arange(150)
    before = SHIPPED[name](GRAPH.x, GRAPH.edge_index)
    after = SHIPPED[name](GRAPH.x[order], place[GRAPH.edge_index])
    assert float((after.exp() - before[order].exp()).abs().max()) < 1e-5  # sums in another order


@pytest.mark.parametrize("name", SHIPPED)
def test_another_graph_of_equal_size_has_no_training_nodes(name):
    other = random_graph(seed=7)
    before = SHIPPED[name](other.x, other.edge_index)
    told = SHIPPED[name].calibration(observe(MODEL, Data(x=other.x, edge_index=other.edge_index)))
    torch.testing.assert_close(before, told, atol=1e-6, rtol=1e-5)


def test_a_part_of_the_graph_keeps_what_it_shows():
    """Nodes whose logits and neighbourhood are all there are answered as in the whole."""
    scar = CalibratedModel(MODEL, fit_pull(observe(MODEL, GRAPH), GRAPH.val_mask, ALPHA, BETA))
    inside = torch.zeros(150, dtype=torch.bool)
    inside[:60] = True
    for _ in range(4):
        source, target = GRAPH.edge_index
        inside[source[inside[target]]] = True
    part = GRAPH.subgraph(inside)
    whole = scar(GRAPH.x, GRAPH.edge_index)[inside]
    first = inside.nonzero().flatten() < 60
    torch.testing.assert_close(scar(part.x, part.edge_index)[first], whole[first], atol=1e-5, rtol=1e-4)


def test_on_another_graph_no_node_is_a_training_node(graph):
    model = gcn().eval()
    calibration = fit_pull(observe(model, graph), graph.val_mask, ALPHA, BETA, guarded=False)
    small = random_graph(nodes=50, train=10, val=20, seed=3)
    log_probs = CalibratedModel(model, calibration)(small.x, small.edge_index)
    z = model(small.x, small.edge_index)
    layer = observe(model, small).final
    d = layer.gram.T[z.argmax(-1)] + layer.bias - z
    assert torch.allclose(log_probs, (z + BETA * d).log_softmax(-1), atol=1e-5)


def test_training_nodes_that_are_named_count():
    other = random_graph(seed=7)
    calibrate = fit_pull(observe(MODEL, GRAPH), GRAPH.val_mask, ALPHA, BETA)
    expected = calibrate(observe(MODEL, other))
    for mask in (other.train_mask, other.train_mask.numpy(), other.train_mask.nonzero().flatten()):
        served = CalibratedModel(MODEL, calibrate, train_mask=mask)(other.x, other.edge_index)
        torch.testing.assert_close(served, expected, atol=1e-6, rtol=1e-5)
    with pytest.raises(ValueError, match="train_mask has 150 entries, but there are 151 nodes"):
        CalibratedModel(MODEL, calibrate, train_mask=other.train_mask)(
            torch.cat([other.x, other.x[:1]]), other.edge_index
        )


def test_dropout_is_off_unless_training_is_asked_for():
    model = gcn(dropout=0.9).train()
    calibrate = TemperatureScaling().fit(observe(model, GRAPH), on=GRAPH.val_mask)
    shipped = CalibratedModel(model, calibrate)
    model.train()  # by whoever goes on training it
    assert torch.equal(shipped(GRAPH.x, GRAPH.edge_index), shipped(GRAPH.x, GRAPH.edge_index))
    assert model.training
    shipped.train()
    assert not torch.equal(shipped(GRAPH.x, GRAPH.edge_index), shipped(GRAPH.x, GRAPH.edge_index))


class Blind(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(10, 4)

    def forward(self, features):
        return self.layer(features)


def test_a_signature_without_edges_needs_as_graph(graph):
    model = Blind()
    out = observe(model, graph)
    calibration = SCAR(ALPHA, BETA).fit(out, graph.val_mask)
    with pytest.raises(ValueError, match=r"found no edges among the arguments \(features\) .* as_graph="):
        CalibratedModel(model, calibration)(graph.x)
    wrapped = CalibratedModel(model, calibration, as_graph=lambda features: graph.clone())
    assert torch.allclose(wrapped(graph.x), calibration(out), atol=1e-6)


@pytest.mark.parametrize(
    "name", [n for n in CALIBRATORS.own if not CALIBRATORS[n].card.graph and not CALIBRATORS[n].card.model]
)
def test_a_calibration_of_the_logits_alone_needs_no_graph(name):
    model = Blind()
    bare = Data(x=GRAPH.x, y=GRAPH.y)
    calibrate = CALIBRATORS[name]().fit(observe(model, bare), on=GRAPH.val_mask)
    if calibrate.reads_graph:
        pytest.skip("it reads the graph where there is one")
    torch.testing.assert_close(CalibratedModel(model, calibrate)(GRAPH.x), calibrate(observe(model, bare)))


class Seeds(nn.Module):
    """The habit of PyG's examples: logits of the seeds alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = GCNConv(10, 8), GCNConv(8, 4)

    def forward(self, x, edge_index, batch_size=None):
        return self.last(self.first(x, edge_index).relu(), edge_index)[:batch_size]


@pytest.mark.parametrize("name", ["ts", "scar", "graph-scaling-keep", "rbs", "auto"])
def test_logits_of_seeds_alone_get_the_plain_form_or_the_table(name):
    model = Seeds()
    out = observe(model, GRAPH)
    calibrate = CALIBRATORS[name]().fit(out, on=GRAPH.val_mask)
    context = calibrate.context(out)
    plain = calibrate.from_context(out.logits, torch.full_like(context, torch.nan))[:20]
    served = CalibratedModel(model, calibrate)(GRAPH.x, GRAPH.edge_index, batch_size=20)
    torch.testing.assert_close(served, plain, atol=1e-5, rtol=1e-5)

    class OfBatch(Seeds):
        def forward(self, data):
            return super().forward(data.x, data.edge_index)

    batch = Data(
        x=GRAPH.x, edge_index=GRAPH.edge_index, n_id=torch.arange(150), input_id=torch.arange(20), batch_size=20
    )
    sampled = OfBatch()
    torch.testing.assert_close(CalibratedModel(sampled, calibrate)(batch)[:20], plain, atol=1e-5, rtol=1e-5)
    looked_up = CalibratedModel(sampled, calibrate, context=context)(batch)
    torch.testing.assert_close(looked_up, calibrate(out), atol=1e-5, rtol=1e-5)
    if name != "ts":
        batch.n_id = torch.cat([torch.tensor([150]), torch.arange(1, 150)])  # the first came after the table was made
        later = CalibratedModel(sampled, calibrate, context=context)(batch)
        torch.testing.assert_close(later[:1], plain[:1], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(later[1:], looked_up[1:], atol=1e-5, rtol=1e-5)


def test_a_network_of_the_whole_graph_refuses_a_cut_one():
    model = Seeds()
    gats = CALIBRATORS["gats"](epochs=2).fit(observe(model, GRAPH), on=GRAPH.val_mask)
    with pytest.raises(ValueError, match="AttentionTemperature needs the logits and the edges of the whole graph"):
        CalibratedModel(model, gats)(GRAPH.x, GRAPH.edge_index, batch_size=20)


def test_another_number_of_classes_is_refused_before_anything_else():
    torch.manual_seed(0)
    other = GCN(10, 8, 2, out_channels=7)
    for name in ("ts", "scar"):
        with pytest.raises(ValueError, match="fitted on 4 classes, the logits have 7"):
            CalibratedModel(other, SHIPPED[name].calibration)(GRAPH.x, GRAPH.edge_index)


def test_nothing_is_said_on_stderr_in_ordinary_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SHIPPED["scar"](GRAPH.x, GRAPH.edge_index)


def test_what_knowing_the_training_set_is_worth_is_reported():
    calibrate = SHIPPED["scar"].calibration
    assert isinstance(calibrate.fitted_on["worth_of_training_set"], float)
