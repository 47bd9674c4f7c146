"""Accuracy without labels: the count rule on a window, the term for windows that differ, and what is never read."""

import json
from copy import copy
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import graphcal
from graphcal.cli import app
from graphcal.decisions.estimates import FACTS, rehearsed
from graphcal.decisions.monitoring import watch


@pytest.fixture(scope="module")
def fitted():
    out = graphcal.example(2000)
    return out, graphcal.GraphScaling(sets=True).fit(out, on=out.graph.val_mask)


def window_of(out, seed=0, size=400):
    nodes = np.random.default_rng(seed).permutation(out.graph.test_mask.nonzero().flatten().numpy())[:size]
    return torch.from_numpy(np.sort(nodes))


def test_accuracy_is_one_minus_the_counted_errors(fitted):
    out, calibrate = fitted
    window = window_of(out)
    one, errors = graphcal.estimate(calibrate, out, window), graphcal.count(calibrate, out, window, certainty=0.9)
    n = len(window)
    assert one.accuracy.value == pytest.approx(1 - errors.expected / n)
    assert (one.chance, one.neighbourhood, one.fit) == pytest.approx(
        tuple(part / n**2 for part in (errors.chance, errors.neighbourhood, errors.fit))
    )
    plain = (1 - errors.high / n - one.widening, 1 - errors.low / n + one.widening)
    assert (one.accuracy.low, one.accuracy.high) == pytest.approx(plain, abs=1.5 / n)
    right = calibrate(out).argmax(1) == out.graph.y
    assert one.accuracy.low <= float(right[window].double().mean()) <= one.accuracy.high


def test_no_label_of_the_window_is_read(fitted):
    out, calibrate = fitted
    window, graph = window_of(out), copy(out.graph)
    graph.y = graph.y.clone()
    graph.y[window] = (graph.y[window] + 1) % out.num_classes
    other = replace(out, graph=graph)
    assert graphcal.estimate(calibrate, out, window, positive=1) == graphcal.estimate(
        calibrate, other, window, positive=1
    )


def test_the_shift_term_by_hand():
    """Residuals ± 0.3 in the outer fifths, 0 elsewhere; the window lies in the lowest fifth only."""
    fact = np.repeat(np.arange(5.0), 40)
    residual = np.repeat([0.3, 0, 0, 0, -0.3], 40)
    variance = np.full(200, 0.2)
    off = (2 * 0.3**2 - 5 * 0.2 / 40) / 5
    uneven = ((1 - 0.2) ** 2 + 4 * 0.2**2) / 0.8
    assert rehearsed(residual, variance, fact, np.zeros(30)) == pytest.approx(off * uneven)
    assert rehearsed(residual, variance, fact, fact) == 0
    assert rehearsed(residual / 10, variance, fact, np.zeros(30)) == 0  # no more than chance shows


def test_a_window_that_differs_is_wider_and_the_fact_is_named(fitted):
    """Labelled nodes of low degree are all wrong, so calibration depends on the degree; windows of high degree show it."""
    out, calibrate = fitted
    sets = calibrate.sets
    labels = sets.labels.clone()
    low = sets.facts[:, 0] <= sets.facts[:, 0].median()
    pred = sets.held_out.argmax(1)
    try:
        sets.labels.copy_(torch.where(low, (pred + 1) % out.num_classes, pred))
        degree = graphcal.structure(out.graph).degree
        test = out.graph.test_mask
        high = graphcal.estimate(calibrate, out, test & (degree > degree.double().quantile(0.8)))
        plain = graphcal.estimate(calibrate, out, window_of(out))
    finally:
        sets.labels.copy_(labels)
    assert high.fact == "degree"
    assert high.widening > 3 * plain.widening
    assert high.widening > 0.02
    assert "differs from what was labelled (degree)" in high.sentence


