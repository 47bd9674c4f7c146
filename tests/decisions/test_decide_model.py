"""`graphcal.decide` for trained models: who fits, who certifies, and that neither sees the other's labels."""

import doctest

import pytest
import torch

import graphcal
from conftest import random_graph
from graphcal.decisions import approval, bounds, decision, outcomes, sets
from small_outputs import model_outputs


@pytest.fixture(scope="module")
def out():
    return model_outputs(random_graph(nodes=1500, train=60, val=500), sharpness=1.5)


def test_a_share_of_the_validation_nodes_certifies(out):
    decision = graphcal.decide(out, graphcal.TemperatureScaling(), certify=0.5, max_error=0.3, random_draw=True)
    assert decision.labels == 250
    assert decision.num_approved > 0
    graph = out.graph
    assert not (decision.approved & (graph.train_mask | graph.val_mask)).any()
    assert decision.nodes == int((~graph.train_mask & ~graph.val_mask).sum())
    wrong = out.pred != graph.y
    assert int(wrong[decision.approved].sum()) <= decision.errors_at_most
    everything = torch.ones_like(graph.train_mask)  # a pool with the nodes that trained and fitted: they are left out
    same = graphcal.decide(
        out, graphcal.TemperatureScaling(), certify=0.5, pool=everything, max_error=0.3, random_draw=True
    )
    assert torch.equal(same.approved, decision.approved)


class Spy(graphcal.TemperatureScaling):
    """Remembers the labels it was shown."""

    def fit(self, out, on, stop=None):
        seen.append((out.graph.y.clone(), on.clone()))
        return graphcal.TemperatureScaling().fit(out, on=on)


seen: list = []


@pytest.mark.parametrize("cross_fit", [False, True])
def test_certification_labels_are_hidden_from_the_fit(out, cross_fit):
    seen.clear()
    graphcal.decide(out, Spy(), certify=0.4, max_error=0.3, cross_fit=cross_fit)
    assert len(seen) == 1 + cross_fit
    for y, on in seen:
        has_label = y >= 0
        assert torch.equal(has_label, on | out.graph.train_mask)
    if cross_fit:
        assert torch.equal(seen[0][1] | seen[1][1], out.graph.val_mask)
        assert not (seen[0][1] & seen[1][1]).any()


def test_cross_fitting_keeps_the_larger_result_at_half_the_risk(out):
    both = graphcal.decide(out, graphcal.TemperatureScaling(), certify=0.5, max_error=0.3, cross_fit=True)
    one = graphcal.decide(out, graphcal.TemperatureScaling(), certify=0.5, max_error=0.3, certainty=0.975)
    assert both.num_approved >= one.num_approved
    assert both.certainty == 0.95


def test_a_fitted_calibration_certifies_on_other_nodes(out):
    graph = out.graph
    calibrate = graphcal.TemperatureScaling().fit(out, on=graph.val_mask)
    certify = graph.test_mask & (torch.rand(1500, generator=torch.Generator().manual_seed(0)) < 0.3)
    by_model = graphcal.decide(out, calibrate, certify=certify, max_error=0.3)
    used = graph.train_mask | graph.val_mask
    by_rows = graphcal.decide(calibrate(out), graph.y, certify=certify, pool=~used, fitted=used, max_error=0.3)
    assert torch.equal(by_model.approved, by_rows.approved)
    with pytest.raises(ValueError, match="certify shares 500 nodes .* certify=0.5"):
        graphcal.decide(out, calibrate, certify=graph.val_mask)
    with pytest.raises(ValueError, match="fitted already: give the recipe"):
        graphcal.decide(out, calibrate, certify=0.5)
    half = graph.val_mask & (torch.arange(1500) % 2 == 0)
    calibrate = graphcal.TemperatureScaling().fit(out, on=half)
    fine = graphcal.decide(out, calibrate, certify=graph.val_mask & ~half, fitted=half, max_error=0.3)
    assert fine.labels == int((graph.val_mask & ~half).sum())


def test_nodes_a_calibration_holds_back_are_never_approved(out):
    calibrate = graphcal.TemperatureScaling().fit(out, on=out.graph.val_mask)
    held = torch.arange(1500) % 2 == 0
    calibrate.held = lambda outputs: held
    decision = graphcal.decide(
        out, calibrate, certify=out.graph.test_mask & (torch.arange(1500) % 3 == 0), max_error=0.3
    )
    assert decision.num_approved > 0
    assert not (decision.approved & held).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"certify": 1.5}, "must lie between 0 and 1, got 1.5"),
        ({"certify": torch.ones(1500, dtype=torch.bool)}, "certify shares 60 nodes"),
        ({"certify": torch.arange(1500) > 900, "cross_fit": True}, "cross_fit splits the validation nodes itself"),
    ],
)
def test_bad_input_is_refused(out, arguments, message):
    with pytest.raises(ValueError, match=message):
        graphcal.decide(out, graphcal.TemperatureScaling(), **arguments)


def test_what_it_takes_is_said(out):
    with pytest.raises(ValueError, match=r"decide takes \(log_probs, y, certify=mask\)"):
        graphcal.decide(out.logits.log_softmax(1), out.graph.y, certify=0.5)
    with pytest.raises(ValueError, match="got Outputs, Tensor"):
        graphcal.decide(out, out.graph.y, certify=out.graph.test_mask)


@pytest.mark.parametrize("module", [approval, bounds, decision, outcomes, sets], ids=lambda m: m.__name__)
def test_examples_say_what_happens(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
