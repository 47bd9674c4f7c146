"""A model with its repair: right wherever it goes."""

from __future__ import annotations

import copy
import threading
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.models import GCN

import graphcal
from conftest import HAS_LAB, needs_lab, random_graph
from graphcal import CALIBRATORS, SCAR, CalibratedModel, Outputs, TemperatureScaling, observe
from graphcal.methods.scar import fit_pull

ALPHA, BETA = 0.03, 0.2
GRAPH = random_graph()


def gcn(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return GCN(10, 8, 2, out_channels=4, dropout=dropout)


MODEL = gcn().eval()
SHIPPED = {
    name: CalibratedModel(MODEL, CALIBRATORS[name]().fit(observe(MODEL, GRAPH), on=GRAPH.val_mask), GRAPH.train_mask)
    for name in ("ts", "scar", "graph-scaling-keep", "rbs", "auto")
}


def test_has_the_models_signature_and_equals_the_calibration(graph):
    model = gcn()
    out = observe(model, graph)
    calibration = SCAR(ALPHA, BETA).fit(out, graph.val_mask)
    wrapped = CalibratedModel(model, calibration, graph.train_mask)
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
    mask = torch.cat([GRAPH.train_mask, torch.zeros(count, dtype=torch.bool)])
    before = SHIPPED[name](GRAPH.x, GRAPH.edge_index)
    after = CalibratedModel(MODEL, SHIPPED[name].calibration, mask)(x, edges)
    assert len(after) == 150 + count
    assert float((after[:150].exp() - before.exp()).abs().max()) < 1e-6


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_renumbering_renumbers_the_answer(name, seed):
    order = torch.randperm(150, generator=torch.Generator().manual_seed(seed))
    position = torch.empty_like(order)
    position[order] = torch.arange(150)
    model, x = copy.deepcopy(MODEL).double(), GRAPH.x.double()  # sums in another order are rounded otherwise
    before = CalibratedModel(model, SHIPPED[name].calibration, GRAPH.train_mask)(x, GRAPH.edge_index)
    moved = CalibratedModel(model, SHIPPED[name].calibration, GRAPH.train_mask[order])
    after = moved(x[order], position[GRAPH.edge_index])
    assert float((after.exp() - before[order].exp()).abs().max()) < 1e-10


def test_a_part_of_the_graph_keeps_what_it_shows():
    """Nodes whose logits and neighbourhood are all there are answered as in the whole."""
    calibrate = fit_pull(observe(MODEL, GRAPH), GRAPH.val_mask, ALPHA, BETA)
    inside = torch.zeros(150, dtype=torch.bool)
    inside[:60] = True
    for _ in range(4):
        source, target = GRAPH.edge_index
        inside[source[inside[target]]] = True
    part = GRAPH.subgraph(inside)
    whole = CalibratedModel(MODEL, calibrate, GRAPH.train_mask)(GRAPH.x, GRAPH.edge_index)[inside]
    first = inside.nonzero().flatten() < 60
    served = CalibratedModel(MODEL, calibrate, part.train_mask)
    torch.testing.assert_close(served(part.x, part.edge_index)[first], whole[first], atol=1e-5, rtol=1e-4)


def test_on_another_graph_no_node_is_a_training_node(graph):
    model = gcn().eval()
    calibration = fit_pull(observe(model, graph), graph.val_mask, ALPHA, BETA, guarded=False)
    small = random_graph(nodes=50, train=10, val=20, seed=3)
    nobody = torch.zeros(50, dtype=torch.bool)
    log_probs = CalibratedModel(model, calibration, nobody)(small.x, small.edge_index)
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


@pytest.mark.slow_cases("order-invariant")
@pytest.mark.parametrize(
    "name", [n for n in CALIBRATORS.builtin if not CALIBRATORS[n].card.graph and not CALIBRATORS[n].card.model]
)
def test_a_calibration_of_the_logits_alone_needs_no_graph(name):
    model = Blind()
    bare = Data(x=GRAPH.x, y=GRAPH.y)
    calibrate = CALIBRATORS[name]().fit(observe(model, bare), on=GRAPH.val_mask)
    assert not calibrate.needs.edges
    torch.testing.assert_close(CalibratedModel(model, calibrate)(GRAPH.x), calibrate(observe(model, bare)))


def test_a_call_that_does_not_show_the_hidden_representation_gets_the_level_without_it():
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = nn.Parameter(observe(MODEL, GRAPH).logits.clone())

        def forward(self, x, edge_index):
            return self.logits * 1

    calibrate = SHIPPED["graph-scaling-keep"].calibration
    assert calibrate.needs.hidden
    with pytest.warns(UserWarning, match="no linear map was seen .* The level without it serves") as told:
        served = CalibratedModel(Table(), calibrate)(GRAPH.x, GRAPH.edge_index)
    assert told[0].filename == __file__
    torch.testing.assert_close(served, calibrate(Outputs(observe(MODEL, GRAPH).logits, GRAPH)), atol=1e-6, rtol=0)
    assert not torch.allclose(served, SHIPPED["graph-scaling-keep"](GRAPH.x, GRAPH.edge_index), atol=1e-2)


def test_a_hidden_representation_of_another_width_is_refused():
    torch.manual_seed(0)
    wider = GCN(10, 16, 2, out_channels=4)
    with pytest.raises(ValueError, match="the representation has 16 columns, but the fit had 8"):
        CalibratedModel(wider, SHIPPED["graph-scaling-keep"].calibration)(GRAPH.x, GRAPH.edge_index)


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
    context = calibrate.context_of(out)
    plain = calibrate.log_probs(out.logits, torch.full_like(context, torch.nan))[:20]
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


@needs_lab
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


# --------------------------------------------------------------------------------------------------------- training nodes


@pytest.mark.parametrize("name", ["scar", pytest.param("gats", marks=needs_lab)])
def test_without_a_train_mask_a_calibration_that_reads_training_nodes_warns(name):
    recipe = SCAR(ALPHA, BETA) if name == "scar" else CALIBRATORS[name](epochs=2)
    calibrate = recipe.fit(observe(MODEL, GRAPH), on=GRAPH.val_mask)
    with pytest.warns(UserWarning, match="reads which nodes are training nodes, and no train_mask was given") as told:
        served = CalibratedModel(MODEL, calibrate)(GRAPH.x, GRAPH.edge_index)
    assert told[0].filename == __file__
    nobody = calibrate(observe(MODEL, Data(x=GRAPH.x, edge_index=GRAPH.edge_index)))
    torch.testing.assert_close(served, nobody, atol=1e-6, rtol=0)
    assert not torch.allclose(served, calibrate(observe(MODEL, GRAPH)), atol=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told_so = CalibratedModel(MODEL, calibrate, train_mask=GRAPH.train_mask)(GRAPH.x, GRAPH.edge_index)
        none = CalibratedModel(MODEL, calibrate, train_mask=torch.zeros(150, dtype=torch.bool))
        torch.testing.assert_close(none(GRAPH.x, GRAPH.edge_index), nobody, atol=1e-6, rtol=0)
    torch.testing.assert_close(told_so, calibrate(observe(MODEL, GRAPH)), atol=1e-6, rtol=0)


def test_a_calibration_fitted_without_training_nodes_needs_no_train_mask():
    unmarked = Data(x=GRAPH.x, edge_index=GRAPH.edge_index, y=GRAPH.y)
    calibrate = SCAR().fit(observe(MODEL, unmarked), on=GRAPH.val_mask)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CalibratedModel(MODEL, calibrate)(GRAPH.x, GRAPH.edge_index)


@pytest.mark.slow_cases("citeseer", "pubmed")
@needs_lab
@pytest.mark.parametrize("name", ["citeseer", "cora", "pubmed"])
def test_a_served_benchmark_graph_gets_what_the_calibration_says(name, shared_data):
    """Citeseer has nodes that share features and neighbours with a training node."""
    data = graphcal.lab.load(name)
    (run,) = graphcal.lab.train(data, training=graphcal.lab.Training(epochs=20), seeds=1)
    for recipe in (graphcal.GraphScaling(), SCAR()):
        calibrate = recipe.fit(run.outputs, on=data.val_mask)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error")
            served = CalibratedModel(run.model, calibrate, train_mask=data.train_mask)(data.x, data.edge_index)
        assert float((served.exp() - calibrate(run.outputs).exp()).abs().max()) <= 1e-6


def test_the_train_mask_of_the_call_wins_over_that_of_the_constructor():
    class OfData(nn.Module):
        def forward(self, data):
            return MODEL(data.x, data.edge_index)

    calibrate = fit_pull(observe(MODEL, GRAPH), GRAPH.val_mask, ALPHA, BETA)
    other = random_graph(seed=7)
    served = CalibratedModel(OfData(), calibrate, train_mask=GRAPH.train_mask)
    torch.testing.assert_close(served(other), calibrate(observe(MODEL, other)), atol=1e-6, rtol=1e-5)
    unmarked = Data(x=other.x, edge_index=other.edge_index)
    told = calibrate(observe(MODEL, Data(x=other.x, edge_index=other.edge_index, train_mask=GRAPH.train_mask)))
    torch.testing.assert_close(served(unmarked), told, atol=1e-6, rtol=1e-5)


# ------------------------------------------------------------------------------------------------------ cut neighbourhoods


def test_the_first_numbers_of_n_id_are_those_of_the_rows_that_are_returned():
    model = Seeds()
    out = observe(model, GRAPH)
    calibrate = SCAR(ALPHA, BETA).fit(out, GRAPH.val_mask)
    order = torch.arange(150).flip(0)
    position = order.argsort()
    served = CalibratedModel(model, calibrate, context=calibrate.context_of(out))
    log_probs = served(GRAPH.x[order], position[GRAPH.edge_index], batch_size=20, n_id=order)
    torch.testing.assert_close(log_probs, calibrate(out)[order[:20]], atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="n_id names 19 nodes, but the model returned 20 rows"):
        served(GRAPH.x, GRAPH.edge_index, batch_size=20, n_id=torch.arange(19))


def test_rows_that_reach_the_last_node_with_an_edge_are_all_rows():
    """Without features the edges alone say how many nodes there are."""

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = nn.Parameter(observe(MODEL, GRAPH).logits.clone())

        def forward(self, edge_index, rows):
            return self.logits[:rows]

    calibrate = fit_pull(observe(MODEL, GRAPH), GRAPH.val_mask, ALPHA, BETA)
    served = CalibratedModel(Table(), calibrate)
    last = int(GRAPH.edge_index.max())
    with pytest.warns(UserWarning, match="neighbours are missing in this call"):
        served(GRAPH.edge_index, last)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="neighbours are missing")
        assert len(served(GRAPH.edge_index, last + 1)) == last + 1


def test_a_table_of_another_calibration_is_refused():
    calibrate = SHIPPED["scar"].calibration
    with pytest.raises(ValueError, match="context has 3 columns, but CentroidPull reads 1"):
        CalibratedModel(MODEL, calibrate, context=torch.zeros(150, 3))
    with pytest.raises(ValueError, match=r"context must be the table \(N, K\) .*; got \(150,\) of torch.float32"):
        CalibratedModel(MODEL, calibrate, context=torch.zeros(150))


# ------------------------------------------------------------------------------------------------------- modes of torch


class Normalised(nn.Module):
    """Ends in log_softmax of what a linear layer gives, which is in half precision under autocast."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = GCNConv(10, 8), nn.Linear(8, 4)

    def hidden(self, x, edge_index):
        return self.first(x, edge_index).relu()

    def logits(self, x, edge_index):
        return self.last(self.hidden(x, edge_index))

    def forward(self, x, edge_index):
        return self.logits(x, edge_index).log_softmax(-1)


SERVED = dict(SHIPPED)
if HAS_LAB:
    gats = CALIBRATORS["gats"](epochs=2).fit(observe(MODEL, GRAPH), on=GRAPH.val_mask)
    SERVED["gats"] = CalibratedModel(MODEL, gats, GRAPH.train_mask)


@pytest.mark.parametrize("name", SERVED)
def test_inference_mode_changes_nothing(name):
    with torch.no_grad():
        plain = SERVED[name](GRAPH.x, GRAPH.edge_index)
    with torch.inference_mode():
        assert torch.equal(SERVED[name](GRAPH.x, GRAPH.edge_index), plain)
        x, edges = GRAPH.x.clone(), GRAPH.edge_index.clone()
        assert x.is_inference()
        assert torch.equal(SERVED[name](x, edges), plain)
    with torch.no_grad():
        assert torch.equal(SERVED[name](x, edges), plain)


@pytest.mark.parametrize("ending", [gcn, Normalised])
@pytest.mark.parametrize("name", SERVED)
def test_under_autocast_the_calibration_computes_in_single_precision(name, ending):
    model = ending().eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = (model.logits if ending is Normalised else model)(GRAPH.x, GRAPH.edge_index)
        hidden = model.hidden if ending is Normalised else lambda x, edges: model.convs[0](x, edges).relu()
        out = Outputs(logits, GRAPH, hidden=hidden(GRAPH.x, GRAPH.edge_index))
        served = CalibratedModel(model, SERVED[name].calibration, GRAPH.train_mask)(GRAPH.x, GRAPH.edge_index)
        log_probs = SERVED[name].calibration(out)
    told = SERVED[name].calibration(out)
    assert ending is gcn or logits.dtype == torch.bfloat16
    assert served.dtype == torch.float32
    torch.testing.assert_close(served, told, atol=1e-6, rtol=0)
    assert torch.equal(log_probs, told)


def test_a_map_of_the_logits_alone_computes_in_single_precision_under_autocast():
    calibrate = CALIBRATORS["ms"]().fit(observe(MODEL, GRAPH), on=GRAPH.val_mask)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = MODEL(GRAPH.x, GRAPH.edge_index)
        served = CalibratedModel(MODEL, calibrate)(GRAPH.x, GRAPH.edge_index)
    torch.testing.assert_close(served, calibrate(Outputs(logits, GRAPH)), atol=1e-6, rtol=0)


@needs_lab
@pytest.mark.parametrize("autocast", [False, True])
def test_a_trainer_predicts_by_batches(autocast):
    """As Lightning's ``Trainer.predict`` does: a loader, inference mode, and autocast where a precision is set."""
    data = graphcal.lab.synthetic(500, seed=0)
    (run,) = graphcal.lab.train(data, "sage", graphcal.lab.Training(epochs=5), seeds=1)
    calibrate = graphcal.GraphScaling().fit(run.outputs, on=data.val_mask)

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.served = CalibratedModel(run.model, calibrate, context=calibrate.context_of(run.outputs))

        def predict_step(self, batch):
            return self.served(batch.x, batch.edge_index, n_id=batch.n_id)[: batch.batch_size]

    module, predictions = Module().eval(), torch.empty(500, data.num_classes)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        for batch in graphcal.lab.NeighborSampler(data, (-1, -1), 100):
            predictions[batch.n_id[: batch.batch_size]] = module.predict_step(batch)
    assert predictions.isfinite().all()
    if not autocast:
        torch.testing.assert_close(predictions, calibrate(run.outputs), atol=1e-4, rtol=1e-3)


def test_a_model_left_in_training_mode_answers_without_dropout_in_every_thread():
    """The second call is in the model when the first one leaves it."""
    entered, first_is_done = threading.Event(), threading.Event()

    class Slow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = gcn(dropout=0.9)

        def forward(self, x, edge_index, wait=False):
            if wait:
                entered.set()
                assert first_is_done.wait(10)
            else:
                assert entered.wait(10)
            return self.inner(x, edge_index)

    model = Slow()
    served = CalibratedModel(model, TemperatureScaling().fit(observe(gcn(), GRAPH), on=GRAPH.val_mask))
    plain = CalibratedModel(gcn(), served.calibration)(GRAPH.x, GRAPH.edge_index)
    answers = {}

    def call(wait: bool) -> None:
        answers[wait] = served(GRAPH.x, GRAPH.edge_index, wait=wait)
        if not wait:
            first_is_done.set()

    model.train()
    second = threading.Thread(target=call, args=(True,))
    first = threading.Thread(target=call, args=(False,))
    first.start()
    second.start()
    first.join()
    second.join()
    assert all(torch.equal(answers[wait], plain) for wait in (False, True))
    assert all(module.training for module in model.modules())
