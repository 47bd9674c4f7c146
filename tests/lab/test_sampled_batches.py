import warnings

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn.models import GraphSAGE

import graphcal
from graphcal.lab.training import NeighborSampler
from graphcal.serving.calibrated_model import is_sampled, rows_of


def nll(log_probs, y):
    return float(torch.nn.functional.nll_loss(log_probs, y))


@pytest.fixture(scope="module")
def trained():
    """A GraphSAGE on a graph with a hundred nodes without edges."""
    data = graphcal.lab.synthetic(6000, degree=14, homophily=0.7, feature_signal=0.25, seed=2)
    alone = data.test_mask.nonzero().flatten()[:100]
    kept = ~torch.isin(data.edge_index, alone).any(0)
    data.edge_index = data.edge_index[:, kept]
    training = graphcal.lab.Training(epochs=80, hidden_channels=32, weight_decay=0.0)
    (run,) = graphcal.lab.train(data, "sage", training, seeds=1)
    return data, run, alone


def served(model, data, fanouts, nodes):
    """What a calibrated model says of these nodes, batch by batch."""
    log_probs = torch.empty(len(nodes), int(data.num_classes))
    for batch in NeighborSampler(data, fanouts, 500, nodes):
        seeds = batch.batch_size
        with torch.no_grad():
            log_probs[batch.input_id] = model(batch.x, batch.edge_index, n_id=batch.n_id)[:seeds]
    return log_probs


@pytest.mark.parametrize("fanouts", [(5, 5), (10, 10)])
def test_served_by_samples_graph_scaling_is_not_worse_than_temperature_scaling(trained, fanouts):
    data, run, _ = trained
    nodes = data.test_mask.nonzero().flatten()[:2000]
    ts, ours = (graphcal.CALIBRATORS[name]().fit(run.outputs, on=data.val_mask) for name in ("ts", "graph-scaling"))
    by_ts = nll(served(graphcal.CalibratedModel(run.model, ts), data, fanouts, nodes), data.y[nodes])
    table = ours.context_of(run.outputs)
    with_table = nll(
        served(graphcal.CalibratedModel(run.model, ours, context=table), data, fanouts, nodes), data.y[nodes]
    )
    with pytest.warns(UserWarning, match="it gets the plain form"):
        plain = nll(served(graphcal.CalibratedModel(run.model, ours), data, fanouts, nodes), data.y[nodes])
    assert with_table < by_ts - 0.01
    assert plain <= by_ts + 1e-3


def test_nodes_without_edges_are_not_worse_than_under_temperature_scaling(trained):
    data, run, alone = trained
    ts, ours = (graphcal.CALIBRATORS[name]().fit(run.outputs, on=data.val_mask) for name in ("ts", "graph-scaling"))
    by_ts = nll(ts(run.outputs)[alone], data.y[alone])
    assert nll(ours(run.outputs)[alone], data.y[alone]) <= by_ts + 1e-3
    calibrated = graphcal.CalibratedModel(run.model, ours, context=ours.context_of(run.outputs))
    assert nll(served(calibrated, data, (5, 5), alone), data.y[alone]) <= by_ts + 1e-3


def test_with_whole_neighbourhoods_a_batch_says_what_the_whole_graph_says(trained):
    data, run, _ = trained
    ours = graphcal.CALIBRATORS["graph-scaling"]().fit(run.outputs, on=data.val_mask)
    calibrated = graphcal.CalibratedModel(run.model, ours, context=ours.context_of(run.outputs))
    nodes = torch.arange(300)
    torch.testing.assert_close(served(calibrated, data, (-1, -1), nodes), ours(run.outputs)[:300], rtol=1e-3, atol=1e-4)


