from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from conftest import random_graph
from graphcal import BACKBONES, SCAR, Outputs, TemperatureScaling, Training, structure, train
from graphcal.core import FinalLayer


@pytest.fixture
def graph() -> Data:
    return random_graph(nodes=500, train=20, val=240)  # enough validation nodes for a weight on either side


def model_outputs(graph: Data, seed: int = 0, width: int = 6, noise: float = 1.0, sharpness: float = 0.6) -> Outputs:
    """A linear head on noisy class means: accurate, under-confident, like a GNN with a decayed last layer."""
    g = torch.Generator().manual_seed(seed)
    classes = 4
    weight = torch.randn(classes, width, generator=g, dtype=torch.double)
    hidden = weight[graph.y] + noise * torch.randn(graph.num_nodes, width, generator=g, dtype=torch.double)
    weight = weight * sharpness
    bias = 0.1 * torch.randn(classes, generator=g, dtype=torch.double)
    out = Outputs.from_logits(hidden @ weight.T + bias, graph, weight, bias)
    return Outputs(out.logits, graph, out.final, hidden)


def validation_nll(fitted, out: Outputs, on: torch.Tensor) -> float:
    return float(torch.nn.functional.nll_loss(fitted(out)[on], out.graph.y[on]))


def moved_nll(out: Outputs, on: torch.Tensor, alpha: float, beta: float, scale: float | None = None) -> float:
    near = structure(out.graph).next_to_training[:, None]
    target = out.final.gram.T[out.pred] + out.final.bias
    w = torch.where(near, alpha, beta)
    z = out.logits + w * (target - out.logits) if scale is None else scale * out.logits + w * target
    return float(torch.nn.functional.cross_entropy(z[on], out.graph.y[on]))


def test_zero_weights_are_the_identity(graph):
    out = model_outputs(graph)
    assert torch.equal(SCAR(0.0, 0.0).fit(out, graph.val_mask)(out), out.logits.log_softmax(-1))


def test_training_nodes_are_untouched(graph):
    out = model_outputs(graph)
    after = SCAR(0.3, 0.5, temperature=True).fit(out, graph.val_mask)(out)
    train = graph.train_mask
    assert torch.equal(after[train], out.logits.log_softmax(-1)[train])
    assert not torch.allclose(after[~train], out.logits.log_softmax(-1)[~train])


def test_weights_go_to_the_right_nodes(graph):
    out = model_outputs(graph)
    facts = structure(graph)
    w = SCAR(0.1, 0.4).fit(out, graph.val_mask).weights(out)
    assert (w[facts.train_mask] == 0).all()
    assert (w[facts.next_to_training] == 0.1).all()
    assert (w[facts.hops > 1] == 0.4).all()
    assert w[-1] == 0.4  # the isolated node


def test_exact_fit_beats_every_grid_point(graph):
    out = model_outputs(graph)
    on = graph.val_mask
    fitted = SCAR(graph=False, keep_predictions=False).fit(out, on)
    best = validation_nll(fitted, out, on)
    for alpha in torch.linspace(-0.2, 1, 25).tolist():
        for beta in torch.linspace(-0.2, 1, 25).tolist():
            assert best <= moved_nll(out, on, alpha, beta) + 1e-12


def test_joint_fit_with_temperature_is_a_stationary_point(graph):
    out = model_outputs(graph)
    on = graph.val_mask
    fitted = SCAR(temperature=True, keep_predictions=False).fit(out, on)
    here = [float(fitted.alpha), float(fitted.beta), float(fitted.scale)]
    value = moved_nll(out, on, *here)
    assert value == pytest.approx(validation_nll(fitted, out, on), abs=1e-10)
    for k in range(3):
        for step in (-1e-3, 1e-3):
            there = list(here)
            there[k] += step
            assert moved_nll(out, on, *there) > value
    assert value <= validation_nll(SCAR(graph=False, keep_predictions=False).fit(out, on), out, on)


def test_given_weights_are_used_and_the_other_is_fitted(graph):
    out = model_outputs(graph)
    fitted = SCAR(alpha=0.05).fit(out, graph.val_mask)
    assert float(fitted.alpha) == 0.05
    alone = SCAR(graph=False).fit(out, graph.val_mask)
    assert float(fitted.beta) == pytest.approx(float(alone.beta), abs=1e-8)  # beta does not see V_F


