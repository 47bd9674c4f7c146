"""The probability map: where nodes lie, who is sampled, and that it fits."""

import numpy as np
import pytest
import torch

from conftest import random_graph
from graphcal.graphs import structure
from graphcal.reports.maps import NONE, corners, node_map, places, sampled
from sample_results import unpacked_map


def log_probs(graph, scale, classes=4):
    g = torch.Generator().manual_seed(0)
    return (
        scale * (torch.nn.functional.one_hot(graph.y, classes) + torch.randn(graph.num_nodes, classes, generator=g))
    ).log_softmax(1)


def test_a_sure_node_is_at_its_corner_and_a_torn_one_in_the_middle():
    sure = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]).log()
    np.testing.assert_allclose(places(sure), [corners(4)[1], [0, 0]], atol=1e-6)


def test_what_is_packed_comes_back():
    graph = random_graph(nodes=300)
    before, after = log_probs(graph, 1.0), log_probs(graph, 2.0)
    record = node_map(before, after, graph)
    nodes = unpacked_map(record)
    assert record["nodes"] == record["of"] == 300
    assert nodes["node"].tolist() == list(range(300))
    np.testing.assert_allclose(nodes["x1"] / NONE * 2 - 1, places(after)[:, 0], atol=1e-4)
    np.testing.assert_allclose(nodes["conf0"] / 1000, before.exp().max(1).values, atol=6e-4)
    assert nodes["label"].tolist() == graph.y.tolist()
    assert nodes["pred1"].tolist() == after.argmax(1).tolist()
    assert (nodes["part"] == 2).tolist() == graph.val_mask.tolist()
    facts = structure(graph)
    assert nodes["degree"].tolist() == facts.degree.tolist()
    row, col = facts.edge_index
    for node in (0, 17, 299):
        shown = {int(nodes[f"neighbour{k}"][node]) for k in range(4)} - {NONE}
        assert shown <= set(col[row == node].tolist())
        assert len(shown) == min(4, int(facts.degree[node]))


@pytest.mark.slow
def test_large_graphs_are_sampled_by_stratum_and_stay_small():
    strata = np.repeat([0, 1, 2], [50_000, 9_000, 3])
    sample = sampled(strata, 20_000)
    assert len(sample) <= 20_000
    shares = np.bincount(strata[sample]) / len(sample)
    assert shares[:2] == pytest.approx([50 / 59, 9 / 59], abs=0.01)
    assert (strata[sample] == 2).any()
    assert len(set(sample.tolist())) == len(sample)
    graph = random_graph(nodes=30_000)
    record = node_map(log_probs(graph, 1.0), log_probs(graph, 2.0), graph)
    assert record["of"] == 30_000
    assert 5_000 < record["nodes"] <= 20_000
    assert len(record["data"]) < 600_000