def test_a_batch_is_recognised_as_a_data_by_its_edges_and_by_n_id(trained):
    data, run, _ = trained
    scar = graphcal.SCAR().fit(run.outputs, on=data.val_mask)
    table = scar.context_of(run.outputs)
    batch = next(iter(NeighborSampler(data, (3, 3), 50)))
    assert is_sampled(batch, {})
    assert is_sampled(Data(edge_index=batch.edge_index, num_nodes=batch.num_nodes), {"undirected": True})
    assert not is_sampled(Data(edge_index=batch.edge_index, num_nodes=batch.num_nodes), {"undirected": False})
    assert not is_sampled(data, {"undirected": True})
    calibrated, without = (
        graphcal.CalibratedModel(run.model, scar, context=table),
        graphcal.CalibratedModel(run.model, scar),
    )
    logits = run.model(batch.x, batch.edge_index)
    plain = scar.log_probs(logits, torch.full((len(logits), 1), torch.nan))
    with pytest.warns(UserWarning, match="give CalibratedModel n_id="):  # by its edges
        torch.testing.assert_close(calibrated(batch.x, batch.edge_index), plain)
    with pytest.warns(UserWarning, match="give CalibratedModel context="):
        torch.testing.assert_close(without(batch.x, batch.edge_index, n_id=batch.n_id), plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_probs = calibrated(batch.x, batch.edge_index, n_id=batch.n_id)
    torch.testing.assert_close(log_probs, scar.log_probs(logits, table[batch.n_id]))


class TakesData(GraphSAGE):
    def forward(self, data):
        return super().forward(data.x, data.edge_index)


def test_a_model_that_takes_the_batch_itself(trained):
    data, _, _ = trained
    torch.manual_seed(0)
    model = TakesData(data.num_features, 16, 2, data.num_classes)
    out = graphcal.observe(model, data)
    scar = graphcal.SCAR().fit(out, on=data.val_mask)
    calibrated = graphcal.CalibratedModel(model, scar, context=scar.context_of(out))
    batch = next(iter(NeighborSampler(data, (3, 3), 50)))
    with torch.no_grad():
        logits = model(batch)
        torch.testing.assert_close(calibrated(batch), scar.log_probs(logits, scar.context_of(out)[batch.n_id]))


def test_a_calibrator_that_needs_whole_neighbourhoods_refuses_a_batch(trained):
    data, run, _ = trained
    gats = graphcal.CALIBRATORS["gats"](epochs=2).fit(run.outputs, on=data.val_mask)
    batch = next(iter(NeighborSampler(data, (3, 3), 50)))
    with pytest.raises(ValueError, match="needs the logits and the edges of the whole graph, but this is a sampled"):
        graphcal.CalibratedModel(run.model, gats)(batch.x, batch.edge_index, n_id=batch.n_id)


def test_a_node_that_came_after_the_table_has_no_row():
    rows = rows_of(torch.tensor([[1.0], [2.0]]), torch.tensor([1, 5, 0]))
    assert rows[[0, 2], 0].tolist() == [2.0, 1.0]
    assert rows[1].isnan().all()


def test_the_node_after_the_last_row_has_no_row():
    table = torch.tensor([[1.0], [2.0]])
    assert rows_of(table, torch.tensor([1])).tolist() == [[2.0]]
    assert rows_of(table, torch.tensor([2])).isnan().all()
    assert rows_of(table, torch.tensor([], dtype=torch.long)).shape == (0, 1)
    assert rows_of(table, torch.tensor([1, 0], dtype=torch.int32)).tolist() == [[2.0], [1.0]]


@pytest.mark.parametrize(
    ("n_id", "message"),
    [
        ([-1], "n_id must be node numbers from 0; got -1"),
        ([1, -5], "n_id must be node numbers from 0; got -5"),
        ([0.0], r"n_id must be node numbers \(n,\), integers; got \(1,\) of torch.float32"),
        ([True, False], "of torch.bool"),
        ([[0]], r"got \(1, 1\) of torch.int64"),
    ],
)
def test_what_is_not_a_node_number_is_refused(n_id, message):
    with pytest.raises(ValueError, match=message):
        rows_of(torch.tensor([[1.0], [2.0]]), torch.tensor(n_id))


def test_a_batch_of_all_nodes_is_no_sample():
    """``batch_size`` below the number of nodes says that some are there for others."""
    graph = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    for size, sampled in ((1, True), (2, False)):
        graph.batch_size = size
        assert is_sampled(graph, {}) == sampled
