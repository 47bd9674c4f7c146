"""Graph-aware SCAR: what it learns, what it keeps, what it leaves alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, nll_loss
from torch_geometric.data import Data

from conftest import random_graph
from graphcal import SCAR, Outputs, structure
from graphcal.graphs import neighbour_agreement
from graphcal.lab.paper.quirks.graph_scar import GraphSCAR, best_ridge, design_matrix
from small_outputs import linear_outputs, ridge_path, val_nll


@pytest.fixture
def graph() -> Data:
    return random_graph(nodes=500, train=20, val=240)  # enough validation nodes for a weight on either side


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_a_fit_never_raises_validation_nll_and_keeps_predictions(graph, sharpness):
    out = linear_outputs(graph, noise=1.5, sharpness=sharpness)
    fitted = GraphSCAR().fit(out, graph.val_mask)
    own = float(cross_entropy(out.logits[graph.val_mask], graph.y[graph.val_mask]))
    assert val_nll(fitted, out) <= own + 1e-9
    assert torch.equal(fitted(out).argmax(-1), out.pred)
    assert torch.equal(fitted(out)[graph.train_mask], out.logits.log_softmax(-1)[graph.train_mask])


def test_it_learns_what_depends_on_the_neighbours():
    """Confidence is honest where neighbours agree and far too low elsewhere: one scale cannot mend it, features can."""
    graph = random_graph(nodes=3000, train=100, val=1200, seed=3)
    base = linear_outputs(graph, noise=1.5)
    agree = neighbour_agreement(base.pred, structure(graph))
    logits = base.logits * (0.25 + 1.5 * agree)[:, None]
    out = Outputs(logits, graph, base.final, base.hidden)
    test = graph.test_mask
    loss = {
        name: float(nll_loss(recipe.fit(out, graph.val_mask)(out)[test], graph.y[test]))
        for name, recipe in {"graph": GraphSCAR(), "temperature": SCAR(temperature=True)}.items()
    }
    assert loss["graph"] < loss["temperature"] - 0.01


def test_with_few_fitting_nodes_it_has_one_scale_and_one_weight(graph):
    out = linear_outputs(graph)
    few = graph.val_mask & (graph.val_mask.cumsum(0) <= 150)  # fewer than ten for each of 18 parameters
    fitted = GraphSCAR().fit(out, few)
    assert not fitted.scale[1:].any()
    assert not fitted.pull[1:].any()
    many = GraphSCAR().fit(out, graph.val_mask)
    assert many.scale[1:].any()


def test_capped_nodes_are_those_whose_prediction_would_change(graph):
    out = linear_outputs(graph, noise=2.0, sharpness=3.0)
    fitted = GraphSCAR().fit(out, graph.val_mask)
    free = type(fitted)(**dict(fitted.named_buffers()), **{**fitted.settings, "guarded": False})
    changed = (free(out).argmax(-1) != out.pred) & ~graph.train_mask
    assert fitted.capped(out)[changed].all()
    assert (fitted.weights(out)[structure(graph).train_mask] == 0).all()


def test_a_model_that_is_right_on_every_fitting_node_does_not_become_certain(graph):
    out = linear_outputs(graph, noise=0.3)
    right = graph.val_mask & (out.pred == graph.y)
    confidence = GraphSCAR().fit(out, right)(out)[right].exp().max(-1).values
    before = out.logits[right].softmax(-1).max(-1).values
    assert 0.2 < float((1 - confidence).sum()) <= float((1 - before).sum())  # without smoothed targets: nothing


def test_only_logits_are_not_enough(graph):
    with pytest.raises(ValueError, match="needs the final layer"):
        GraphSCAR().fit(Outputs.from_logits(linear_outputs(graph).logits, graph), graph.val_mask)


def test_a_node_unlike_any_fitted_one_is_not_extrapolated_to() -> None:
    far = torch.tensor([[100.0, -100.0, 2.0]], dtype=torch.double)
    design = design_matrix(far, torch.zeros(3, dtype=torch.double), torch.ones(3, dtype=torch.double))
    assert design.tolist() == [[1.0, 3.0, -3.0, 2.0]]


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_the_path_of_ridges_finds_what_solving_each_of_them_finds(graph, sharpness):
    base, terms, target, centre, held, ridges, solved, unseen = ridge_path(graph, sharpness)
    chosen = best_ridge(base, terms, target, centre, held, ridges)
    assert unseen[chosen.ridge] == pytest.approx(min(unseen.values()), abs=1e-6)
    assert torch.allclose(chosen.theta, solved[chosen.ridge], atol=1e-8)
    assert chosen.loo_nll == pytest.approx(unseen[chosen.ridge], abs=1e-9)