def test_a_class_has_precision_recall_and_members(fitted):
    out, calibrate = fitted
    window = window_of(out, size=600)
    one = graphcal.estimate(calibrate, out, window, positive=2)
    assert one.positives.value == pytest.approx(graphcal.count(calibrate, out, window, 2).expected)
    pred, y = calibrate(out).argmax(1)[window], out.graph.y[window]
    hits = int(((pred == 2) & (y == 2)).sum())
    for share, truth in (
        (one.precision, hits / int((pred == 2).sum())),
        (one.recall, hits / int((y == 2).sum())),
    ):
        assert share.low <= share.value <= share.high
        assert share.low - 0.03 <= truth <= share.high + 0.03
    assert one.precision.value * int((pred == 2).sum()) == pytest.approx(
        one.recall.value * one.positives.value, rel=0.02
    )


def test_em_helps_a_pure_prior_shift_only_when_it_is_stated(fitted):
    out, calibrate = fitted
    y, test = out.graph.y.numpy(), out.graph.test_mask.nonzero().flatten().numpy()
    pred = calibrate(out).argmax(1).numpy()
    gaps, priors = {False: [], True: []}, []
    for k in range(out.num_classes):
        rng = np.random.default_rng(k)
        window = test[(y[test] == k) | (rng.random(len(test)) < 0.1)]
        for stated in gaps:
            one = graphcal.estimate(calibrate, out, torch.from_numpy(window), prior_shift=stated)
            gaps[stated].append(abs(one.accuracy.value - (pred == y)[window].mean()))
        truth = (y[window] == k).mean()
        priors.append((abs(one.prior[k] - truth), abs((y[test] == k).mean() - truth)))
    assert np.mean(gaps[True]) < np.mean(gaps[False])
    assert np.mean([a for a, _ in priors]) < 0.5 * np.mean([b for _, b in priors])
    assert graphcal.estimate(calibrate, out, torch.from_numpy(window)).prior is None


def test_a_saved_calibration_estimates_the_same(fitted, tmp_path):
    out, calibrate = fitted
    graphcal.save(calibrate, tmp_path / "c.safetensors")
    window = window_of(out)
    one, two = (
        graphcal.estimate(c, out, window).to_dict() for c in (calibrate, graphcal.restore(tmp_path / "c.safetensors"))
    )
    assert json.loads(json.dumps(one))["accuracy"] == pytest.approx(two["accuracy"])
    assert one["fact"] in FACTS


def test_random_labels_of_the_same_precision(fitted):
    out, calibrate = fitted
    one = replace(
        graphcal.estimate(calibrate, out, window_of(out)),
        accuracy=graphcal.decisions.Interval(0.8, 0.753, 0.847),
        nodes=5000,
    )
    assert 190 <= one.same_labels <= 210


def test_a_calibration_without_refits_is_refused():
    out = graphcal.example(1000)
    calibrate = graphcal.TemperatureScaling().fit(out, on=out.graph.val_mask)
    with pytest.raises(ValueError, match="sets=True"):
        graphcal.estimate(calibrate, out, out.graph.test_mask)


@pytest.fixture(scope="module")
def one_sided():
    """Labels from every community but the largest."""
    out = graphcal.example(2000)
    part = graphcal.structure(out.graph).hierarchies[3]
    largest = part == part.mode().values
    return out, graphcal.GraphScaling(sets=True).fit(out, on=out.graph.val_mask & ~largest), part, largest


def test_no_interval_where_most_of_the_window_has_no_label(one_sided):
    out, calibrate, part, largest = one_sided
    degree, labelled = graphcal.structure(out.graph).degree, out.graph.val_mask & ~largest
    test = out.graph.test_mask & (degree >= degree[labelled].min()) & (degree <= degree[labelled].max())
    there = (test & largest).nonzero().flatten()
    elsewhere = (test & torch.isin(part, part[labelled])).nonzero().flatten()
    for size in (39, 41):
        window = torch.cat([there[:size], elsewhere[: 80 - size]])
        one = graphcal.estimate(calibrate, out, window, positive=1)
        assert one.outside == size / 80
        assert one.accuracy.value == pytest.approx(1 - graphcal.count(calibrate, out, window).expected / 80)
        if size < 40:
            assert 0 < one.accuracy.low < one.accuracy.value < one.accuracy.high <= 1
            assert 0 < one.positives.high - one.positives.low < 80
            assert one.same_labels > 0
            continue
        ends = [(share.low, share.high) for share in (one.accuracy, one.precision, one.recall, one.positives)]
        assert ends == [(0, 1), (0, 1), (0, 1), (0, 80)]
        assert (one.widening, one.same_labels) == (0, 0)
        assert "51 % of the window" in one.sentence
        assert " to " not in str(one).split("Not seen")[0]