def test_few_nodes_share_one_weight(graph):
    out = model_outputs(graph)
    near = structure(graph).next_to_training & graph.val_mask
    far = graph.val_mask & ~near
    on = far.clone()
    on[near.nonzero().flatten()[:5]] = True
    fitted = SCAR(graph=False).fit(out, on)
    assert float(fitted.alpha) == float(fitted.beta)


def test_an_over_confident_model_gets_negative_weights(graph):
    out = model_outputs(graph, noise=2.0, sharpness=3.0)
    fitted = SCAR(graph=False).fit(out, graph.val_mask)
    assert float(fitted.beta) < 0
    assert validation_nll(fitted, out, graph.val_mask) < float(
        torch.nn.functional.cross_entropy(out.logits[graph.val_mask], graph.y[graph.val_mask])
    )


FORMS = {
    "given": lambda w: SCAR(w, w),
    "given+temperature": lambda w: SCAR(w, w, temperature=True),
    "graph": lambda w: SCAR(),
    "sides": lambda w: SCAR(graph=False),
    "hops": lambda w: SCAR(per="hop", temperature=True),
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
    assert (SCAR(0.5, 0.5, keep_predictions=False).fit(out, on)(out).argmax(-1) == 1).all()
    guarded = SCAR(0.5, 0.5).fit(out, on)
    assert (guarded(out).argmax(-1) == 0).all()
    assert int(guarded.capped(out).sum()) == n


FITTED = {
    "graph": SCAR(),
    "sides": SCAR(graph=False),
    "shared": SCAR(per="shared"),
    "hops": SCAR(per="hop"),
    "temperature": SCAR(temperature=True),
    "hops+temperature": SCAR(per="hop", temperature=True),
    "means": SCAR(graph=False, centroids="means"),
}


@pytest.mark.parametrize("form", FITTED)
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_a_fit_never_raises_validation_nll_and_keeps_predictions(graph, form, sharpness):
    out = model_outputs(graph, noise=1.5, sharpness=sharpness)
    fitted = FITTED[form].fit(out, graph.val_mask)
    own = float(torch.nn.functional.cross_entropy(out.logits[graph.val_mask], graph.y[graph.val_mask]))
    assert validation_nll(fitted, out, graph.val_mask) <= own + 1e-9
    assert torch.equal(fitted(out).argmax(-1), out.pred)
    assert torch.equal(fitted(out)[graph.train_mask], out.logits.log_softmax(-1)[graph.train_mask])


def test_a_model_that_needs_nothing_is_mostly_left_alone_and_says_so(graph):
    out = model_outputs(graph)
    left_alone = 0
    for draw in range(20):
        honest = graph.clone()  # labels drawn from the model itself: it is right as it is
        g = torch.Generator().manual_seed(draw)
        honest.y = torch.multinomial(out.logits.softmax(-1), 1, generator=g).flatten()
        seen = Outputs(out.logits, honest, out.final, out.hidden)
        fitted = SCAR(graph=False).fit(seen, graph.val_mask)
        if fitted.note:
            left_alone += 1
            assert "left as it was" in fitted.note
            assert torch.allclose(fitted(seen), out.logits.log_softmax(-1))
    assert left_alone >= 10


def test_graph_aware_form_learns_what_depends_on_the_neighbours():
    """Confidence is honest where neighbours agree and far too low elsewhere: one scale cannot mend it, the facts can."""
    graph = random_graph(nodes=3000, train=100, val=1200, seed=3)
    base = model_outputs(graph, noise=1.5)
    from graphcal.graphs import neighbour_agreement

    agree = neighbour_agreement(base.pred, structure(graph))
    logits = base.logits * (0.25 + 1.5 * agree)[:, None]
    out = Outputs(logits, graph, base.final, base.hidden)
    test = graph.test_mask
    loss = {
        name: float(torch.nn.functional.nll_loss(recipe.fit(out, graph.val_mask)(out)[test], graph.y[test]))
        for name, recipe in {"graph": SCAR(), "temperature": SCAR(temperature=True)}.items()
    }
    assert loss["graph"] < loss["temperature"] - 0.01


def test_facts_of_some_nodes_are_their_rows_of_everybodys(graph):
    from graphcal.engine.node_features import node_facts, node_facts_of

    lonely = graph.clone()  # node 0 has no neighbour left: it is its own neighbourhood
    lonely.edge_index = graph.edge_index[:, (graph.edge_index != 0).all(0)]
    out = model_outputs(lonely)
    some = torch.tensor([5, 0, 17, 3])
    assert torch.allclose(node_facts_of(out, some), node_facts(out)[some], atol=1e-12)
    agree, agree2, degree, support = node_facts(out)[0, 1:5]
    assert (float(agree), float(agree2), float(degree)) == (1.0, 1.0, 0.0)
    assert float(support) == pytest.approx(float(out.logits[0].softmax(-1).max()))


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_the_path_of_ridges_finds_what_solving_each_of_them_finds(graph, sharpness):
    from graphcal.engine.leave_one_out import leave_one_out_logits
    from graphcal.engine.linear import LinearFit, soft_nll
    from graphcal.engine.ridge_path import best_ridge

    out = model_outputs(graph, noise=1.5, sharpness=sharpness)
    index = graph.val_mask.nonzero().flatten()
    z, y = out.logits[index].double(), graph.y[index]
    columns = torch.randn(len(index), 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    columns[:, 0] = 1.0
    terms = columns[:, None, :] * z[:, :, None]
    terms = terms / (terms - terms.mean(1, keepdim=True)).square().mean((0, 1)).sqrt()
    target = torch.nn.functional.one_hot(y, 4).double()
    centre, held = torch.zeros(6, dtype=torch.double), torch.ones(6, dtype=torch.double)
    held[0] = 0.0
    base, ridges = torch.zeros_like(z), (1.0, 0.1, 0.01, 0.001)
    centre[:1] = LinearFit(base, terms[:, :, :1], y).minimiser()
    fit = LinearFit(base, terms, y, centre)
    solved = {ridge: fit.minimiser(ridge * held) for ridge in ridges}
    unseen = {
        r: float(soft_nll(leave_one_out_logits(base, terms, target, t, r * held), target)) for r, t in solved.items()
    }
    chosen = best_ridge(terms, y, target, centre, held, ridges)
    assert unseen[chosen.ridge] == pytest.approx(min(unseen.values()), abs=1e-6)
    assert torch.allclose(chosen.theta, solved[chosen.ridge], atol=1e-8)
    assert chosen.unseen_nll == pytest.approx(unseen[chosen.ridge], abs=1e-9)


def test_hops_with_no_fitting_node_take_the_pooled_weight(graph):
    out = model_outputs(graph)
    pooled = SCAR(per="shared").fit(out, graph.val_mask)
    fitted = SCAR(per="hop").fit(out, graph.val_mask & (structure(graph).hops <= 2) & (structure(graph).hops > 0))
    assert len(fitted.pull) == 4
    near_only = graph.val_mask & (structure(graph).hops == 1)
    one_hop = SCAR(per="hop").fit(out, near_only)
    shared = SCAR(per="shared").fit(out, near_only)
    assert one_hop.pull[3] == pytest.approx(float(shared.pull[0]), abs=1e-6)
    assert pooled.pull.shape == (1,)


def test_grid_is_the_papers_triangle(graph):
    out = model_outputs(graph, sharpness=0.3)
    for criterion in ("nll", "ece"):
        fitted = SCAR(search="grid", criterion=criterion).fit(out, graph.val_mask)
        assert fitted.alpha < fitted.beta <= 5e-3
    by_nll = SCAR(search="grid").fit(out, graph.val_mask)
    assert moved_nll(out, graph.val_mask, by_nll.alpha, by_nll.beta) <= moved_nll(out, graph.val_mask, 1e-4, 1e-3)


def test_means_are_the_training_nodes_own_centroids(graph):
    out = model_outputs(graph)
    fitted = SCAR(0.1, 0.2, centroids="means", keep_predictions=False).fit(out, graph.val_mask)
    means = torch.stack([out.hidden[graph.train_mask & (graph.y == c)].mean(0) for c in range(4)])
    near = structure(graph).next_to_training[:, None]
    w = torch.where(near, 0.1, 0.2) * ~graph.train_mask[:, None]
    moved = (1 - w) * out.hidden + w * means[out.pred]
    expected = (moved @ out.final.weight.T + out.final.bias).log_softmax(-1)
    assert torch.allclose(fitted(out), expected, atol=1e-9)


def test_leave_one_out_is_close_to_leaving_one_out(graph):
    from graphcal.engine.leave_one_out import leave_one_out_logits
    from graphcal.engine.linear import fit_linear

    out = model_outputs(graph)
    index = graph.val_mask.nonzero().flatten()[:60]
    z, y = out.logits[index], graph.y[index]
    terms = torch.stack([z, out.final.gram.T[out.pred[index]]], -1)
    base, ridge = torch.zeros_like(z), torch.tensor([0.01, 0.02], dtype=torch.double)
    theta = fit_linear(base, terms, y, ridge)
    quick = leave_one_out_logits(base, terms, torch.nn.functional.one_hot(y, 4).double(), theta, ridge)
    literal = torch.empty_like(z)
    for i in range(len(index)):
        rest = torch.arange(len(index)) != i
        # the ridge counts against a mean over n nodes, so n - 1 nodes carry n / (n - 1) of it
        again = fit_linear(base[rest], terms[rest], y[rest], ridge * 60 / 59, guess=theta)
        literal[i] = terms[i] @ again
    cross_entropy = torch.nn.functional.cross_entropy
    seen = cross_entropy(terms @ theta, y)
    optimism = cross_entropy(literal, y) - seen
    assert cross_entropy(quick, y) - seen == pytest.approx(float(optimism), rel=0.1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"search": "random"}, "must be one of exact, grid"),
        ({"alpha": 0.1, "per": "hop"}, "belong to per='side'"),
        ({"search": "grid", "temperature": True}, "nothing else may be set"),
        ({"graph": True, "temperature": True}, "graph=True fits its own"),
        ({"centroids": "median"}, "must be one of weights, means"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        SCAR(**wrong)


@pytest.mark.parametrize("recipe", [SCAR(), SCAR(graph=False), SCAR(temperature=True), TemperatureScaling()], ids=repr)
def test_a_model_that_is_right_on_every_fitting_node_does_not_become_certain(graph, recipe):
    out = model_outputs(graph, noise=0.3)
    right = graph.val_mask & (out.pred == graph.y)
    fitted = recipe.fit(out, right)
    confidence = fitted(out)[right].exp().max(-1).values
    before = out.logits[right].softmax(-1).max(-1).values
    assert 0.2 < float((1 - confidence).sum()) <= float((1 - before).sum())  # without smoothed targets: nothing


def test_the_official_gat_code_mixes_before_attention():
    graph = random_graph(nodes=120, train=30, val=50)
    out = train(graph, "gat", Training(hidden_channels=4, epochs=5), seeds=[0])[0].outputs
    nothing = SCAR(0.0, 0.0, mix="before-attention").fit(out, graph.val_mask)
    assert torch.allclose(nothing(out), out.logits.log_softmax(-1), atol=1e-5)
    moved = SCAR(0.2, 0.4, mix="before-attention").fit(out, graph.val_mask)(out)
    after = SCAR(0.2, 0.4, keep_predictions=False).fit(out, graph.val_mask)(out)
    leaked = (moved - out.logits.log_softmax(-1))[graph.train_mask].abs().amax(-1)
    assert (leaked > 1e-4).any()  # a neighbour's shift reaches training nodes through attention
    assert not torch.allclose(moved, after, atol=1e-3)  # so it is not Eq. 10
    with pytest.raises(ValueError, match="needs the outputs of graphcal.train"):
        SCAR(0.2, 0.4, mix="before-attention").fit(out, graph.val_mask)(replace(out, premixed=None))
    with pytest.raises(ValueError, match="give it alpha and beta"):
        SCAR(mix="before-attention")


@pytest.mark.parametrize("name", sorted(set(BACKBONES) - {"gpn"}))
def test_given_weights_agree_with_representation_space_for_every_backbone(name):
    graph = random_graph(nodes=120, train=30, val=50)
    out = train(graph, name, Training(hidden_channels=4, epochs=3), seeds=[0])[0].outputs
    if out.final is None:
        pytest.skip(f"{name} has no final layer that its logits are linear in")
    weight, bias, hidden = (v.double() for v in (out.final.weight, out.final.bias, out.hidden))
    exact = Outputs(hidden @ weight.T + bias, graph, FinalLayer.from_weight(weight, bias), hidden)
    assert torch.allclose(exact.logits, out.logits.double(), atol=1e-4)
    near = structure(graph).next_to_training[:, None]
    w = torch.where(near, 0.01, 0.05).double() * ~graph.train_mask[:, None]
    moved = ((1 - w) * hidden + w * weight[exact.pred]) @ weight.T + bias
    ours = SCAR(0.01, 0.05, keep_predictions=False).fit(exact, graph.val_mask)(exact)
    assert torch.allclose(ours, moved.log_softmax(-1), atol=1e-6)
