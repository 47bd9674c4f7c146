import doctest

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.nn.models import GraphSAGE

import graphcal
from graphcal.graphs import sparse_csr
from graphcal.lab.training import NeighborSampler, loaders
from graphcal.lab.training.loaders import draw_distinct, draw_entries, neighbours_by_target, sample


def test_examples_say_what_happens():
    result = doctest.testmod(loaders)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_pyg_model_on_whole_neighbourhoods_gives_the_outputs_of_the_whole_graph():
    data = graphcal.lab.synthetic(600, seed=0)
    torch.manual_seed(0)
    model = GraphSAGE(data.num_features, 16, 2, data.num_classes).eval()
    with torch.no_grad():
        whole = model(data.x, data.edge_index)
        for batch in NeighborSampler(data, (-1, -1), batch_size=100, shuffle=True):
            seeds = batch.n_id[: batch.batch_size]
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            torch.testing.assert_close(out, whole[seeds], rtol=1e-4, atol=1e-5)


def test_batches_carry_their_part_of_everything():
    data = graphcal.lab.synthetic(500, seed=1)
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
    data = graphcal.lab.synthetic(500, degree=20, seed=1)
    loader = NeighborSampler(data, (3,), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(4))
    first, second = (list(loader) for _ in range(2))
    for batches in (first, second):
        seeds = torch.cat([b.n_id[: b.batch_size] for b in batches])
        assert torch.equal(seeds.sort().values, torch.arange(500))
    assert not torch.equal(first[0].n_id, second[0].n_id)
    again = NeighborSampler(data, (3,), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(4))
    assert torch.equal(next(iter(again)).e_id, first[0].e_id)


def test_sparse_features_come_as_plain_rows():
    data = graphcal.lab.synthetic(400, seed=2)
    sparse = data.clone()
    with sparse_csr():
        sparse.x = data.x.to_sparse_csr()
    batch, plain = next(iter(NeighborSampler(sparse, (3,)))), next(iter(NeighborSampler(data, (3,))))
    assert torch.equal(batch.x, plain.x)


def test_what_cannot_be_sampled_is_refused():
    data = graphcal.lab.synthetic(400, seed=0)
    with pytest.raises(ValueError, match="0 is neither a number of neighbours nor -1"):
        NeighborSampler(data, (5, 0))
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        NeighborSampler(data, (5,), batch_size=0)
    with pytest.raises(ValueError, match="input_nodes are 3..400, but the graph has nodes 0..399"):
        NeighborSampler(data, input_nodes=torch.tensor([3, 400]))
    with pytest.raises(ValueError, match="edge_index names nodes"):
        NeighborSampler(Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [2]]), num_nodes=2))


def random_graph(nodes, edges, seed):
    return torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(seed))


def edges_read(graph, drawn):
    """The sampled edges as numbers of the whole graph, sorted."""
    pairs = torch.stack([drawn.nodes[drawn.columns], drawn.nodes[drawn.rows]])
    return pairs[:, torch.argsort(pairs[0] + graph.num_nodes * pairs[1])]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 60), st.integers(0, 300), st.integers(0, 10**6), st.lists(st.integers(1, 6), min_size=1, max_size=3)
)
def test_a_sample_is_a_part_of_the_graph(nodes, edges, seed, fanouts):
    edge_index = random_graph(nodes, edges, seed)
    graph, order = neighbours_by_target(edge_index, nodes)
    seeds = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))[:3]
    drawn = sample(graph, seeds, fanouts, key=seed)
    assert torch.equal(drawn.nodes[: len(seeds)], seeds)
    assert len(drawn.nodes.unique()) == len(drawn.nodes) == drawn.sizes[-1]
    # every entry is the edge it says it is, and no edge is read twice
    assert torch.equal(drawn.nodes[drawn.columns], edge_index[0, order[drawn.entries]])
    assert torch.equal(drawn.nodes[drawn.rows], edge_index[1, order[drawn.entries]])
    assert len(drawn.entries.unique()) == len(drawn.entries)
    # each node reads min(degree, fan-out of the hop it was met in) of its neighbours
    degree = torch.bincount(edge_index[1], minlength=nodes)[drawn.nodes[: len(drawn.counts)]]
    ends = (0, *drawn.sizes[:-1])
    for fanout, begin, end in zip(fanouts, ends, ends[1:]):
        assert torch.equal(drawn.counts[begin:end], degree[begin:end].clamp(max=fanout))
    # a hop reads only what is met by the next
    for size, next_size in zip(drawn.sizes, drawn.sizes[1:]):
        read = drawn.columns[: int(drawn.counts[:size].sum())]
        assert not len(read) or int(read.max()) < next_size


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 40), st.integers(0, 200), st.integers(0, 10**6))
def test_without_a_limit_all_neighbours_of_all_hops_are_read(nodes, edges, seed):
    edge_index = random_graph(nodes, edges, seed)
    graph, _ = neighbours_by_target(edge_index, nodes)
    drawn = sample(graph, torch.tensor([0, 1]), [-1, -1], key=0)
    reach = {0, 1}
    read = []
    for _ in range(2):
        read = [(int(a), int(b)) for a, b in edge_index.T if int(b) in reach]
        reach |= {a for a, _ in read}
    assert set(drawn.nodes.tolist()) == reach
    assert sorted((int(a), int(b)) for a, b in edges_read(graph, drawn).T) == sorted(read)


def test_what_a_node_reads_does_not_depend_on_its_batch():
    graph, _ = neighbours_by_target(random_graph(50, 2000, seed=1), 50)
    alone = draw_entries(graph, torch.tensor([7]), 5, key=3)[1]
    together = draw_entries(graph, torch.tensor([4, 7, 9]), 5, key=3)[1]
    assert torch.equal(together[5:10], alone)
    assert not torch.equal(draw_entries(graph, torch.tensor([7]), 5, key=4)[1], alone)


def test_every_neighbour_is_as_likely():
    degree, count, draws = 7, 3, 20_000
    taken = draw_distinct(torch.full((draws,), degree), torch.arange(draws), count, key=11)
    assert (taken.sort(1).values.diff(dim=1) > 0).all()  # different
    assert int(taken.min()) == 0
    assert int(taken.max()) == degree - 1
    shares = torch.bincount(taken.flatten(), minlength=degree) / draws
    assert (shares - count / degree).abs().max() < 0.015  # four standard errors
    pairs = ((taken == 0).any(1) & (taken == 6).any(1)).double().mean()
    assert abs(float(pairs) - count * (count - 1) / (degree * (degree - 1))) < 0.015
