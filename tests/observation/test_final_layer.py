"""The final layer is found by trying, for heads of every kind; what is not linear is not claimed."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv

from conftest import random_graph
from graphcal import SCAR, CalibratedModel, TemperatureScaling, observe, restore, save
from graphcal.methods.scar import fit_pull
from graphcal.observation.final_layer import ObservedModel
from user_models import HEADS, NOT_LINEAR, NormedAtTheEnd, SumOfHeads, build

GRAPH = random_graph()
SEARCHED = ("BatchNorm at the end",)  # not seen in the pass: found with changed weights


@pytest.mark.parametrize("name", HEADS)
def test_observed_fitted_shipped_saved_and_restored(name, tmp_path):
    """The whole way of a user's model, for every head."""
    model = build(HEADS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("default" if name in SEARCHED else "error")
        out = observe(model, GRAPH)
    assert out.final is not None
    h = out.final_representation
    assert (h is None) == (name in SEARCHED)
    if h is not None:
        torch.testing.assert_close(h @ out.final.weight.T + out.final.bias, out.logits, atol=1e-5, rtol=1e-5)
    arguments = (GRAPH.edge_index,) if name == "embedding" else (GRAPH.x, GRAPH.edge_index)
    torch.testing.assert_close(model(*arguments), out.logits)  # the model is as it was
    for recipe in (TemperatureScaling(), SCAR()):
        calibrate = recipe.fit(out, on=GRAPH.val_mask)
        shipped = CalibratedModel(model, calibrate, train_mask=GRAPH.train_mask)
        log_probs = shipped(*arguments)
        torch.testing.assert_close(log_probs, calibrate(out), atol=1e-5, rtol=1e-5)
        again = restore(save(shipped, tmp_path / "shipped.safetensors"), model=build(HEADS[name], seed=1))
        again = CalibratedModel(again.model, again.calibration, train_mask=GRAPH.train_mask)
        torch.testing.assert_close(again(*arguments), log_probs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_what_is_not_linear_gives_logits_and_advice(name):
    model = build(NOT_LINEAR[name])
    with pytest.warns(UserWarning, match=r"no final layer was found in \w+ \(forward passes: [0-9]+\)"):
        out = observe(model, GRAPH)
    assert out.final is None
    torch.testing.assert_close(out.logits, model(GRAPH.x, GRAPH.edge_index))
    TemperatureScaling().fit(out, on=GRAPH.val_mask)
    with pytest.raises(ValueError, match="SCAR needs the final layer"):
        SCAR().fit(out, on=GRAPH.val_mask)


def test_attention_is_held_still_and_heads_are_averaged():
    """z = b + 1/H sum_h W_h h_h with h_h the attention-weighted sum of the inputs."""
    model = build(HEADS["GATConv averaged heads"])
    out = observe(model, GRAPH)
    conv: GATConv = model.head
    x = model.encode(GRAPH.x, GRAPH.edge_index)
    _, (edges, attention) = conv(x, GRAPH.edge_index, return_attention_weights=True)
    blocks = [
        torch.zeros_like(x).index_add(0, edges[1], attention[:, head, None] * x[edges[0]]) for head in range(conv.heads)
    ]
    weight = conv.lin.weight.view(conv.heads, 4, -1)
    torch.testing.assert_close(out.final_representation, torch.cat(blocks, 1) / 3**0.5, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(out.final.weight, torch.cat(list(weight), 1) / 3**0.5)
    torch.testing.assert_close(out.final.gram, sum(w @ w.T for w in weight) / 3)
    torch.testing.assert_close(out.final.bias, conv.bias)


def test_summed_heads_stand_side_by_side():
    model: SumOfHeads = build(SumOfHeads)
    out = observe(model, GRAPH)
    total = sum(
        layer.weight @ layer.weight.T for layer in (model.head, model.skip, model.graph.lin_l, model.graph.lin_r)
    )
    torch.testing.assert_close(out.final.gram, total, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out.final.bias, model.head.bias + model.skip.bias + model.graph.lin_l.bias)


def test_a_closing_batch_norm_scales_the_rows():
    model: NormedAtTheEnd = build(NormedAtTheEnd)
    out = observe(model, GRAPH)
    scale = model.norm.weight / (model.norm.running_var + model.norm.eps).sqrt()
    folded = scale[:, None] * model.head.weight
    size = scale.abs().log().mean().exp()  # how much of the scale is the layer's, how much h's, is a convention
    torch.testing.assert_close(out.final.weight, folded / size, atol=1e-5, rtol=1e-4)


def test_a_bias_before_a_propagation_is_a_column_of_the_representation():
    out = observe(build(HEADS["Linear, then APPNP"]), GRAPH)
    without = observe(build(HEADS["Linear without bias, then APPNP"]), GRAPH)
    assert out.final.weight.shape[1] == without.final.weight.shape[1] + 1
    assert float(out.final.bias.abs().max()) < 1e-5


def test_scar_in_logit_space_is_the_move_of_the_representation():
    out = observe(build(HEADS["GATv2Conv averaged heads"]), GRAPH)
    moved = 0.8 * out.final_representation + 0.2 * out.final.weight[out.pred]
    ours = fit_pull(out, GRAPH.val_mask, 0.2, 0.2, guarded=False)(out)
    away = ~GRAPH.train_mask
    expected = (moved @ out.final.weight.T + out.final.bias).log_softmax(-1)
    torch.testing.assert_close(ours[away], expected[away], atol=1e-5, rtol=1e-4)


def test_a_model_that_says_something_else_each_time_has_no_final_layer():
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(10, 4)

        def forward(self, x, edge_index):
            return self.last(x) + torch.randn(len(x), 1)

    with pytest.warns(UserWarning, match="differs from pass to pass"):
        assert observe(Noisy(), GRAPH).final is None


def test_the_model_is_left_as_it_was():
    model = build(HEADS["SuperGATConv"]).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.head.eval()
    observe(model, GRAPH)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert not model.head.training
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.filterwarnings("ignore:the final layer of")
@pytest.mark.parametrize("name", HEADS)
def test_a_search_with_changed_weights_finds_the_layer_that_was_seen(name, monkeypatch):
    seen = observe(build(HEADS[name]), GRAPH).final
    monkeypatch.setattr(ObservedModel, "confirm", lambda *_: None)
    searched = observe(build(HEADS[name]), GRAPH).final
    torch.testing.assert_close(searched.gram, seen.gram, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(searched.bias, seen.bias, atol=1e-5, rtol=1e-5)
