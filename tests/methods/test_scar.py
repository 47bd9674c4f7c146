"""SCAR: Eq. 10 in logit space, its fit, its guard."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from conftest import random_graph
from graphcal import SCAR, Outputs, structure
from graphcal.methods.scar import fit_pull
from small_outputs import linear_outputs, val_nll


@pytest.fixture
def graph() -> Data:
    return random_graph(nodes=500, train=20, val=240)  # enough validation nodes for a weight on either side


def moved_nll(out: Outputs, on: torch.Tensor, alpha: float, beta: float, scale: float | None = None) -> float:
    near = structure(out.graph).next_to_training[:, None]
    target = out.final.gram.T[out.pred] + out.final.bias
    w = torch.where(near, alpha, beta)
    z = out.logits + w * (target - out.logits) if scale is None else scale * out.logits + w * target
    return float(torch.nn.functional.cross_entropy(z[on], out.graph.y[on]))


def test_zero_weights_are_the_identity(graph):
    out = linear_outputs(graph)
    assert torch.equal(SCAR(0.0, 0.0).fit(out, graph.val_mask)(out), out.logits.log_softmax(-1))


def test_training_nodes_are_untouched(graph):
    out = linear_outputs(graph)
    after = SCAR(0.3, 0.5, temperature=True).fit(out, graph.val_mask)(out)
    train = graph.train_mask
    assert torch.equal(after[train], out.logits.log_softmax(-1)[train])
    assert not torch.allclose(after[~train], out.logits.log_softmax(-1)[~train])


def test_weights_go_to_the_right_nodes(graph):
    out = linear_outputs(graph)
    facts = structure(graph)
    w = SCAR(0.1, 0.4).fit(out, graph.val_mask).weights(out)
    assert (w[facts.train_mask] == 0).all()
    assert (w[facts.next_to_training] == 0.1).all()
    assert (w[facts.hops > 1] == 0.4).all()
    assert w[-1] == 0.4  # the isolated node


def test_exact_fit_beats_every_grid_point(graph):
    out = linear_outputs(graph)
    on = graph.val_mask
    fitted = fit_pull(out, on, guarded=False)
    best = val_nll(fitted, out, on)
    for alpha in torch.linspace(-0.2, 1, 25).tolist():
        for beta in torch.linspace(-0.2, 1, 25).tolist():
            assert best <= moved_nll(out, on, alpha, beta) + 1e-12


def test_joint_fit_with_temperature_is_a_stationary_point(graph):
    out = linear_outputs(graph)
    on = graph.val_mask
    fitted = fit_pull(out, on, temperature=True, guarded=False)
    here = [float(fitted.alpha), float(fitted.beta), float(fitted.scale)]
    value = moved_nll(out, on, *here)
    assert value == pytest.approx(val_nll(fitted, out, on), abs=1e-10)
    for k in range(3):
        for step in (-1e-3, 1e-3):
            there = list(here)
            there[k] += step
            assert moved_nll(out, on, *there) > value
    assert value <= val_nll(fit_pull(out, on, guarded=False), out, on)


def test_given_weights_are_used_and_the_other_is_fitted(graph):
    out = linear_outputs(graph)
    fitted = SCAR(alpha=0.05).fit(out, graph.val_mask)
    assert float(fitted.alpha) == 0.05
    alone = SCAR().fit(out, graph.val_mask)
    assert float(fitted.beta) == pytest.approx(float(alone.beta), abs=1e-8)  # beta does not see V_F


def test_few_nodes_share_one_weight(graph):
    out = linear_outputs(graph)
    near = structure(graph).next_to_training & graph.val_mask
    far = graph.val_mask & ~near
    on = far.clone()
    on[near.nonzero().flatten()[:5]] = True
    fitted = SCAR().fit(out, on)
    assert float(fitted.alpha) == float(fitted.beta)


def test_an_over_confident_model_gets_negative_weights(graph):
    out = linear_outputs(graph, noise=2.0, sharpness=3.0)
    fitted = SCAR().fit(out, graph.val_mask)
    assert float(fitted.beta) < 0
    assert val_nll(fitted, out, graph.val_mask) < float(
        torch.nn.functional.cross_entropy(out.logits[graph.val_mask], graph.y[graph.val_mask])
    )


FORMS = {
    "given": lambda w: SCAR(w, w),
    "given+temperature": lambda w: SCAR(w, w, temperature=True),
    "fitted": lambda w: SCAR(),
    "fitted+temperature": lambda w: SCAR(temperature=True),
}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1e-2, 1.0, 30.0]),
    weight=st.floats(-3, 3),
    form=st.sampled_from(sorted(FORMS)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_predictions_are_kept_for_any_weight_matrix(seed, size, weight, form, dtype):
    g = torch.Generator().manual_seed(seed)
    n, classes = 40, 5
    train = torch.arange(n) < 5
    data = Data(
        edge_index=torch.randint(n, (2, 80), generator=g),
        y=torch.randint(classes, (n,), generator=g),
        train_mask=train,
        num_nodes=n,
    )
    skewed = torch.rand(classes, 1, generator=g) * 10  # unequal norms, acute angles: no diagonal dominance
    matrix = (skewed * (torch.rand(classes, 3, generator=g) + 0.1)).to(dtype)
    logits = (size * torch.randn(n, classes, generator=g)).to(dtype)
    logits[::7, 1] = logits[::7, 0]  # ties
    out = Outputs.from_logits(logits, data, matrix, torch.randn(classes, generator=g))
    fitted = FORMS[form](weight).fit(out, ~train)
    kept = fitted(out).argmax(-1) == out.pred
    lead = out.logits.topk(2, -1).values.diff().abs().squeeze(-1)
    assert kept[lead > 1e-6].all()
    assert torch.isfinite(fitted(out)).all()


def test_without_the_guard_predictions_can_change_and_the_guard_counts_them():
    n = 6
    data = Data(edge_index=torch.zeros(2, 0, dtype=torch.long), y=torch.zeros(n, dtype=torch.long), num_nodes=n)
    weight = torch.tensor([[1.0, 0.0], [3.0, 0.0]])  # class 1's centroid lies further out on class 0's axis
    out = Outputs.from_logits(torch.tensor([[0.5, 0.0]]).repeat(n, 1), data, weight)
    on = torch.ones(n, dtype=torch.bool)
    assert (fit_pull(out, on, 0.5, 0.5, guarded=False)(out).argmax(-1) == 1).all()
    guarded = SCAR(0.5, 0.5).fit(out, on)
    assert (guarded(out).argmax(-1) == 0).all()
    assert int(guarded.capped(out).sum()) == n


@pytest.mark.parametrize("recipe", [SCAR(), SCAR(temperature=True)], ids=repr)
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_a_fit_never_raises_validation_nll_and_keeps_predictions(graph, recipe, sharpness):
    out = linear_outputs(graph, noise=1.5, sharpness=sharpness)
    fitted = recipe.fit(out, graph.val_mask)
    before = float(torch.nn.functional.cross_entropy(out.logits[graph.val_mask], graph.y[graph.val_mask]))
    assert val_nll(fitted, out, graph.val_mask) <= before + 1e-9
    assert torch.equal(fitted(out).argmax(-1), out.pred)
    assert torch.equal(fitted(out)[graph.train_mask], out.logits.log_softmax(-1)[graph.train_mask])


def test_a_model_that_needs_nothing_is_mostly_left_alone_and_says_so(graph):
    out = linear_outputs(graph)
    left_alone = 0
    for draw in range(20):
        honest = graph.clone()  # labels drawn from the model itself: it is right as it is
        g = torch.Generator().manual_seed(draw)
        honest.y = torch.multinomial(out.logits.softmax(-1), 1, generator=g).flatten()
        seen = Outputs(out.logits, honest, out.final, out.hidden)
        fitted = SCAR().fit(seen, graph.val_mask)
        if fitted.note:
            left_alone += 1
            assert "left as it was" in fitted.note
            assert torch.allclose(fitted(seen), out.logits.log_softmax(-1))
    assert left_alone >= 10


@pytest.mark.parametrize("recipe", [SCAR(), SCAR(temperature=True)], ids=repr)
def test_a_model_that_is_right_on_every_fitting_node_does_not_become_certain(graph, recipe):
    out = linear_outputs(graph, noise=0.3)
    right = graph.val_mask & (out.pred == graph.y)
    fitted = recipe.fit(out, right)
    confidence = fitted(out)[right].exp().max(-1).values
    before = out.logits[right].softmax(-1).max(-1).values
    assert 0.2 < float((1 - confidence).sum()) <= float((1 - before).sum())  # without smoothed targets: nothing
