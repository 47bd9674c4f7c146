"""Groups of nodes: right counts, small ones merged or flagged, the worst one named."""

import pytest
import torch

from conftest import random_graph
from graphcal.graphs import structure
from graphcal.metrics import changed_nodes, measure_slices, score, worst_slice
from graphcal.metrics.slices import cut_nodes, merged


@pytest.fixture(scope="module")
def graph():
    return random_graph(nodes=1200, classes=4, train=60, val=100)


def confident(y, conf, right_share, generator):
    """Log-probabilities with this confidence in a class that is right in this share of nodes."""
    N, C = len(y), int(y.max()) + 1
    right = torch.rand(N, generator=generator) < right_share
    pred = torch.where(right, y, (y + 1) % C)
    probs = ((1 - conf) / (C - 1))[:, None].expand(N, C).clone()
    return probs.scatter_(1, pred[:, None], conf[:, None]).log()


def test_every_grouping_covers_every_node_once(graph):
    g = torch.Generator().manual_seed(0)
    log_probs = confident(graph.y, torch.full((1200,), 0.8, dtype=torch.float64), 0.8, g)
    slices = measure_slices(log_probs, graph.y, graph.test_mask, structure(graph))
    for by in {s.by for s in slices}:
        assert sum(s.nodes for s in slices if s.by == by) == int(graph.test_mask.sum()), by


def test_figures_of_a_group_by_hand(graph):
    g = torch.Generator().manual_seed(0)
    log_probs = confident(graph.y, torch.full((1200,), 0.8, dtype=torch.float64), 0.6, g)
    facts = structure(graph)
    two = next(s for s in measure_slices(log_probs, graph.y, graph.test_mask, facts) if s.group == "2 hops")
    group = graph.test_mask & (facts.hops == 2)
    right = float((log_probs.argmax(1) == graph.y)[group].double().mean())
    assert two.nodes == int(group.sum())
    assert (two.accuracy, two.confidence) == (pytest.approx(right), pytest.approx(0.8))
    assert two.signed_gap == pytest.approx(right - 0.8)
    assert two.signed_gap_low < two.signed_gap < two.signed_gap_high


def test_the_group_that_is_off_is_named(graph):
    g, facts = torch.Generator().manual_seed(1), structure(graph)
    far = facts.hops == 2
    log_probs = confident(graph.y, torch.where(far, 0.9, 0.7).double(), torch.where(far, 0.5, 0.7), g)
    named = worst_slice(measure_slices(log_probs, graph.y, graph.test_mask, facts))
    assert (named.by, named.group) == ("distance from training", "2 hops")
    assert named.signed_gap < -0.3


def test_a_calibrated_model_has_no_group_far_off(graph):
    g, facts = torch.Generator().manual_seed(2), structure(graph)
    conf = 0.5 + 0.4 * torch.rand(1200, generator=g, dtype=torch.float64)
    slices = measure_slices(confident(graph.y, conf, conf, g), graph.y, graph.test_mask, facts)
    ordered = [s for s in slices if s.by in ("degree", "distance from training")]
    assert all(max(s.signed_gap_low, -s.signed_gap_high) < 0.03 for s in ordered)  # nothing is certainly off


def test_right_and_wrong_are_never_the_worst(graph):
    g, facts = torch.Generator().manual_seed(2), structure(graph)
    conf = torch.full((1200,), 0.7, dtype=torch.float64)
    slices = measure_slices(confident(graph.y, conf, conf, g), graph.y, graph.test_mask, facts)
    assert {s.group for s in slices if s.by == "outcome"} == {"right", "wrong"}
    named = worst_slice(slices)
    assert named is None or named.by != "outcome"


def test_small_groups_along_an_order_are_merged():
    group = torch.tensor([0] * 5 + [1] * 40 + [2] * 3 + [3] * 50 + [4] * 2)
    new, names = merged(group, ["a", "b", "c", "d", "apart"], ordered=4, small=30)
    assert names == ["a to b", "c to d", "apart"]
    assert torch.bincount(new).tolist() == [45, 53, 2]


def test_a_small_last_group_joins_the_one_before():
    new, names = merged(torch.tensor([0] * 40 + [1] * 40 + [2] * 3), ["a", "b", "c"], ordered=3, small=30)
    assert names == ["a", "b to c"]
    assert torch.bincount(new).tolist() == [40, 43]


def test_small_classes_are_flagged():
    graph = random_graph(nodes=200, classes=4, train=40, val=100)
    g = torch.Generator().manual_seed(0)
    conf = torch.full((200,), 0.8, dtype=torch.float64)
    slices = measure_slices(confident(graph.y, conf, 0.8, g), graph.y, graph.test_mask, structure(graph))
    assert all(s.small for s in slices if s.by == "predicted class")
    assert all(s.nodes < 30 for s in slices if s.small)


