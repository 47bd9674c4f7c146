"""SCAR's weights found and used otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from conftest import random_graph
from graphcal import SCAR, structure
from graphcal.lab import Training, train
from graphcal.lab.paper.quirks.scar_gat import SCARofGATCode
from graphcal.lab.paper.quirks.scar_variants import SCARGrid, SCARWithoutGuard
from graphcal.methods.scar import fit_pull
from small_outputs import linear_outputs, val_nll


@pytest.fixture
def graph() -> Data:
    return random_graph(nodes=500, train=20, val=240)  # enough validation nodes for a weight on either side


@pytest.mark.parametrize("recipe", [SCAR(shared=True)], ids=repr)
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_a_fit_never_raises_validation_nll_and_keeps_predictions(graph, recipe, sharpness):
    out = linear_outputs(graph, noise=1.5, sharpness=sharpness)
    fitted = recipe.fit(out, graph.val_mask)
    before = float(cross_entropy(out.logits[graph.val_mask], graph.y[graph.val_mask]))
    assert val_nll(fitted, out) <= before + 1e-9
    assert torch.equal(fitted(out).argmax(-1), out.pred)
    assert torch.equal(fitted(out)[graph.train_mask], out.logits.log_softmax(-1)[graph.train_mask])


def test_one_weight_is_the_least_nll_of_eq_9_on_a_fine_grid(graph):
    out, on = linear_outputs(graph, sharpness=0.3), graph.val_mask
    fitted = SCAR(shared=True).fit(out, on)
    assert float(fitted.alpha) == float(fitted.beta) != 0
    nll = [val_nll(SCAR(w, w).fit(out, on), out) for w in torch.linspace(-0.5, 1.5, 81).tolist()]
    assert val_nll(fitted, out) <= min(nll) + 1e-6
    assert val_nll(SCAR().fit(out, on), out) <= val_nll(fitted, out) + 1e-9, "two weights contain one"
    with pytest.raises(ValueError, match="leave alpha and beta out"):
        SCAR(alpha=0.1, shared=True).fit(out, on)


def test_the_grid_is_the_papers_triangle(graph):
    out, on = linear_outputs(graph, sharpness=0.3), graph.val_mask
    fitted = SCARGrid().fit(out, on)
    assert fitted.alpha < fitted.beta <= 5e-3
    assert val_nll(fitted, out) <= val_nll(SCAR(1e-4, 1e-3).fit(out, on), out)


def test_without_the_guard_it_is_eq_10_as_it_stands(graph):
    out, on = linear_outputs(graph, noise=2.0, sharpness=3.0), graph.val_mask
    fitted = SCARWithoutGuard(0.4, 0.6).fit(out, on)
    w = torch.where(structure(graph).next_to_training, 0.4, 0.6).masked_fill(graph.train_mask, 0.0)[:, None]
    moved = out.logits + w * (out.final.gram.T[out.pred] + out.final.bias - out.logits)
    torch.testing.assert_close(fitted(out), moved.log_softmax(-1))


def test_the_official_gat_code_mixes_before_attention():
    graph = random_graph(nodes=120, train=30, val=50)
    out = train(graph, "gat", Training(hidden_channels=4, epochs=5), seeds=[0])[0].outputs
    nothing = SCARofGATCode(0.0, 0.0).fit(out, graph.val_mask)
    assert torch.allclose(nothing(out), out.logits.log_softmax(-1), atol=1e-5)
    moved = SCARofGATCode(0.2, 0.4).fit(out, graph.val_mask)(out)
    after = fit_pull(out, graph.val_mask, 0.2, 0.4, guarded=False)(out)
    leaked = (moved - out.logits.log_softmax(-1))[graph.train_mask].abs().amax(-1)
    assert (leaked > 1e-4).any()  # a neighbour's shift reaches training nodes through attention
    assert not torch.allclose(moved, after, atol=1e-3)  # so it is not Eq. 10
    with pytest.raises(ValueError, match="needs the outputs of graphcal.lab.train"):
        SCARofGATCode(0.2, 0.4).fit(out, graph.val_mask)(replace(out, model=None))
