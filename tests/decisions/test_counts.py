"""Counts in sets: the formula by hand, coverage where the model is true, labelled nodes, files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy import stats
from torch_geometric.data import Data

import graphcal
from graphcal.decisions.counts import EventModel, Moments, count, counts_of, fitted_here, overview, set_matrix
from graphcal.residuals import STRENGTHS, covariances, evenly, node_groups, shared


@pytest.fixture(scope="module")
def out():
    return graphcal.example()


@pytest.fixture(scope="module")
def calibration(out):
    return graphcal.GraphScaling(sets=True).fit(out, on=out.graph.val_mask)


def model_of(prob, refits, groups, tau, labelled, y, counted=None):
    """An event model whose labelled nodes have held-out probabilities equal to ``prob``."""
    at, p = groups[:, labelled], prob[labelled]
    together = shared(torch.from_numpy(at), torch.from_numpy(tau))
    solved = list(covariances(torch.from_numpy(y - p), torch.from_numpy(p * (1 - p)), together))
    weights = torch.stack([w for *_, w in solved]).softmax(0)
    strengths = [(c, f.numpy(), a.numpy(), float(w)) for (c, f, a, _), w in zip(solved, weights)]
    counted = np.isin(np.arange(len(prob)), labelled) if counted is None else counted
    hit = np.zeros(len(prob), bool)
    hit[labelled] = y > 0
    cells = np.bincount(at[-1], minlength=groups[-1].max() + 1)
    return EventModel(prob, refits, groups, tau, counted, hit & counted, p, y - p, at, strengths, cells)


def test_moments_equal_the_dense_formula():
    rng = np.random.default_rng(0)
    n, tau = 12, np.array([0.8, 0.3])
    prob = rng.uniform(0.1, 0.9, n)
    refits = np.clip(prob[:, None] + rng.normal(0, 0.05, (n, 10)), 0.01, 0.99)
    groups = np.stack([np.arange(n) // 3, np.arange(n) // 6])
    labelled, y = np.array([0, 4, 7, 10]), np.array([1.0, 0.0, 1.0, 0.0])
    members = [0, 1, 2, 3, 5, 8, 11]  # node 0 is labelled and hit
    got = model_of(prob, refits, groups, tau, labelled, y).moments(set_matrix([members], n))

    v, S = prob * (1 - prob), [i for i in members if i not in labelled]
    together = sum(t * (g[:, None] == g[None, :]) for t, g in zip(tau, groups))
    means, brackets, weights = [], [], []
    for c in (0.1, 0.25, 0.5, 1, 2, 4):
        C = c * together * np.outer(v, v)
        C = C[np.ix_(labelled, labelled)]
        for a, j in enumerate(labelled):
            C[a, a] = max(v[j], c * v[j] ** 2 * tau.sum() + 0.1 * v[j])
        cross = np.array([sum(c * together[i, j] * v[i] * v[j] for i in S) for j in labelled])
        prior = sum(c * together[i, j] * v[i] * v[j] for i in S for j in S) - c * tau.sum() * sum(v[i] ** 2 for i in S)
        means.append(sum(prob[S]) + cross @ np.linalg.solve(C, y - prob[labelled]))
        brackets.append(prior - cross @ np.linalg.solve(C, cross))
        density = stats.multivariate_normal(np.zeros(4), C).pdf(y - prob[labelled])
        weights.append(np.exp(-(np.log(c) ** 2) / 0.98) * density)
    w = np.array(weights) / sum(weights)
    mean = w @ means
    assert got.mean[0] == pytest.approx(mean)
    assert got.chance[0] == pytest.approx(sum(v[S]))
    assert min(brackets) < 0 < max(brackets)
    assert got.neighbourhood[0] == pytest.approx(
        4 / 3 * (w @ np.maximum(brackets, 0)) + w @ (np.array(means) - mean) ** 2
    )
    assert got.fit[0] == pytest.approx(4 / 3 * 9 * refits[S].sum(0).var())
    assert got.resolution[0] == pytest.approx(np.hypot(4 / 3, 2 / 3))  # 4 and 2 of the set, 2 labelled nodes per group
    assert (got.constant[0], got.labelled[0], got.size[0]) == (1, 1, 6)


def test_interval_is_that_of_the_beta_distribution_rounded_outwards():
    n, mean, variance = 40.0, 8.0, 20.0
    moments = Moments(*(np.array([x]) for x in (n, 3.0, 5.0, mean, 12.0, 5.0, 3.0, 0.0)))
    size = mean / n * (1 - mean / n) / (variance / n**2) - 1
    beta = stats.beta(mean / n * size, (1 - mean / n) * size, scale=n)
    assert beta.var() == pytest.approx(variance)
    (one,) = counts_of(moments, 0.9)
    assert one.low == 3 + np.floor(beta.ppf(0.05) - 0.5)
    assert one.high == 3 + np.ceil(beta.ppf(0.95) + 0.5)
    assert (one.expected, one.nodes, one.labelled) == (11.0, 45, 5)
    for events in (0, 7, 25):
        expected = np.log(beta.cdf(events + 0.5) - beta.cdf(events - 0.5))
        assert moments.log_likelihood(np.array([events]))[0] == pytest.approx(expected)
    total = sum(np.exp(moments.log_likelihood(np.array([k]))[0]) for k in range(41))
    assert total == pytest.approx(1)


def test_interval_is_never_narrower_than_what_few_labels_tell():
    moments = Moments(*(np.array([x]) for x in (1000.0, 0.0, 0.0, 2.0, 2.0, 1.0, 1.0, 40.0)))
    (one,) = counts_of(moments, 0.95)
    assert (one.low, one.high) == (0, np.ceil(2 + stats.norm.ppf(0.975) * 40 + 0.5))
    assert (one.expected, one.chance + one.neighbourhood + one.fit) == (2.0, 4.0)


@pytest.mark.slow
def test_rare_members_of_predicted_classes_are_covered():
    """Some nodes of class 0 look like those of another class, and 100 labels hold few of them or none."""
    covered = np.zeros((20, 2))
    for seed in range(20):
        out, draw = graphcal.example(2000, seed=seed), torch.Generator().manual_seed(seed)
        data = out.graph
        data.y = torch.where(torch.rand(2000, generator=draw) < 0.06, 0, data.y)
        labelled = data.val_mask.nonzero().flatten()
        few = labelled[torch.randperm(len(labelled), generator=draw)[:100]]
        out = graphcal.Outputs(3 * out.logits, data)
        fitted = graphcal.GraphScaling(sets=True).fit(out, on=few)
        pred = fitted(out).argmax(1)
        sets = [((pred == k) & data.test_mask).nonzero().flatten() for k in range(1, 5)]
        moments = EventModel.of(fitted, out, 0).moments(set_matrix(sets, 2000))
        truth = np.array([int((data.y[one] == 0).sum()) for one in sets])
        for a, one in enumerate((moments, replace(moments, resolution=0 * moments.size))):
            low, high = one.interval(0.95)
            covered[seed, a] = ((low <= truth) & (truth <= high)).mean()
    rule, without = covered.mean(0)
    assert rule >= 0.95
    assert without < 0.93


def test_variance_is_cut_and_its_parts_with_it():
    moments = Moments(*(np.array([x]) for x in (2.0, 0.0, 0.0, 1.0, 0.5, 3.0, 0.5, 0.0)))
    (one,) = counts_of(moments, 0.95)
    assert one.chance + one.neighbourhood + one.fit == pytest.approx(0.9)
    assert one.neighbourhood == pytest.approx(0.9 * 3 / 4)
    assert (one.low, one.high) == (0, 2)


def simulated_coverage(strength: float, draws: int = 60) -> tuple[float, float]:
    """Shares of communities covered by the rule and by independence, events drawn from the model of that strength."""
    rng = np.random.default_rng(1)
    n, tau, covered = 1500, np.array([1.0, 0.5]), np.zeros((draws, 2))
    groups = np.stack([np.arange(n) // 25, np.arange(n) // 100])
    sets = sp.csr_matrix((np.ones(n), np.arange(n), np.arange(0, n + 1, 50)), shape=(30, n))
    for k in range(draws):
        prob = rng.uniform(0.1, 0.6, n)
        u = sum(rng.normal(0, np.sqrt(strength * t), g.max() + 1)[g] for t, g in zip(tau, groups))
        y = rng.random(n) < np.clip(prob + prob * (1 - prob) * u, 0, 1)
        labelled = np.sort(rng.choice(n, 300, replace=False))
        moments = model_of(
            prob, np.repeat(prob[:, None], 10, 1), groups, tau, labelled, y[labelled].astype(float)
        ).moments(sets)
        truth = sets @ y
        alone = Moments(
            moments.size,
            moments.constant,
            moments.labelled,
            sets @ np.where(np.isin(np.arange(n), labelled), 0, prob),
            moments.chance,
            0 * moments.chance,
            0 * moments.chance,
            0 * moments.chance,
        )
        for a, one in enumerate((moments, alone)):
            low, high = one.interval(0.95)
            covered[k, a] = ((low <= truth) & (truth <= high)).mean()
    rule, independence = covered.mean(0)
    return float(rule), float(independence)


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0.25, 1.0, 2.0])
def test_intervals_cover_where_the_model_is_true(strength):
    rule, independence = simulated_coverage(strength)
    assert 0.94 <= rule <= 0.995
    if strength >= 1:
        assert independence < 0.9


def test_labelled_and_training_nodes_count_as_they_are(out, calibration):
    data = out.graph
    pred = calibration(out).argmax(1)
    for mask in (data.val_mask, data.train_mask):
        one = count(calibration, out, mask)
        errors = int((pred != data.y)[mask].sum())
        assert (one.low, one.expected, one.high) == (errors, errors, errors)
        members = count(calibration, out, mask, event=2)
        assert members.expected == int((data.y == 2)[mask].sum())
    some = data.test_mask.nonzero().flatten()[:30]
    wrong = data.val_mask & (pred != data.y)
    alone, both = (count(calibration, out, nodes) for nodes in (some, torch.cat([some, wrong.nonzero().flatten()])))
    assert both.expected - alone.expected == pytest.approx(int(wrong.sum()))
    assert (both.low - alone.low, both.labelled) == (int(wrong.sum()), int(wrong.sum()))


def test_test_labels_are_not_read(out, calibration):
    data = out.graph.clone()
    data.y = torch.where(data.test_mask, (data.y + 1) % out.num_classes, data.y)
    other = graphcal.Outputs(out.logits, data, out.final, out.hidden)
    assert count(calibration, out, by="prediction") == count(calibration, other, by="prediction")


def test_saved_calibration_counts_the_same(out, calibration, tmp_path):
    restored = graphcal.restore(graphcal.save(calibration, tmp_path / "sets.safetensors"))
    assert (tmp_path / "sets.safetensors").stat().st_size < 1_000_000
    sets = [range(50), [499, 3, 3], out.graph.test_mask]
    assert count(restored, out, sets, event=1) == count(calibration, out, sets, event=1)


@pytest.mark.slow
def test_refits_have_not_seen_the_labels_of_their_fold(out):
    """Their context is that of the full fit, of which the temperature alone depends on labels."""
    data = out.graph.clone()
    node = int(data.val_mask.nonzero()[5])
    data.y[node] = (data.y[node] + 1) % out.num_classes
    other = graphcal.Outputs(out.logits, data, out.final, out.hidden)
    first, second = (graphcal.GraphScaling(sets=True).fit(o, on=data.val_mask) for o in (out, other))
    before, after = first.sets, second.sets
    at = (before.nodes == node).nonzero().item()
    moved = (before.held_out - after.held_out).abs().amax(1)
    assert moved[at] < 0.1 * (first(out) - second(out))[node].abs().max()
    assert moved.max() > 5 * moved[at]


def test_masks_numbers_and_groups_agree(out, calibration):
    mask = out.pred == 1
    numbers = mask.nonzero().flatten()
    one = count(calibration, out, mask)
    assert one == count(calibration, out, numbers) == count(calibration, out, mask.numpy())
    first, _ = count(calibration, out, [numbers.tolist(), [0]])
    assert first.to_dict() == pytest.approx(one.to_dict())
    by_column = count(calibration, out, by=out.pred, event=3)
    assert len(by_column) == 5
    assert sum(c.nodes for c in by_column) == 500
    assert [c.expected for c in by_column] == sorted((c.expected for c in by_column), reverse=True)
    named = next(c for c in by_column if c.name == "1")
    assert named.expected == count(calibration, out, mask, event=3).expected
    assert sum(c.nodes for c in count(calibration, out, by="community")) == 500


def test_a_report_counts_predicted_classes_and_fifths(out, calibration):
    counts = overview(calibration, out)
    assert sum(one.nodes for one in counts if one.name.startswith("predicted")) == 500
    assert [one.nodes for one in counts if one.name.startswith("degree")] == [100] * 5
    low, high = (
        one.expected for one in counts if one.name in ("confidence, lowest fifth", "confidence, highest fifth")
    )
    assert low > 2 * high
    assert overview(graphcal.TemperatureScaling().fit(out, on=out.graph.val_mask), out) == []


def test_many_sets_equal_one_at_a_time(out, calibration, monkeypatch):
    rng = np.random.default_rng(0)
    sets = [rng.choice(500, size, replace=False) for size in (1, 10, 100, 400, 3)]
    together = count(calibration, out, sets)
    monkeypatch.setattr("graphcal.decisions.counts.SETS_AT_ONCE", 2)
    apart = [count(calibration, out, one) for one in sets]
    for a, b, c in zip(together, apart, count(calibration, out, sets)):
        assert a.to_dict() == pytest.approx(b.to_dict())
        assert a.to_dict() == pytest.approx(c.to_dict())


def test_another_graph_has_no_labelled_neighbours_and_wider_intervals(out, calibration):
    data = out.graph.clone()
    data.edge_index = data.edge_index[:, :-1]
    del data.train_mask
    other = graphcal.Outputs(out.logits, data, out.final, out.hidden)
    assert fitted_here(calibration, out, calibration.context_of(out))
    assert not fitted_here(calibration, other, calibration.context_of(other))
    labelled = count(calibration, other, out.graph.val_mask)
    assert labelled.labelled == 0
    assert labelled.low < labelled.high
    near = out.graph.test_mask & (out.pred == 0)
    assert count(calibration, other, near).neighbourhood > count(calibration, out, near).neighbourhood


def test_without_edges_given_columns_are_the_groups():
    rng = np.random.default_rng(0)
    n, shops = 1200, 60
    shop = rng.integers(0, shops, n)
    bad = rng.normal(0, 1.5, shops)[shop]
    logits = rng.normal(0, 1.0, n)
    y = rng.random(n) < 1 / (1 + np.exp(-(logits + bad)))
    graph = Data(y=torch.from_numpy(y.astype(np.int64)), num_nodes=n)
    graph.val_mask = torch.from_numpy(rng.random(n) < 0.4)
    rows = torch.from_numpy(np.stack([-logits / 2, logits / 2], 1)).float()
    out = graphcal.Outputs(rows, graph)
    fitted = graphcal.GraphScaling(sets=True).fit(out, on=graph.val_mask)
    counts = count(fitted, out, by=shop, event=1)
    plain = count(fitted, out, [np.flatnonzero(shop == int(c.name)) for c in counts], event=1)
    truth = np.array([y[shop == int(c.name)].sum() for c in counts])
    error = [np.abs(np.array([c.expected for c in given]) - truth).mean() for given in (counts, plain)]
    assert error[0] < 0.85 * error[1]  # the labels of a shop move its count
    assert np.mean([c.low <= t <= c.high for c, t in zip(counts, truth)]) > 0.9
    shifted = graphcal.Outputs(rows + torch.randn_like(rows), graph)
    assert not fitted_here(fitted, shifted, fitted.context_of(shifted))


def test_strengths_follow_the_residuals():
    groups = torch.arange(400)[None] // 8
    together, v = shared(groups, torch.tensor([1.0]).double()), torch.full((400,), 0.2).double()
    noise = torch.randn(400, generator=torch.Generator().manual_seed(0)).double()
    for c, factor, *_ in covariances(noise, v, together):
        weights = torch.stack([w for *_, w in covariances(factor @ noise, v, together)]).softmax(0)
        mean = float(weights @ torch.tensor(STRENGTHS).double())
        assert 0.6 * c < mean < max(1.5 * c, 0.45)  # the prior pulls towards 1


def test_groups_are_communities_and_predicted_classes(out):
    groups, tau = node_groups(out.graph, out.pred)
    assert groups.shape == (17, 500)
    assert torch.equal(groups[-1], out.pred.int())
    assert tau.sum() == pytest.approx(0.8 + 0.5 + 0.3 + 0.2 + 0.15)
    assert len(evenly(5000)) == 1000
    assert len(evenly(7)) == 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nodes": [0.5]}, "boolean mask"),
        ({"nodes": [500]}, "0..499"),
        ({"nodes": np.ones(3, bool)}, "3 entries"),
        ({"nodes": np.ones((2, 500), bool)}, "boolean mask"),
        ({"nodes": np.arange(500) % 2}, "mask of zeros and ones"),
        ({"nodes": "test_mask"}, "boolean mask"),
        ({"nodes": [[0], 1]}, "boolean mask"),
        ({"nodes": [0], "event": True}, "Classes"),
        ({"nodes": [0], "groups": {"shop": np.arange(500)}}, "stands in for edges"),
        ({"by": np.array([None] * 500)}, "without gaps"),
        ({"by": np.array(["a", 1] * 250, dtype=object)}, "of one type"),
        ({"by": np.where(np.arange(500) == 1, np.nan, 1.0)}, "1 missing"),
        ({"by": "shop"}, "attribute"),
        ({"by": np.zeros(3)}, "one value per node"),
        ({"nodes": [0], "event": "cat"}, "Classes"),
        ({"nodes": [0], "certainty": 95}, "certainty"),
        ({}, "nodes= or by="),
    ],
)
def test_bad_arguments_are_refused(out, calibration, arguments, words):
    with pytest.raises(ValueError, match=words):
        count(calibration, out, **arguments)


def test_masks_of_any_type_name_the_same_nodes(out, calibration):
    mask = out.graph.test_mask
    same = [mask, mask.to(torch.uint8), mask.numpy(), mask.tolist(), mask.nonzero().flatten()]
    counts = [count(calibration, out, nodes) for nodes in same]
    assert all(one == counts[0] for one in counts)
    assert counts[0].nodes == int(mask.sum())


def test_a_class_named_error_is_not_confused_with_errors(out, calibration):
    data = out.graph.clone()
    data.class_names = ["a", "error", "c", "d", "e"]
    named = graphcal.Outputs(out.logits, data, out.final, out.hidden)
    with pytest.raises(ValueError, match="name of a class"):
        count(calibration, named, [0])
    assert count(calibration, named, out.graph.test_mask, event=1) == count(
        calibration, out, out.graph.test_mask, event=1
    )


def test_arguments_in_the_wrong_order_are_refused(out, calibration):
    for first, second in ((out, calibration), (graphcal.GraphScaling(sets=True), out)):
        with pytest.raises(ValueError, match="in this order"):
            count(first, second, [0])


def test_a_calibration_without_refits_is_refused(out):
    plain = graphcal.GraphScaling().fit(out, on=out.graph.val_mask)
    with pytest.raises(ValueError, match="sets=True"):
        count(plain, out, [0])
    with pytest.raises(ValueError, match="Pass one"):
        graphcal.GraphScaling(field=True, sets=True)
