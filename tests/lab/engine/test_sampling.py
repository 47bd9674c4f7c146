import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcal.lab.engine.sampling import draw_distinct, draw_entries, neighbours_by_target, sample


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
