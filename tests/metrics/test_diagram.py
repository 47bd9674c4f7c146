"""The diagram's bands are what their names say; its ECE is that of every other table."""

import json

import pytest
import torch
from known_truth import binary, confidences, draw, predictions

from graphcal.metrics import accuracy_interval, consistency_band, ece, reliability
from graphcal.metrics.bins import outcomes
from graphcal.metrics.diagram import diagram_of


def test_consistency_band_holds_calibrated_bins():
    g, inside, bins = torch.Generator().manual_seed(2), 0, 0
    for _ in range(200):
        conf = confidences("even", 2000, g)
        rel = reliability(*binary(conf, draw(conf, g)), bins=10)
        low, high = consistency_band(rel)
        full = rel.count > 0
        inside += int(((rel.accuracy >= low) & (rel.accuracy <= high))[full].sum())
        bins += int(full.sum())
    assert 0.93 <= inside / bins <= 0.985


def test_accuracy_interval_holds_the_true_accuracy():
    g, inside, bins = torch.Generator().manual_seed(2), 0, 0
    for _ in range(200):
        conf = confidences("even", 500, g)
        rel = reliability(*binary(conf, draw(conf - 0.1, g)), bins=10)
        low, high = accuracy_interval(rel)
        full = rel.count > 0
        truth = rel.conf - 0.1
        inside += int(((truth >= low) & (truth <= high))[full].sum())
        bins += int(full.sum())
    assert 0.94 <= inside / bins <= 0.99


def test_clopper_pearson_at_the_ends():
    rel = reliability(*binary(torch.full((10,), 0.9, dtype=torch.float64), torch.ones(10)), bins=1)
    low, high = accuracy_interval(rel)
    assert float(low) == pytest.approx(0.025 ** (1 / 10), abs=1e-9)
    assert float(high) == 1.0


def test_a_diagram_of_seeds_counts_every_node_once_and_its_ece_is_the_mean():
    y = predictions(600)[1]
    seeds = [predictions(600, scale=s)[0] for s in (0.5, 0.7, 0.9)]
    diagram = diagram_of([outcomes(lp, y) for lp in seeds], 20, "equal-width")
    assert diagram.reliability.nodes == 600
    assert diagram.ece == pytest.approx(sum(ece(lp, y) for lp in seeds) / 3, abs=1e-15)
    assert diagram_of([outcomes(seeds[0], y)], 20, "equal-width").ece == ece(seeds[0], y)
    plain = json.loads(json.dumps(diagram.to_dict(), allow_nan=False))
    assert plain["convention"] == "20 equal-width bins (lo, hi], 0 and 1 included"
    assert sum(plain["count"]) == pytest.approx(600, abs=1e-2)


def test_equal_mass_edges_are_those_of_all_seeds_together():
    y = predictions(500)[1]
    seeds = [predictions(500, scale=s)[0] for s in (0.5, 1.5)]
    diagram = diagram_of([outcomes(lp, y) for lp in seeds], 10, "equal-mass")
    assert diagram.reliability.count.tolist() == pytest.approx([50] * 10)
