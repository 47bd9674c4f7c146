"""The graph calibrators against their formulas written out node by node."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import pytest
import torch
from small_outputs import model_outputs
from torch.nn.functional import leaky_relu, softplus
from torch_geometric.data import Data

from conftest import random_graph
from graphcal.engine.gating import noisy_top_k
from graphcal.engine.rows import feature_rows, hearing
from graphcal.graphs import structure
from graphcal.methods import (
    DCGC,
    DCGNN,
    GATS,
    GETS,
    WATS,
    CaGCN,
    RatioBinnedScaling,
    SimCalib,
    SimiMailbox,
    TemperatureScaling,
)
from graphcal.methods.cagcn import margin
from graphcal.methods.gats import AttentionTemperature
from graphcal.methods.simcalib import class_prototypes, describe
from graphcal.methods.simi_mailbox import mailbox
from graphcal.methods.wats import wavelets


@pytest.fixture(scope="module")
def out():
    return model_outputs()


def dense_adjacency(out):
    return structure(out.graph).adjacency.to_dense()


def neighbours(out, node):
    return structure(out.graph).neighbours.to_dense()[node].nonzero().flatten().tolist()


def test_hearing_is_the_rows_of_the_adjacency(out):
    targets = out.graph.val_mask.nonzero().flatten()[[3, 0, 7]]
    near = hearing(structure(out.graph).adjacency, targets, out.logits)
    x = torch.randn(out.num_nodes, 2, requires_grad=True, generator=None)
    expected = (dense_adjacency(out) @ x)[targets]
    torch.testing.assert_close(near @ x[near.sources], expected)
    weight = torch.randn_like(expected)
    (mine,) = torch.autograd.grad((near @ x[near.sources] * weight).sum(), x)
    (reference,) = torch.autograd.grad((expected * weight).sum(), x)
    torch.testing.assert_close(mine, reference)


@pytest.mark.parametrize("density", [0.02, 0.9])
def test_feature_rows_multiply_whatever_their_storage(density):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(50, 30, generator=g) * (torch.rand(50, 30, generator=g) < density)
    nodes, weight = torch.tensor([4, 1, 30]), torch.randn(30, 3, generator=g)
    for stored in (x, x.to_sparse_csr()):
        torch.testing.assert_close(feature_rows(stored, nodes, x) @ weight, x[nodes] @ weight)


def test_cagcn_scale_is_a_gcn_on_the_logits(out):
    fitted = CaGCN(epochs=20).fit(out, out.graph.val_mask)
    a = dense_adjacency(out)
    t = a @ (a @ out.logits @ fitted.w1 + fitted.b1).relu() @ fitted.w2 + fitted.b2
    torch.testing.assert_close(fitted.scale(out), torch.log(t.exp() + 1.1).squeeze(-1), atol=1e-5, rtol=1e-5)
    assert (fitted.scale(out) > 0.095).all()
    expected = (fitted.scale(out)[:, None] * out.logits).log_softmax(-1)
    torch.testing.assert_close(fitted(out), expected)


def test_the_margin_rewards_clear_right_and_unclear_wrong_predictions():
    z = torch.tensor([[2.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    first, second = z.softmax(-1)[0].topk(2).values.tolist()
    assert float(margin(z[:1], torch.tensor([0]))) == pytest.approx(1 - first + second)
    assert float(margin(z[:1], torch.tensor([1]))) == pytest.approx(first - second)
    assert float(margin(z, torch.tensor([0, 1]))) == pytest.approx(0.5)


def test_cagcn_with_base_dropout_needs_the_model_and_learns_something_else(out):
    with pytest.raises(ValueError, match="base_dropout"):
        CaGCN(base_dropout=True).fit(replace(out, noisy_logits=None), out.graph.val_mask)
    noisy = CaGCN(epochs=30, base_dropout=True).fit(out, out.graph.val_mask)
    clean = CaGCN(epochs=30).fit(out, out.graph.val_mask)
    assert not torch.allclose(noisy(out), clean(out), atol=1e-4)
    with pytest.raises(ValueError, match="cagcn, softplus"):
        CaGCN(link="exp")


def test_stopping_nodes_decide_when_to_stop(out):
    on, other = out.graph.val_mask, out.graph.train_mask
    own = CaGCN(epochs=60, patience=5).fit(out, on)
    theirs = CaGCN(epochs=60, patience=5).fit(out, on, stop=other)
    assert not torch.equal(own.w1, theirs.w1)


def test_gats_temperature_node_by_node(out):
    g = torch.Generator().manual_seed(2)
    fitted = AttentionTemperature(
        theta=torch.randn(4, 3, generator=g),
        w=torch.tensor(0.7),
        log_bias=torch.tensor(-0.2),
        log_train=torch.tensor(0.4),
        log_near=torch.tensor(-0.3),
        train_nodes=torch.empty(0, dtype=torch.long),
        graph_nodes=out.num_nodes,
    )
    facts, z = structure(out.graph), out.logits
    conf = z.softmax(-1).max(-1).values
    group = torch.where(facts.train_mask, exp(0.4), torch.where(facts.next_to_training, exp(-0.3), 1.0))
    low, high = z.min(-1, keepdim=True).values, z.max(-1, keepdim=True).values
    tau = ((z - low) / (high - low)).sort(-1).values @ fitted.theta  # (N, H)
    temperature = fitted.temperature(out)
    for i in (0, 5, 60, out.num_nodes - 1):
        js = [i, *neighbours(out, i)]
        score = torch.stack([leaky_relu((z[i] / group[i]) @ (z[j] / group[j]), 0.2) for j in js])
        heard = (score.softmax(0) * group[js]) @ tau[js]
        gap = (conf[i] - conf[js]).mean()
        expected = softplus(heard + 0.7 * gap).mean() + exp(-0.2)
        assert float(temperature[i]) == pytest.approx(float(expected), rel=1e-4)


def test_ratio_bins_take_their_own_temperature_and_empty_ones_the_common_one():
    graph = random_graph(nodes=800, train=20, val=600)
    out = model_outputs(graph)
    share = (out.logits.argmax(-1)[:, None] == torch.arange(4)).float()
    agree = structure(graph).neighbour_mean(share).gather(1, out.pred[:, None]).squeeze(-1)
    sharp = torch.where(agree[:, None] > 0.8, out.logits / 4, out.logits * 4)  # order kept, so agreement too
    mixed = replace(out, logits=sharp)
    fitted = RatioBinnedScaling(bins=5, shrink=1.0).fit(mixed, graph.val_mask)
    assert float(fitted.scales[4]) > 3 * float(fitted.scales[1])
    common = float(TemperatureScaling().fit(mixed, graph.val_mask).scale)
    alone = RatioBinnedScaling(bins=1000).fit(mixed, graph.val_mask)
    assert float(alone.scales[1]) == pytest.approx(common, rel=1e-5)  # a share in (0.001, 0.002] does not occur


def test_wavelets_sum_to_the_heat_kernel(out):
    """With many terms the series is exp(-s L) itself, applied to log(1 + degree)."""
    facts = structure(out.graph)
    x = wavelets(facts, 30, 2.0, torch.double)
    a = facts.neighbours.to_dense().double()
    root = a.sum(1).clamp(min=1).rsqrt()
    laplacian = torch.eye(out.num_nodes, dtype=torch.double) - root[:, None] * a * root
    signal = a.sum(1).log1p()
    heat = torch.linalg.matrix_exp(-2.0 * laplacian) @ signal
    share = x.sum(-1)  # rows are divided by their l1 norm
    norm = torch.where(share != 0, heat / share, torch.ones_like(share))
    torch.testing.assert_close(share * norm, heat, atol=1e-9, rtol=1e-9)
    connected = signal > 0
    positive = norm[connected]  # l1 norms: the terms' absolute sum, so at least |heat|
    assert (positive >= heat[connected].abs() - 1e-9).all()
    few = wavelets(facts, 3, 2.0, torch.double)
    torch.testing.assert_close(few.abs().sum(-1)[connected], torch.ones(int(connected.sum()), dtype=torch.double))


def test_wats_tells_hubs_from_leaves():
    graph = random_graph(nodes=800, train=20, val=600)
    leaf = torch.arange(800)[torch.arange(800) % 8 > 0]
    rays = torch.stack([leaf, 8 * (leaf // 8)])  # a hundred stars of seven leaves
    graph.edge_index = torch.cat([rays, rays.flip(0)], 1)
    out = model_outputs(graph)
    hub = structure(graph).degree == 7
    truth = torch.where(hub, 3.0, 0.5)[:, None] * out.logits
    graph.y = torch.multinomial(truth.softmax(-1), 1, generator=torch.Generator().manual_seed(0)).squeeze(-1)
    temperature = WATS(lr=0.1, epochs=300, patience=300).fit(out, graph.val_mask).temperature(out)
    assert temperature[~hub].median() > 2 * temperature[hub].median()


def test_mailbox_by_hand(out):
    points = mailbox(out)
    z = out.logits
    for i in (1, 17, out.num_nodes - 1):
        js = neighbours(out, i) or [i]
        alike = torch.stack([(z[i] @ z[j]).sigmoid() for j in js]).mean()
        assert float(points[i, 1]) == pytest.approx(float(alike), rel=1e-5)


def test_groups_balance_confidence_and_accuracy():
    graph = random_graph(nodes=900, train=20, val=700)
    out = model_outputs(graph)
    plain, balanced = (SimiMailbox(groups=3, balance=b, shrink=0.0).fit(out, graph.val_mask) for b in (0.0, 1e4))
    right = (out.pred == graph.y).float()

    def worst_gap(fitted):
        conf = fitted(out).exp().max(-1).values
        low, span = fitted.low, fitted.span
        group = torch.cdist((mailbox(out) - low) / span, fitted.centres).argmin(-1)
        on = graph.val_mask
        return max(float((conf - right)[on & (group == g)].mean().abs()) for g in range(3))

    assert worst_gap(balanced) < 1e-3 < worst_gap(plain)


def test_gates_pick_k_experts_and_the_noise_keeps_them_busy():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(400, 5, generator=g)
    zero = torch.zeros(5, 7)
    gates, imbalance = noisy_top_k(x, zero, zero, 2, g)
    assert ((gates > 0).sum(-1) == 2).all()
    torch.testing.assert_close(gates.sum(-1), torch.ones(400))
    lopsided = torch.zeros(5, 7)
    lopsided[0, 0] = 50.0
    _, worse = noisy_top_k(x.abs(), lopsided, zero, 2, g)
    assert float(worse) > 5 * float(imbalance)


def test_gets_trains_its_degree_embedding_and_can_keep_predictions(out):
    start = GETS(epochs=0).fit(out, out.graph.val_mask)
    fitted = GETS(epochs=10, patience=100).fit(out, out.graph.val_mask)
    assert not torch.equal(start.embed, fitted.embed)
    node = GETS(epochs=10, per_class=False).fit(out, out.graph.val_mask)
    assert torch.equal(node(out).argmax(-1), out.pred)
    bare = out.graph.clone()
    del bare["x"]
    with pytest.raises(ValueError, match="no x"):
        GETS().fit(replace(out, graph=bare), out.graph.val_mask)


def test_simcalib_distances_are_mahalanobis(out):
    whitening, prototypes = class_prototypes(out, "hidden")
    train = out.graph.train_mask
    h, y = out.hidden[train].double(), out.graph.y[train]
    means = torch.stack([h[y == c].mean(0) for c in range(4)])
    within = h - means[y]
    covariance = within.T @ within / len(h)
    covariance = 0.9 * covariance + 0.1 * covariance.diagonal().mean() * torch.eye(6, dtype=torch.double)
    inverse = torch.linalg.inv(covariance)
    x = describe(out, "hidden", whitening, prototypes)
    for i in (0, 9, 77):
        gap = out.hidden[i].double() - means
        distance = torch.einsum("cd,de,ce->c", gap, inverse, gap).sqrt().sort().values
        expected = (distance / 6**0.5).log1p()
        torch.testing.assert_close(x[i, 4:8].double(), expected, atol=1e-4, rtol=1e-4)


def test_simcalib_says_what_it_misses(out):
    bare = replace(out, hidden=None)
    with pytest.raises(ValueError, match="representation='logits'"):
        SimCalib().fit(bare, out.graph.val_mask)
    SimCalib(epochs=2, representation="logits").fit(bare, out.graph.val_mask)(bare)
    graph = out.graph.clone()
    del graph["train_mask"]
    with pytest.raises(ValueError, match="train_mask"):
        SimCalib().fit(replace(out, graph=graph), out.graph.val_mask)


def test_dcgc_weighs_edges_by_likeness_and_calibrates_the_new_logits(out):
    fitted = DCGC(calibrator="none", epochs=0).fit(out, out.graph.val_mask)  # the network says 1 for every edge
    source, target = out.graph.edge_index
    q = (10 * out.logits.softmax(-1)).softmax(-1)
    weight = 1 / ((q[source] - q[target]).norm(dim=-1) + 0.5)
    torch.testing.assert_close(fitted(out), out.rerun(weight).log_softmax(-1), atol=1e-5, rtol=1e-5)
    trained = DCGC(calibrator="none", epochs=30).fit(out, out.graph.val_mask)
    assert not torch.allclose(trained(out), fitted(out), atol=1e-3)
    warm = DCGC(calibrator=TemperatureScaling(), epochs=30).fit(out, out.graph.val_mask)
    assert torch.equal(warm(out).argmax(-1), trained(out).argmax(-1))


def test_dcgc_says_what_it_misses(out):
    with pytest.raises(ValueError, match="rerun"):
        DCGC().fit(replace(out, rerun=None), out.graph.val_mask)
    with pytest.raises(ValueError, match="one of none, ts"):
        DCGC(calibrator="nonsense", epochs=0).fit(out, out.graph.val_mask)


def test_dcgnn_reads_agreement(out):
    fitted = DCGNN(epochs=30).fit(out, out.graph.val_mask)
    assert fitted.w1.shape == (4 + 2, 16)
    apart = Data(x=out.graph.x, edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=out.num_nodes)
    assert not torch.allclose(fitted(replace(out, graph=apart)), fitted(out))


def test_isolated_nodes_hear_themselves(out):
    """The last node has no neighbours: its temperature is a function of its own logits."""
    fitted = GATS(epochs=5).fit(out, out.graph.val_mask)
    lone = out.num_nodes - 1
    assert neighbours(out, lone) == []
    weights = {name: getattr(fitted, name) for name in ("theta", "log_bias")}
    z = out.logits[lone]
    tau = ((z - z.min()) / (z.max() - z.min())).sort().values @ weights["theta"]
    assert float(fitted.temperature(out)[lone]) == pytest.approx(
        float(softplus(tau).mean() + weights["log_bias"].exp()), rel=1e-4
    )
    assert log(1.1) > 0
