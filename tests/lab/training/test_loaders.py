import doctest

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn.models import GraphSAGE

import graphcal as gc
from graphcal.graphs import sparse_csr
from graphcal.lab.training import NeighborSampler, Sampling, loaders


def test_examples_say_what_happens():
    found = doctest.testmod(loaders)
    assert found.attempted > 0
    assert found.failed == 0


def test_a_pyg_model_on_whole_neighbourhoods_gives_the_outputs_of_the_whole_graph():
    data = gc.lab.synthetic(600, seed=0)
    torch.manual_seed(0)
    model = GraphSAGE(data.num_features, 16, 2, data.num_classes).eval()
    with torch.no_grad():
        whole = model(data.x, data.edge_index)
        for batch in NeighborSampler(data, (-1, -1), batch_size=100, shuffle=True):
            seeds = batch.n_id[: batch.batch_size]
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            torch.testing.assert_close(out, whole[seeds], rtol=1e-4, atol=1e-5)


def test_batches_carry_their_part_of_everything():
    data = gc.lab.synthetic(500, seed=1)
    data.edge_weight = torch.arange(data.num_edges).float()
    loader = NeighborSampler(data, (4, 2), batch_size=64, input_nodes=data.test_mask)
    assert len(loader) == len(list(loader)) == -(-int(data.test_mask.sum()) // 64)
    batch = next(iter(loader))
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.y, data.y[batch.n_id])
    assert torch.equal(batch.test_mask, data.test_mask[batch.n_id])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert torch.equal(batch.edge_weight, batch.e_id.float())
    assert torch.equal(loader.input_nodes[batch.input_id], batch.n_id[: batch.batch_size])
    assert batch.num_classes == data.num_classes


def test_every_input_node_is_a_seed_once_in_a_pass_and_passes_differ():
    data = gc.lab.synthetic(500, degree=20, seed=1)
    loader = NeighborSampler(data, (3,), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(4))
    first, second = (list(loader) for _ in range(2))
    for batches in (first, second):
        seeds = torch.cat([b.n_id[: b.batch_size] for b in batches])
        assert torch.equal(seeds.sort().values, torch.arange(500))
    assert not torch.equal(first[0].n_id, second[0].n_id)
    again = NeighborSampler(data, (3,), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(4))
    assert torch.equal(next(iter(again)).e_id, first[0].e_id)


def test_sparse_features_come_as_plain_rows():
    data = gc.lab.synthetic(400, seed=2)
    sparse = data.clone()
    with sparse_csr():
        sparse.x = data.x.to_sparse_csr()
    batch, plain = next(iter(NeighborSampler(sparse, (3,)))), next(iter(NeighborSampler(data, (3,))))
    assert torch.equal(batch.x, plain.x)


def test_what_cannot_be_sampled_is_refused():
    data = gc.lab.synthetic(400, seed=0)
    with pytest.raises(ValueError, match="0 is neither a number of neighbours nor -1"):
        Sampling((5, 0))
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        Sampling((5,), batch_size=0)
    with pytest.raises(ValueError, match="input_nodes are 3..400, but the graph has nodes 0..399"):
        NeighborSampler(data, input_nodes=torch.tensor([3, 400]))
    with pytest.raises(ValueError, match="edge_index names nodes"):
        NeighborSampler(Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [2]]), num_nodes=2))