def test_seeds_are_pooled_but_nodes_count_once(graph):
    g, facts = torch.Generator().manual_seed(0), structure(graph)
    conf = torch.full((1200,), 0.8, dtype=torch.float64)
    log_probs = confident(graph.y, conf, 0.7, g)
    one, five = (measure_slices(lp, graph.y, graph.test_mask, facts) for lp in (log_probs, [log_probs] * 5))
    for a, b in zip(one, five):
        assert (a.group, a.nodes) == (b.group, b.nodes)
        assert (b.signed_gap, b.signed_gap_low, b.signed_gap_high) == pytest.approx(
            (a.signed_gap, a.signed_gap_low, a.signed_gap_high)
        )


def test_changed_nodes_are_those_that_moved_most(graph):
    g, facts = torch.Generator().manual_seed(0), structure(graph)
    conf = 0.5 + 0.4 * torch.rand(1200, generator=g, dtype=torch.float64)
    before = confident(graph.y, conf, 0.7, torch.Generator().manual_seed(1))
    moved = conf.clone()
    moved[graph.test_mask.nonzero()[:3, 0]] = torch.tensor([0.99, 0.98, 0.97], dtype=torch.float64)
    after = confident(graph.y, moved, 0.7, torch.Generator().manual_seed(1))
    changed = changed_nodes([after], [before], graph.y, graph.test_mask, facts)
    assert {n.node for n in changed} == set(graph.test_mask.nonzero()[:3, 0].tolist())
    steps = [abs(n.after - n.before) for n in changed]
    assert steps == sorted(steps, reverse=True)
    one = changed[0]
    assert (one.degree, one.hops) == (int(facts.degree[one.node]), int(facts.hops[one.node]))
    assert changed_nodes([before], [before], graph.y, graph.test_mask, facts) == []


@pytest.mark.slow
def test_a_calibrated_model_has_no_worst_group_in_19_cases_of_20(graph):
    """Among degrees and distances, of which these predictions know nothing. Uncorrected, one would be named in most cases."""
    g, facts, named, uncorrected = torch.Generator().manual_seed(5), structure(graph), 0, 0
    for _ in range(150):
        conf = 0.5 + 0.4 * torch.rand(1200, generator=g, dtype=torch.float64)
        slices = measure_slices(confident(graph.y, conf, conf, g), graph.y, graph.test_mask, facts, bins=1)
        slices = [s for s in slices if s.by in ("degree", "distance from training")]
        named += worst_slice(slices) is not None
        uncorrected += any(s.p <= 0.05 for s in slices)
    assert named / 150 <= 0.09
    assert uncorrected / 150 > 0.25


def test_the_worst_slice_of_the_scores_is_that_of_the_groups(graph):
    g, facts = torch.Generator().manual_seed(1), structure(graph)
    far, test = facts.hops == 2, graph.test_mask
    log_probs = confident(graph.y, torch.where(far, 0.9, 0.7).double(), torch.where(far, 0.5, 0.7), g)
    cuts = cut_nodes(log_probs, graph.y, test, facts)
    slices = measure_slices(log_probs, graph.y, test, facts)
    largest = max(abs(s.corrected_gap) for s in slices if not s.small and s.by != "outcome")
    assert score(log_probs[test], graph.y[test], cuts=cuts).worst_slice == pytest.approx(largest)
    assert abs(worst_slice(slices).corrected_gap) == pytest.approx(largest)
    assert score(log_probs[test], graph.y[test]).worst_slice < largest  # without the graph the far nodes are not seen


def test_slices_call_classes_by_their_names(graph):
    named = graph.clone()
    named.class_names = ["cat", "dog", "cow", "hen"]
    log_probs = confident(graph.y, torch.full((1200,), 0.8, dtype=torch.float64), 0.8, torch.Generator().manual_seed(0))
    slices = measure_slices(log_probs, graph.y, graph.test_mask, structure(named))
    groups = {s.group for s in slices if s.by == "predicted class"}
    assert groups == {"class cat", "class dog", "class cow", "class hen"}
    named.class_names = list("abcd")  # facts are remembered, names are not
    slices = measure_slices(log_probs, graph.y, graph.test_mask, structure(named))
    assert "class a" in {s.group for s in slices}


def test_without_training_nodes_there_is_no_distance_from_them(graph):
    alone = graph.clone()
    alone.train_mask = torch.zeros_like(graph.train_mask)
    log_probs = torch.full((1200, 4), 0.25, dtype=torch.float64).log()
    by = {s.by for s in measure_slices(log_probs, graph.y, graph.test_mask, structure(alone))}
    assert "distance from training" not in by
    assert "degree" in by