def test_communities_and_degrees_count_on_the_graph_of_the_fit(one_sided):
    out, calibrate, part, largest = one_sided
    degree, labelled = graphcal.structure(out.graph).degree, out.graph.val_mask & ~largest
    facts = calibrate.sets.facts.clone()
    middle = facts[:, 0].median()
    bare, beyond = ~torch.isin(part, part[labelled]), (degree > middle) | (degree < facts[:, 0].min())
    window = ~labelled & ~out.graph.train_mask
    try:
        calibrate.sets.facts[:, 0].clamp_(max=middle)
        one = graphcal.estimate(calibrate, out, window)
    finally:
        calibrate.sets.facts.copy_(facts)
    assert (window & beyond & ~bare).any()
    assert (window & bare & ~beyond).any()
    assert one.outside == pytest.approx(float((beyond | bare)[window].double().mean()))


def test_only_degrees_are_compared_on_another_graph(one_sided):
    calibrate = one_sided[1]
    other = graphcal.example(2000, seed=1)
    degree, labelled = graphcal.structure(other.graph).degree, calibrate.sets.facts[:, 0]
    beyond = ((degree < labelled.min()) | (degree > labelled.max())) & ~other.graph.train_mask
    assert graphcal.estimate(calibrate, other, torch.ones(2000, dtype=torch.bool)).outside == beyond.double().mean()
    facts = calibrate.sets.facts.clone()
    try:
        calibrate.sets.facts[:, 0] = degree.max() + 1
        assert graphcal.estimate(calibrate, other, other.graph.test_mask).outside == 1
    finally:
        calibrate.sets.facts.copy_(facts)


def test_labelled_nodes_are_never_outside(one_sided):
    out, calibrate, _, largest = one_sided
    window = out.graph.train_mask & largest
    assert window.any()
    assert graphcal.estimate(calibrate, out, window).outside == 0


def test_watch_prints_the_estimate(fitted):
    out, calibrate = fitted
    reference = graphcal.metrics.reference_summary(calibrate(out), graph=out.graph)
    time = np.arange(2000) // 1000
    report = watch(reference, calibrate(out), time=time, graph=out.graph, calibration=calibrate, out=out)
    late = graphcal.estimate(calibrate, out, torch.arange(2000) >= 1000)
    assert report.windows[-1].estimate == late
    assert dict(report.summary)["Accuracy"].endswith(late.sentence)
    assert watch(reference, calibrate(out)).windows[0].estimate is None


def test_the_command_line_estimates_from_predictions_and_edges(fitted, tmp_path):
    out = graphcal.Outputs(fitted[0].logits, fitted[0].graph)  # a table holds no hidden representation
    calibrate = graphcal.GraphScaling(sets=True).fit(out, on=out.graph.val_mask)
    graphcal.save(calibrate, tmp_path / "c.safetensors")
    logits = {f"logit_{k}": out.logits[:, k].numpy() for k in range(out.num_classes)}
    pq.write_table(pa.table({"id": np.arange(2000), **logits}), tmp_path / "p.parquet")
    row, col = out.graph.edge_index.numpy()
    pq.write_table(pa.table({"src": row, "dst": col}), tmp_path / "e.parquet")
    args = ["watch", tmp_path / "c.safetensors", tmp_path / "p.parquet", "--edges", tmp_path / "e.parquet", "--json"]
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    record = json.loads(done.output)
    bare = copy(out.graph)
    del bare.train_mask, bare.val_mask, bare.test_mask
    one = graphcal.estimate(calibrate, replace(out, graph=bare), torch.ones(2000, dtype=torch.bool))
    assert record["windows"][0]["estimate"]["accuracy"]["value"] == pytest.approx(one.accuracy.value, abs=1e-4)
    plain = graphcal.TemperatureScaling().fit(out, on=out.graph.val_mask)
    graphcal.save(plain, tmp_path / "c.safetensors")
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    assert "sets=True" in str(done.exception)
