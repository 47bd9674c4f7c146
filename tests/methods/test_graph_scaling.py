"""Graph scaling: its columns, the convex fit with ridges by evidence, leave-one-out, the mixture, levels and keep mode."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian as autograd_hessian
from torch.nn.functional import nll_loss
from torch_geometric.data import Data

from conftest import random_graph
from graphcal.core import Outputs
from graphcal.graphs import TracedSums, structure
from graphcal.methods import GraphScaling, TemperatureScaling
from graphcal.methods.graph_scaling import columns, field, fit
from graphcal.methods.graph_scaling.calibration import Level, kept, pooled, predicted, stacked, tempered
from graphcal.methods.graph_scaling.columns import Components, Design
from graphcal.methods.graph_scaling.fit import Problem
from graphcal.methods.solvers.linear import platt_targets
from small_outputs import model_outputs, permuted


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def design_of(classes: int, n: int, q: int = 3, covariates: int = 2, seed: int = 0) -> tuple[Design, Tensor]:
    """A design with centred fields and the labels of a model that it nearly holds, as a target (C, n)."""
    g = draw(seed)
    fields = [torch.randn(classes, n, generator=g, dtype=torch.double) for _ in range(3)]
    fields = [field - field.mean(0) for field in fields]
    f = torch.cat([torch.ones(1, n), torch.randn(covariates, n, generator=g)]).double()
    x = torch.cat([torch.ones(1, n), torch.randn(q - 1, n, generator=g)]).double()
    truth = 0.8 * fields[0] + 0.4 * f[1] * fields[1] + 0.5 * torch.randn(classes, q, generator=g).double() @ x
    y = torch.multinomial(truth.T.softmax(-1), 1, generator=g)[:, 0]
    return Design(tuple(fields), f, x), torch.nn.functional.one_hot(y, classes).T.double()


def dense(problem: Problem) -> Tensor:
    """X (n, C, K) with every column of mean square 1, written down."""
    design, classes = problem.design, problem.classes
    shared = [f[j] * field for field, f, _ in design.blocks() for j in range(len(f))]
    per_class = [torch.zeros_like(design.fields[0]) for _ in range(classes * len(design.x))]
    for k, column in enumerate(per_class):
        column[k // len(design.x)] = design.x[k % len(design.x)]
    terms = torch.stack([*shared, *per_class], -1).transpose(0, 1)  # (n, C, K)
    return terms / problem.size


def groups_of(problem: Problem) -> Tensor:
    return torch.cat([torch.tensor([0, 1, 1, 2, 3, 3, 2]), torch.tensor([4, 5, 5]).repeat(problem.classes)])


# ------------------------------------------------------------------------------------------------- columns


def test_covariates_by_hand():
    """A path 0 - 1 - 2 and an isolated node 3; everything counted by hand."""
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    facts = structure(Data(edge_index=edges, num_nodes=4))
    scale = torch.tensor(0.5)
    rows = columns.opinion_rows(logits, scale)
    one = facts.neighbour_sum(rows)
    context = columns.graph_rows(rows, one, facts.neighbour_sum(one), facts.reciprocal_degree[:, None])
    p = (0.5 * logits).softmax(-1)
    conf, mean = p.max(-1).values, (p[0] + p[2]) / 2
    named = dict(zip(columns.COVARIATES, context[1]))
    assert named["agree"] == 0.5  # of node 0 and node 2
    assert named["agree_2hop"] == 0.0  # every walk of length two from the middle returns
    assert context[0, 1] == 0.0  # the one walk from 0 that does not return ends in 2, of another class
    torch.testing.assert_close(named["log_degree"], torch.tensor(math.log(3)))
    torch.testing.assert_close(named["support"], mean[0])
    torch.testing.assert_close(named["conf_gap"], conf[1] - (conf[0] + conf[2]) / 2)
    torch.testing.assert_close(named["entropy"], -(mean * mean.log()).sum())
    assert context[:, columns.ISOLATED].tolist() == [0, 0, 0, 1]
    v1, v2 = context[:, 7:9], context[:, 9:]
    torch.testing.assert_close(v1[1], mean.log() - mean.log().mean())
    torch.testing.assert_close(v2[0], p[2].log() - p[2].log().mean())
    assert v2[1].tolist() == [0, 0]
    assert v1[3].tolist() == v2[3].tolist() == [0, 0]


def test_covariates_are_clamped_to_the_fitted_range():
    raw = torch.stack([torch.linspace(-1, 1, 50)] * 8).double()
    isolated = torch.zeros(50, dtype=torch.bool)
    units = columns.covariate_units(raw, isolated)
    inside = columns.standardized(raw, isolated, **units)
    outside = columns.standardized(100 * raw, isolated, **units)
    assert torch.equal(outside[1:].amax(1), inside[1:].amax(1))
    assert torch.equal(outside[1:].amin(1), inside[1:].amin(1))
    heavy = torch.cat([torch.zeros(8, 200), torch.full((8, 1), 1e3)], 1).double()
    units = columns.covariate_units(heavy, torch.zeros(201, dtype=torch.bool))
    assert (units["high"] <= columns.WIDEST).all()


@pytest.mark.parametrize(("count", "used"), [(9, False), (10, True)])
def test_isolated_is_a_covariate_from_ten_fitted_nodes_on(count, used):
    raw = torch.randn(8, 60, generator=draw()).double()
    isolated = torch.arange(60) < count
    raw[columns.ISOLATED] = isolated.double()
    units = columns.covariate_units(raw, isolated)
    assert (float(units["rate"][columns.ISOLATED]) > 0) == used
    f = columns.standardized(raw, isolated, **units)
    assert torch.equal(f[1, :count], torch.zeros(count).double())  # agree: average, whatever the row holds
    assert (f[1, count:] != 0).all()
    torch.testing.assert_close(units["centre"][0], raw[0, count:].mean())  # and it does not count


def test_principal_components_are_those_of_standardized_units():
    values = (
        torch.randn(300, 5, generator=draw()) @ torch.randn(5, 5, generator=draw(1)) * torch.tensor([1, 10, 1, 1, 0])
    )
    nodes = torch.arange(100)
    parts = Components.of(values, nodes, 3)
    units = ((values - values[:100].mean(0)) / values[:100].std(0, correction=0))[:, :4].double()
    vectors = torch.linalg.svd(units, full_matrices=False)[2][:3]
    expected = units @ vectors.T
    rows = parts.rows(values.double())
    low, high = rows[:100].amin(0), rows[:100].amax(0)
    for k in range(3):
        sign = torch.sign((rows[:100, k] * expected[:100, k]).sum())
        torch.testing.assert_close(rows[:, k], (sign * expected[:, k]).clamp(low[k], high[k]), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(parts.rows(50 * values.double()).amax(0), parts.high)
    assert Components.of(values, nodes, 32).rotation.shape == (5, 4)  # the constant unit is dropped


@pytest.mark.parametrize("sparse", [False, True])
def test_singular_directions_span_the_first_ones_of_rows_of_unit_length(sparse):
    x = torch.randn(400, 3, generator=draw()) @ torch.randn(3, 60, generator=draw(1)) + 0.01 * torch.randn(
        400, 60, generator=draw(2)
    )
    x[7] = 0
    unit = torch.nn.functional.normalize(x)
    exact = torch.linalg.svd(unit, full_matrices=False)[2][:3]
    given = x.to_sparse_csr() if sparse else x
    directions = columns.singular_directions(given, count=3)
    overlap = torch.linalg.svdvals(exact @ directions)
    assert float(overlap.min()) > 0.999
    rows = columns.direction_rows(given, directions)
    torch.testing.assert_close(rows[:, :3], unit @ directions, atol=1e-5, rtol=1e-5)
    assert rows[7].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("classes", "rank", "hidden", "inputs"),
    [(2, 2, 32, 48), (10, 10, 32, 48), (20, 20, 11, 17), (50, 8, 4, 6), (401, 0, 0, 0), (1001, 0, 0, 0)],
)
def test_b_has_at_most_a_thousand_entries(classes, rank, hidden, inputs):
    z = torch.randn(classes, 30, generator=draw()).double()
    assert columns.principal_directions(z).shape == (classes, rank)
    assert columns.component_counts(classes, True, True) == (hidden, inputs)
    alone, nothing = columns.component_counts(classes, True, False)
    assert alone <= 32
    assert nothing == 0
    assert classes > 1000 or (1 + rank + hidden + inputs) * classes <= 1000


# ------------------------------------------------------------------------------------------------- the convex fit


@pytest.mark.parametrize("classes", [2, 4])
def test_gradient_and_hessian_are_those_of_autograd(classes):
    design, target = design_of(classes, 40)
    problem = Problem(design, target, torch.tensor(0.7))
    terms = dense(problem)
    torch.testing.assert_close(
        (terms - terms.mean(1, keepdim=True)).square().mean((0, 1)), torch.ones(terms.shape[2]).double()
    )

    def nll(t: Tensor) -> Tensor:
        return -((terms @ t).log_softmax(-1) * target.T).sum() / 40

    t = torch.randn(terms.shape[2], generator=draw(1)).double()
    probs = problem.at(t, torch.zeros_like(t))[0].exp()
    torch.testing.assert_close(probs.T, (terms @ t).softmax(-1))
    tracked = t.clone().requires_grad_()
    torch.testing.assert_close(problem.gradient(probs), torch.autograd.grad(nll(tracked), tracked)[0])
    torch.testing.assert_close(problem.hessian(probs), autograd_hessian(nll, t))
    assert problem.at(t, torch.full_like(t, 2.0))[1] == pytest.approx(
        float(nll(t) + (t - problem.start).square().sum())
    )


def test_parts_of_the_nodes_give_the_same(monkeypatch):
    design, target = design_of(4, 40)
    whole, probs = Problem(design, target, torch.tensor(0.7)), target * 0.4 + 0.15
    parts = Problem(design, target, torch.tensor(0.7))
    monkeypatch.setattr(fit, "CHUNK", 2048)
    torch.testing.assert_close(parts.hessian(probs), whole.hessian(probs))
    assert len(parts._parts) > 1


@pytest.mark.parametrize("classes", [3, 25])
def test_uncertainty_equals_that_of_explicit_matrices(classes):
    """v_n is the mean over pairs of classes of Var(z_c - z_k), with S_n = X_n V X_n^T / n written down."""
    design, target = design_of(classes, 60)
    problem = Problem(design, target, torch.tensor(0.7))
    ridge = torch.full_like(problem.size, 0.3)
    t, inverse = fit.solve(problem, problem.start, ridge)
    terms = dense(problem)
    explicit = terms @ inverse @ terms.mT / 60
    for nodes, covariance in problem.covariances(inverse):
        torch.testing.assert_close(covariance.double(), explicit[nodes], atol=1e-5, rtol=1e-4)
    pairs = [(c, k) for c in range(classes) for k in range(classes) if c != k]
    by_hand = sum(explicit[:, c, c] + explicit[:, k, k] - 2 * explicit[:, c, k] for c, k in pairs) / len(pairs)
    forms = fit.variance_forms(problem, inverse)
    torch.testing.assert_close(design.variance(**forms), by_hand)
    theta, weight = problem.split(t)
    level = Level(theta=theta, weight=weight, stack=torch.ones(2), top=torch.ones(2), **forms)
    z = (terms @ t).T
    torch.testing.assert_close(level.member(design), (z / (1 + math.pi / 8 * by_hand).sqrt()).log_softmax(0))


def test_ridges_are_the_fixed_point_of_the_evidence():
    """At the end lambda = (gamma + 2) / (|t - start|^2 + 0.02) for every group, by independent arithmetic."""
    design, target = design_of(3, 400, seed=3)
    problem, group = Problem(design, target, torch.tensor(0.7)), None
    group = groups_of(problem)
    first = torch.tensor([150.0, 100, 100, 100, 100, 100]).double()
    _, lambdas = fit.evidence(problem, group, first)
    assert lambdas[0] == 150  # the constant of the scale keeps its ridge
    ridge = lambdas[group] / 400
    t, _ = fit.solve(problem, problem.start, ridge)
    terms = dense(problem)
    p = (terms @ t).softmax(-1)
    curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    hessian = torch.einsum("nck,ncd,ndl->kl", terms, curvature, terms)
    variance = torch.linalg.inv(hessian + lambdas[group].diag()).diagonal()
    for g in range(1, 6):
        inside = group == g
        gamma = (1 - lambdas[g] * variance[inside]).sum()
        expected = ((gamma + 2) / ((t - problem.start)[inside].square().sum() + 0.02)).clamp(3, 3000)
        assert math.log(lambdas[g] / expected) == pytest.approx(0, abs=0.06)
    assert lambdas[3] < lambdas[2]  # v1 counts by a covariate in the truth, and not by itself
    again, _ = fit.evidence(problem, group, torch.full((6,), 1000.0).double().index_fill_(0, torch.tensor([0]), 150.0))
    refitted = fit.solve(problem, again, ridge)[0]
    torch.testing.assert_close(refitted, t, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("classes", [3, 24])
def test_leave_one_out_equals_twenty_refits(classes):
    """Logits and uncertainty of a node from the fit without it, at the same ridges on the sum of the losses."""
    n = 150 if classes == 3 else 400
    design, target = design_of(classes, n, seed=5)
    problem = Problem(design, target, torch.tensor(0.7))
    ridge = torch.full_like(problem.size, 30.0 / n)
    t, inverse = fit.solve(problem, problem.start, ridge)
    z, v = fit.leave_one_out(problem, t, inverse)
    log_probs = tempered(z, v)
    error = []
    for node in range(0, n, n // 20):
        others = torch.arange(n) != node
        reduced = Problem(design.part(others), target[:, others], torch.tensor(0.7))
        reduced.size, reduced.start = problem.size, problem.start
        fewer, covariance = fit.solve(reduced, problem.start, 30.0 / (n - 1) * torch.ones_like(ridge))
        alone = design.part(torch.tensor([node]))
        exact = tempered(alone.logits(*reduced.split(fewer)), alone.variance(**fit.variance_forms(reduced, covariance)))
        error.append(float((log_probs[:, node] - exact[:, 0]).abs().max()))
        seen = alone.logits(*problem.split(t)).log_softmax(0)[:, 0]
        assert error[-1] < 0.3 * float((seen - exact[:, 0]).abs().max()) + 0.01
    assert sum(error) / len(error) < 0.02


def test_strong_ridges_lead_to_temperature_scaling():
    design, target = design_of(3, 80)
    problem = Problem(design, target, torch.tensor(0.7))
    t, _ = fit.solve(problem, torch.zeros_like(problem.size), torch.full_like(problem.size, 1e6))
    torch.testing.assert_close(design.logits(*problem.split(t)), 0.7 * design.fields[0], atol=1e-4, rtol=1e-4)


def test_the_mixture_is_that_of_leave_one_out_at_the_ridges_of_the_fit():
    design, target = design_of(3, 120, seed=4)
    z, y, scale = design.fields[0], target.argmax(0), torch.tensor(0.7).double()
    names = ["constant", "covariates", "neighbours", "by covariates", "bias", "matrix"]
    groups = [names[k] for k in (0, 1, 1, 2, 3, 3, 2, 4, 5, 5)]
    fitted = fit.fit_level(design, z, y, scale, groups, {})
    assert fitted.lambdas["constant"] == 150  # towards temperature scaling, whatever the evidence
    problem = Problem(design, platt_targets(y, z.T).T, scale)
    ridge = torch.tensor([fitted.lambdas[name] for name in names]).double()[groups_of(problem)] / 120
    t, inverse = fit.solve(problem, problem.start, ridge)
    member = tempered(*fit.leave_one_out(problem, t, inverse))
    expected = stacked(fitted.plain, member, fitted.level.stack)
    torch.testing.assert_close(fitted.log_probs, expected, atol=1e-4, rtol=1e-4)


def test_many_labels_choose_on_some_and_fit_on_all(monkeypatch):
    out = model_outputs(random_graph(nodes=400, val=300))
    on = out.graph.val_mask
    whole = GraphScaling().fit(out, on=on)
    monkeypatch.setattr(fit, "MOST_NODES", 150)
    some = GraphScaling().fit(out, on=on)
    assert not torch.equal(whole.base.stack, some.base.stack)  # chosen on some
    assert float((whole(out).exp() - some(out).exp()).abs().mean()) < 0.05
    sizes, solve = [], fit.solve
    monkeypatch.setattr(fit, "solve", lambda problem, t, ridge: (sizes.append(problem.n), solve(problem, t, ridge))[1])
    GraphScaling(hidden=False).fit(out, on=on)
    assert sizes == [150, 300]  # and the parameters on all


# ------------------------------------------------------------------------------------------------- mixture


def mixture_nll(w: float, e: float, plain: Tensor, member: Tensor, y: Tensor) -> float:
    mixed = (w * plain.exp() + (1 - w) * member.exp()) ** e
    return -float((mixed / mixed.sum(0)).log().gather(0, y[None]).sum())


def test_weight_and_exponent_minimise_their_penalised_losses():
    g, n = draw(2), 300
    y = torch.randint(0, 3, (n,), generator=g)
    target = torch.nn.functional.one_hot(y, 3).T.double()
    plain, member = (
        (torch.randn(3, n, generator=g).double() + strength * target).log_softmax(0) for strength in (1.0, 1.5)
    )
    w, e = fit.fit_stack(plain, member, target).tolist()

    def with_prior(w: float) -> float:
        return mixture_nll(w, 1.0, plain, member, y) - (2 + 150 / n) * math.log(w) - 2 * math.log(1 - w)

    def with_ridge(e: float) -> float:
        return mixture_nll(w, e, plain, member, y) + 15 * (e - 1) ** 2

    grid = torch.linspace(0.002, 0.998, 499).tolist()
    assert w == pytest.approx(min(grid, key=with_prior), abs=0.004)
    assert e == pytest.approx(min((3 * k for k in grid), key=with_ridge), abs=0.01)
    assert e > 1
    mixed = (w * plain.exp() + (1 - w) * member.exp()) ** e
    torch.testing.assert_close(stacked(plain, member, torch.tensor([w, e]).double()).exp(), mixed / mixed.sum(0))


def test_few_labels_stay_near_temperature_scaling():
    """With three labels of which the member explains all, 50 pseudo-observations hold the weight."""
    plain, member = torch.full((2, 3), 0.5).double().log(), torch.tensor([[0.99] * 3, [0.01] * 3]).double().log()
    target = torch.tensor([[1.0] * 3, [0.0] * 3]).double()
    assert float(fit.fit_stack(plain, member, target)[0]) > 0.8
    many = [x.repeat(1, 200) for x in (plain, member, target)]
    assert float(fit.fit_stack(*many)[0]) < 0.05


def test_a_negative_temperature_is_not_fitted():
    """Logits that lower the true class: temperature scaling would reverse the ranking, and is clamped instead."""
    g = draw(0)
    y = torch.randint(0, 5, (400,), generator=g)
    logits = torch.randn(400, 5, generator=g) - torch.nn.functional.one_hot(y, 5)
    on = torch.zeros(400, dtype=torch.bool)
    on[torch.randperm(400, generator=g)[:30]] = True
    out = Outputs(logits, Data(y=y, num_nodes=400))
    fitted = GraphScaling().fit(out, on=on)
    assert fitted.scale > 0
    kept_order = fitted.log_probs(logits, fitted.unknown_context(logits))
    keep = GraphScaling(predictions="keep").fit(out, on=on)
    assert torch.equal(keep(out).argmax(-1), out.pred)
    assert kept_order.isfinite().all()


def test_logits_of_any_size_give_the_same_probabilities():
    """Logits ten thousand times too large need a scale below .001, in single precision as well."""
    out = model_outputs(random_graph(nodes=400, val=120))
    large = replace(out, logits=1e4 * out.logits)
    for recipe in (TemperatureScaling(), GraphScaling()):
        first, second = (recipe.fit(o, on=o.graph.val_mask)(o) for o in (out, large))
        torch.testing.assert_close(first, second, atol=2e-4, rtol=1e-4)


# ------------------------------------------------------------------------------------------------- keep mode


def test_the_top_probability_is_fitted_after_the_projection():
    log_probs = torch.randn(3, 300, generator=draw(5)).double().mul(2).log_softmax(0)
    y = torch.randint(0, 3, (300,), generator=draw(6))
    top = torch.zeros(3, 300, dtype=torch.bool).scatter_(0, torch.randint(0, 3, (1, 300), generator=draw(7)), True)
    torch.testing.assert_close(fit.fit_top(log_probs, top, y), fit.fit_top(pooled(log_probs, top), top, y))


def test_pooled_is_the_nearest_distribution_that_keeps_the_prediction():
    log_probs = torch.randn(5, 40, generator=draw()).double().mul(2).log_softmax(0)
    top = torch.zeros(5, 40, dtype=torch.bool).scatter_(0, torch.randint(0, 5, (1, 40), generator=draw(1)), True)
    q = pooled(log_probs, top).exp()
    torch.testing.assert_close(q.sum(0), torch.ones(40).double())
    assert ((q * top).sum(0) >= q.amax(0) - 1e-12).all()
    leads = (log_probs.exp() * top).sum(0) == log_probs.exp().amax(0)
    torch.testing.assert_close(q[:, leads], log_probs.exp()[:, leads])
    loss = -(log_probs.exp() * q.log()).sum(0)
    g = draw(3)
    for _ in range(300):  # no feasible neighbour is nearer
        other = q * (1 + 0.05 * torch.randn(5, 40, generator=g).double())
        other = torch.where(top, torch.maximum(other, other.masked_fill(top, 0).amax(0)), other)
        other = other / other.sum(0)
        assert (-(log_probs.exp() * other.log()).sum(0) >= loss - 1e-12).all()


def test_keep_moves_the_top_probability_and_projects_again():
    """t = .4 becomes sigmoid(logit .4 - .6) = .2679, the others are rescaled, and the one that is now ahead shares its lead."""
    p, top = torch.tensor([[0.4, 0.35, 0.15, 0.1]]).double().T, torch.tensor([[True, False, False, False]]).T
    q = kept(p.log(), top, torch.tensor([1.0, -0.6]).double()).exp()[:, 0]
    t = 1 / (1 + 1.5 * math.exp(0.6))
    others = (1 - t) * torch.tensor([0.35, 0.15, 0.1]).double() / 0.6
    level = (t + float(others[0])) / 2
    torch.testing.assert_close(q, torch.tensor([level, level, float(others[1]), float(others[2])]).double())


def test_keep_mode_keeps_every_prediction_and_beats_temperature_scaling():
    out = model_outputs(random_graph(nodes=900, val=300))
    shifted = replace(out, logits=out.logits + torch.tensor([1.5, 0.0, 0.0, -1.5]))  # many predictions are wrong
    on = out.graph.val_mask
    keep, free, ts = (
        r.fit(shifted, on=on)(shifted) for r in (GraphScaling("keep"), GraphScaling(), TemperatureScaling())
    )
    assert torch.equal(keep.argmax(-1), shifted.pred)
    assert not torch.equal(free.argmax(-1), shifted.pred)
    test, y = out.graph.test_mask, out.graph.y
    assert nll_loss(free[test], y[test]) < nll_loss(keep[test], y[test]) < nll_loss(ts[test], y[test])


def test_two_parameters_calibrate_the_top_probability():
    """Predictions that are right half as often as they say: the fitted sigmoid says so."""
    g, n = draw(4), 2000
    log_probs = torch.randn(3, n, generator=g).double().mul(2).log_softmax(0)
    top = predicted(log_probs)
    right = torch.rand(n, generator=g) < 0.5 * log_probs.exp().amax(0)
    y = torch.where(right, log_probs.argmax(0), (log_probs.argmax(0) + 1) % 3)
    a, b = fit.fit_top(log_probs, top, y)
    assert a > 0
    odds = log_probs.amax(0) - torch.log1p(-log_probs.amax(0).exp())
    assert float((a * odds + b).sigmoid().mean()) == pytest.approx(float(right.double().mean()), abs=0.01)
    same = kept(log_probs, top, torch.tensor([1.0, 0.0]).double())
    torch.testing.assert_close(same, log_probs)  # a = 1, b = 0 leaves distributions that keep the prediction


# ------------------------------------------------------------------------------------------------- levels and edge cases


def test_rows_without_hidden_columns_get_the_level_without():
    out = model_outputs()
    on = out.graph.val_mask
    both = GraphScaling().fit(out, on=on)
    base = GraphScaling(hidden=False).fit(out, on=on)
    assert both.level == "logits · edges · hidden"
    assert base.level == "logits · edges"
    assert f"level: {both.level}" in both.note
    assert both.needs.hidden
    assert not base.needs.hidden
    blind = replace(out, hidden=None)
    torch.testing.assert_close(both(blind), base(out))
    assert not torch.allclose(both(out), base(out), atol=1e-3)
    context = both.context_of(out)
    context[::3, both.width :] = torch.nan
    mixed = both.log_probs(out.logits, context)
    torch.testing.assert_close(mixed[::3], base(out)[::3])
    torch.testing.assert_close(mixed[1::3], both(out)[1::3])
    context[::2] = torch.nan  # neighbourhood unknown: temperature scaling
    plain = (both.scale * out.logits).log_softmax(-1).float()
    torch.testing.assert_close(both.log_probs(out.logits, context)[::2], plain[::2])


def test_fitted_nodes_without_hidden_rows_leave_the_higher_level(monkeypatch):
    out, sizes, fit_level = model_outputs(), [], fit.fit_level
    monkeypatch.setattr(fit, "fit_level", lambda *given: (sizes.append(len(given[2])), fit_level(*given))[1])
    hidden = out.hidden.clone()
    hidden[out.graph.val_mask.nonzero()[:5, 0]] = torch.nan
    partial = replace(out, hidden=hidden)
    fitted = GraphScaling().fit(partial, on=out.graph.val_mask)
    assert sizes == [(n := int(out.graph.val_mask.sum())), n - 5]
    assert fitted(partial).isfinite().all()
    base = GraphScaling(hidden=False).fit(out, on=out.graph.val_mask)
    rows = hidden.isnan().any(1)
    torch.testing.assert_close(fitted(partial)[rows], base(out)[rows])


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_a_level_that_few_fitted_nodes_have_is_left_out(share):
    out, on = model_outputs(), model_outputs().graph.val_mask
    rows = on.nonzero().flatten()
    hidden = out.hidden.clone()
    hidden[rows[: round(share * len(rows))]] = torch.nan
    fitted = GraphScaling().fit(replace(out, hidden=hidden), on=on)
    assert fitted.level == "logits · edges"
    torch.testing.assert_close(fitted(out), GraphScaling(hidden=False).fit(out, on=on)(out))


def test_a_row_whose_hidden_representation_is_infinite_gets_the_level_without():
    out = model_outputs()
    row = int(out.graph.test_mask.nonzero()[0])
    hidden = out.hidden.clone()
    hidden[row, 0] = torch.inf
    broken = replace(out, hidden=hidden)
    fitted = GraphScaling().fit(broken, on=out.graph.val_mask)
    assert fitted.level == "logits · edges · hidden"
    base = GraphScaling(hidden=False).fit(out, on=out.graph.val_mask)
    torch.testing.assert_close(fitted(broken)[row], base(out)[row])
    assert fitted(broken).isfinite().all()


def test_features_that_are_not_finite_are_refused():
    out = model_outputs()
    for row, value in ((3, torch.nan), (5, torch.inf)):
        graph = out.graph.clone()
        graph.x = torch.randn(out.num_nodes, 4, generator=draw()).index_fill_(0, torch.tensor([row]), value)
        with pytest.raises(ValueError, match=f"row {row}"):
            GraphScaling(inputs=True).fit(replace(out, graph=graph), on=graph.val_mask)
    graph.x = torch.ones(out.num_nodes)
    with pytest.raises(ValueError, match=r"\(N, D\)"):
        GraphScaling(inputs=True).fit(replace(out, graph=graph), on=graph.val_mask)


def test_the_note_names_classes_without_a_fitted_node():
    out = model_outputs()
    on, y = out.graph.val_mask, out.graph.y
    assert "no fitted node" not in GraphScaling().fit(out, on=on).note
    fitted = GraphScaling().fit(out, on=on & (y != 2))
    assert "no fitted node is of 1 of 4 classes (2)" in fitted.note
    assert fitted(out).isfinite().all()


@pytest.mark.parametrize("sparse", [False, True])
def test_inputs_are_an_option_that_reads_features(sparse):
    out = model_outputs(random_graph(nodes=500))
    graph = out.graph.clone()
    onehot = torch.nn.functional.one_hot(graph.y, 4).float() + 0.1 * torch.rand(500, 4, generator=draw())
    graph.x = onehot.to_sparse_csr() if sparse else onehot
    out = replace(out, graph=graph)
    fitted = GraphScaling(inputs=True).fit(out, on=graph.val_mask)
    assert fitted.level == "logits · edges · hidden · inputs"
    test, y = graph.test_mask, graph.y
    without = GraphScaling().fit(out, on=graph.val_mask)(out)
    assert nll_loss(fitted(out)[test], y[test]) < 0.7 * nll_loss(without[test], y[test])
    bare = graph.clone()
    del bare.x
    with pytest.raises(ValueError, match="has no x"):
        GraphScaling(inputs=True).fit(replace(out, graph=bare), on=graph.val_mask)


def test_without_edges_and_hidden_it_reads_logits_only():
    out = model_outputs()
    bare = Outputs(out.logits, Data(y=out.graph.y, num_nodes=out.num_nodes))
    fitted = GraphScaling().fit(bare, on=out.graph.val_mask)
    assert fitted.level == "logits"
    assert fitted.context_of(bare).shape == (out.num_nodes, 0)
    assert not fitted.needs.edges
    torch.testing.assert_close(fitted(out), fitted(bare))
    with_edges = GraphScaling().fit(out, on=out.graph.val_mask)
    plain = (with_edges.scale * out.logits).log_softmax(-1).float()
    torch.testing.assert_close(with_edges(bare), plain)  # neighbourhoods are unknown


@pytest.mark.slow_cases("1100", "420", "19", "60")
@pytest.mark.parametrize("classes", [2, 19, 60, 420, 1100])
def test_any_number_of_classes(classes):
    """From 20 on the logits enter B by principal directions, above 400 by a bias, above 1,000 not at all."""
    g, n = draw(1), 300
    y = torch.randint(0, min(classes, 30), (n,), generator=g)
    logits = torch.randn(n, classes, generator=g) + 2 * torch.nn.functional.one_hot(y, classes)
    edges = torch.randint(0, n, (2, 900), generator=g)
    graph = Data(edge_index=edges, y=y, num_nodes=n)
    out = Outputs(logits, graph, hidden=torch.randn(n, 8, generator=g))
    on = torch.arange(n) < 120
    log_probs = GraphScaling().fit(out, on=on)(out)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(n), atol=1e-4, rtol=0)
    plain = TemperatureScaling().fit(out, on=on)(out)
    assert nll_loss(log_probs[~on], y[~on]) < nll_loss(plain[~on], y[~on]) + 0.02
    assert torch.equal(GraphScaling("keep").fit(out, on=on)(out).argmax(-1), out.pred)


def test_nineteen_classes_use_the_whole_matrix():
    """Classes that are confused in pairs: a diagonal cannot undo it."""
    g, n, classes = draw(1), 3000, 19
    y = torch.randint(0, classes, (n,), generator=g)
    swapped = (y + torch.where(torch.rand(n, generator=g) < 0.5, 1, 0)) % classes
    logits = torch.randn(n, classes, generator=g) + 4 * torch.nn.functional.one_hot((swapped + 5) % classes, classes)
    out, on = Outputs(logits, Data(y=y, num_nodes=n)), torch.arange(n) < 1000
    ours, ts = (r.fit(out, on=on)(out)[~on] for r in (GraphScaling(), TemperatureScaling()))
    assert nll_loss(ours, y[~on]) < 0.7 * nll_loss(ts, y[~on])


def test_class_permutations_permute_the_result():
    out = model_outputs(random_graph(nodes=300))
    order = torch.tensor([2, 0, 3, 1])
    graph = out.graph.clone()
    graph.y = torch.argsort(order)[graph.y]
    moved = Outputs(out.logits[:, order], graph, hidden=out.hidden)
    here, there = (GraphScaling().fit(o, on=o.graph.val_mask)(o) for o in (out, moved))
    torch.testing.assert_close(there, here[:, order], atol=2e-3, rtol=2e-3)


def test_node_permutations_permute_the_result():
    out = model_outputs(random_graph(nodes=300))
    order = torch.randperm(300, generator=draw(7))
    moved = permuted(out, order)
    fitted = GraphScaling(inputs=True).fit(out, on=out.graph.val_mask)
    torch.testing.assert_close(fitted(moved), fitted(out)[order], atol=1e-5, rtol=1e-4)


def test_shuffled_labels_teach_nothing():
    """Leave-one-out is honest: on labels that no column explains it promises what other nodes get."""
    out = model_outputs(random_graph(nodes=1000))
    graph = out.graph.clone()
    graph.y = graph.y[torch.randperm(1000, generator=draw(3))]
    shuffled = replace(out, graph=graph)
    fitted = GraphScaling().fit(shuffled, on=graph.val_mask)
    promised = float(fitted.note.split("leave-one-out NLL ")[1].split()[0])
    other = graph.test_mask
    assert promised == pytest.approx(float(nll_loss(fitted(shuffled)[other], graph.y[other])), abs=0.06)
    ts = TemperatureScaling().fit(shuffled, on=graph.val_mask)(shuffled)
    assert nll_loss(fitted(shuffled)[other], graph.y[other]) < nll_loss(ts[other], graph.y[other]) + 0.02


def test_the_note_says_when_fitted_nodes_differ_from_the_rest():
    graph = random_graph(nodes=1200)
    del graph.test_mask
    out = model_outputs(graph)
    free = (~graph.train_mask).nonzero().flatten()
    g = draw(2)
    at_random = free[torch.randperm(len(free), generator=g)[:300]]
    assert "may not carry over" not in GraphScaling().fit(out, on=at_random).note
    hubs = free[structure(graph).degree[free].argsort(descending=True)[:300]]
    note = GraphScaling().fit(out, on=hubs).note
    assert "may not carry over" in note
    assert "degree" in note


def test_fits_run_on_one_thread(monkeypatch):
    seen = []
    real = fit.evidence
    monkeypatch.setattr(fit, "evidence", lambda *a: (seen.append(torch.get_num_threads()), real(*a))[1])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        out = model_outputs()
        GraphScaling().fit(out, on=out.graph.val_mask)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_another_word_for_predictions_is_refused():
    with pytest.raises(ValueError, match="kept"):
        GraphScaling(predictions="kept")


# ------------------------------------------------------------------------------------------------- the residual field


def field_problem() -> tuple[Tensor, Tensor, Tensor]:
    """Residual, variance and shared groups of 60 labelled nodes."""
    g = draw(8)
    p = 0.1 + 0.8 * torch.rand(60, generator=g).double()
    groups = torch.stack([torch.randint(0, k, (60,), generator=g) for k in (20, 5)])
    y = (torch.rand(60, generator=g) < p + 0.3 * (groups[1] - 2) * p * (1 - p)).double()
    return y - p, p * (1 - p), field.shared(groups, torch.tensor([0.8, 0.5]).double())


def test_the_field_without_a_node_equals_twenty_deletions():
    """Leave-one-out in closed form, weights of the strengths included, is what a fit without the node says about it."""
    residual, v, together = field_problem()
    _, left_out = field.kriged(residual, v, together)
    for node in range(0, 60, 3):
        others = torch.arange(60) != node
        beta, _ = field.kriged(residual[others], v[others], together[others][:, others])
        torch.testing.assert_close(left_out[node], together[node, others] @ beta)


def test_the_field_finds_what_a_community_shares():
    residual, v, together = field_problem()
    beta, _ = field.kriged(residual, v, together)
    shared = torch.corrcoef(torch.stack([together @ (v * residual), together @ beta]))[0, 1]
    assert float(shared) > 0.8
    noise, _ = field.kriged(residual[torch.randperm(60, generator=draw(1))], v, together)
    assert float((together @ noise).norm()) < float((together @ beta).norm())


def test_field_serves_its_graph_alone_and_is_left_out_where_it_does_not_help():
    graph = random_graph(nodes=600, val=250)
    out = model_outputs(graph)
    ring = torch.arange(600) // 100  # six regions in which one class is missed by the model
    y = torch.where(torch.rand(600, generator=draw(5)) < 0.7, ring % 4, graph.y)
    source = torch.arange(600).repeat(8)
    region_edges = torch.stack([source, 100 * ring[source] + torch.randint(0, 100, (4800,), generator=draw(6))])
    graph.y, graph.edge_index = y, region_edges
    hidden_regions = Outputs(out.logits, graph)
    plain, fitted = (r.fit(hidden_regions, on=graph.val_mask) for r in (GraphScaling(), GraphScaling(field=True)))
    assert fitted.needs.same_graph
    assert not plain.needs.same_graph
    test = graph.test_mask
    assert nll_loss(fitted(hidden_regions)[test], y[test]) < nll_loss(plain(hidden_regions)[test], y[test]) - 0.05
    fewer = graph.clone()
    fewer.edge_index = region_edges[:, 1:]
    with pytest.raises(ValueError, match="graph it was fitted on"):
        fitted(replace(hidden_regions, graph=fewer))
    keep = GraphScaling("keep", field=True).fit(hidden_regions, on=graph.val_mask)
    assert torch.equal(keep(hidden_regions).argmax(-1), hidden_regions.pred)
    graph.y = graph.y[torch.randperm(600, generator=draw(7))]
    noise = GraphScaling(field=True).fit(replace(hidden_regions, graph=graph), on=graph.val_mask)
    assert float(noise.field.abs().max()) < float(fitted.field.abs().max())
    with pytest.raises(ValueError, match="edge_index"):
        GraphScaling(field=True).fit(Outputs(out.logits, Data(y=y, num_nodes=600)), on=graph.val_mask)


@pytest.mark.slow
@pytest.mark.parametrize("predictions", ["free", "keep"])
def test_it_exports_at_the_level_with_hidden(predictions):
    out = model_outputs()
    fitted = GraphScaling(predictions).fit(out, on=out.graph.val_mask)

    class Served(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calibration = fitted

        def forward(self, logits: Tensor, edges: Tensor, train: Tensor, hidden: Tensor) -> Tensor:
            context = self.calibration.context(logits, TracedSums(edges, train), hidden)
            return self.calibration.log_probs(logits, context)

    given = (out.logits, structure(out.graph).edge_index, out.graph.train_mask, out.hidden)
    rows, edges = {0: torch.export.Dim.DYNAMIC}, {1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(Served(), given, dynamic_shapes=(rows, edges, rows, rows))
    torch.testing.assert_close(program.module()(*given), fitted(out))
