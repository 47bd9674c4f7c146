"""Graph scaling: what it reads, what it fits, when it falls back, and what it never does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import nll_loss
from torch_geometric.data import Data

import graphcal as gc
from conftest import random_graph
from graphcal import saving
from graphcal.core import Outputs, blinded
from graphcal.engine.graph_columns import ALONE, GRAPH_FACTS
from graphcal.engine.node_order import fitting_order
from graphcal.methods import GraphScaling, TemperatureScaling, stacked_fit
from graphcal.methods.graph_scaling import GraphScaled
from graphcal.methods.stacked_fit import Member, Problem, Stack
from graphcal.methods.temperature import SMALLEST_SCALE
from small_outputs import linear_outputs, model_outputs, permuted


@pytest.fixture(scope="module")
def out() -> Outputs:
    return model_outputs(random_graph(nodes=700, train=60, val=300))


def shifted(out: Outputs, by: float) -> Outputs:
    """A model that is wrong about the share of class 0: the error a temperature cannot repair."""
    logits = out.logits.clone()
    logits[:, 0] += by
    return replace(out, logits=logits)


def unseen_nll(log_probs: torch.Tensor, graph: Data) -> float:
    return float(nll_loss(log_probs[graph.test_mask].double(), graph.y[graph.test_mask]))


def test_it_repairs_class_shares_that_a_temperature_cannot(out):
    wrong = shifted(out, 1.5)
    on, graph = out.graph.val_mask, out.graph
    free = GraphScaling().fit(wrong, on=on)
    ts = TemperatureScaling().fit(wrong, on=on)
    assert unseen_nll(free(wrong), graph) < unseen_nll(ts(wrong), graph) - 0.05
    without = GraphScaling(without="classes").fit(wrong, on=on)
    assert unseen_nll(free(wrong), graph) < unseen_nll(without(wrong), graph)


def test_it_needs_neither_the_final_layer_nor_the_edges(out):
    on = out.graph.val_mask
    bare = Data(y=out.graph.y, train_mask=out.graph.train_mask, val_mask=on, num_nodes=out.num_nodes)
    for known in (replace(out, final=None), Outputs(out.logits, bare)):
        fitted = GraphScaling().fit(known, on=on)
        assert unseen_nll(fitted(known), out.graph) < unseen_nll(out.logits.log_softmax(-1), out.graph)
    assert fitted.context_of(known).shape == (out.num_nodes, 0)
    # fitted with edges and met without: the plain form
    fitted = GraphScaling().fit(out, on=on)
    lost = Outputs(out.logits, bare, out.final)
    plain = (fitted.scale * out.logits.double()).log_softmax(-1).float()
    torch.testing.assert_close(fitted(lost), plain)


def test_context_and_logits_are_all_it_reads(out):
    fitted = GraphScaling().fit(out, on=out.graph.val_mask)
    context = fitted.context_of(out)
    some = torch.tensor([3, 600, 41])
    torch.testing.assert_close(fitted.log_probs(out.logits[some], context[some]), fitted(out)[some])
    unknown = torch.full_like(context[some], torch.nan)
    plain = (fitted.scale * out.logits[some].double()).log_softmax(-1).float()
    torch.testing.assert_close(fitted.log_probs(out.logits[some], unknown), plain)
    assert fitted.hops == 2


def test_it_exports(out):
    class Served(torch.nn.Module):
        def __init__(self, calibration):
            super().__init__()
            self.calibration = calibration

        def forward(self, logits, context):
            return self.calibration.log_probs(logits, context)

    fitted = GraphScaling(predictions="keep").fit(out, on=out.graph.val_mask)
    context = fitted.context_of(out)
    context[5] = torch.nan
    rows = {0: torch.export.Dim("rows", min=2, max=10_000)}
    program = torch.export.export(Served(fitted), (out.logits[:50], context[:50]), dynamic_shapes=(rows, rows))
    said = program.module()(out.logits[:80], context[:80])
    torch.testing.assert_close(said, fitted.log_probs(out.logits[:80], context[:80]))


def test_the_context_by_hand():
    """A path 0 - 1 - 2 - 3 and a node 4 without neighbours; node 0 trains, nodes 1 to 4 are labelled."""
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 3.0], [0.5, 0.0]])
    graph = Data(edge_index=edges, y=torch.tensor([0, 0, 1, 1, 0]), train_mask=torch.tensor([1, 0, 0, 0, 0]).bool())
    graph.num_nodes = 5
    known = Outputs(logits, graph)
    fitted = GraphScaling(labelled_neighbours=True).fit(known, on=torch.tensor([0, 1, 1, 1, 1]).bool())
    context = fitted.context_of(known)
    assert context.shape == (5, GRAPH_FACTS + 8)
    assert context[4].isnan().all()  # one such node among four fitted ones is not enough
    assert context[0, 0].isnan()  # whether a training node is next to the training set means nothing
    assert context[1:4, 0].tolist() == [1, 0, 0]
    assert context[1:4, 1].tolist() == [0.5, 0.5, 1.0]  # agreement with the neighbours
    assert context[1:4, ALONE].tolist() == [0, 0, 0]
    probs = (fitted.scale * logits.double()).softmax(-1)
    opinion = ((probs[0] + probs[2]) / 2).log()
    torch.testing.assert_close(context[1, GRAPH_FACTS : GRAPH_FACTS + 2], opinion - opinion.mean())
    opinion = probs[3].log()  # two steps from node 1 without coming back: node 3
    torch.testing.assert_close(context[1, GRAPH_FACTS + 2 : GRAPH_FACTS + 4], opinion - opinion.mean())
    counts = torch.tensor([1.0 + 1, 1.0 + 1]).log()  # labels next to node 1: one of each class, and one more of each
    torch.testing.assert_close(context[1, GRAPH_FACTS + 4 : GRAPH_FACTS + 6], (counts - counts.mean()).double())
    counts = torch.tensor([1.0, 1.0 + 1]).log()  # two steps away: node 3, of class 1
    torch.testing.assert_close(context[1, GRAPH_FACTS + 6 :], (counts - counts.mean()).double())


def test_a_nodes_own_label_never_reaches_its_context(out):
    on = out.graph.val_mask
    fitted = GraphScaling(labelled_neighbours=True).fit(out, on=on)
    node = int(on.nonzero()[0])
    other = persist_with_label(fitted, node, (int(out.graph.y[node]) + 1) % 4)
    torch.testing.assert_close(other.context_of(out)[node], fitted.context_of(out)[node], equal_nan=True)
    assert not torch.equal(
        other.context_of(out).nan_to_num(), fitted.context_of(out).nan_to_num()
    )  # but its neighbours'


def persist_with_label(fitted, node: int, label: int):
    state = {**dict(fitted.named_buffers()), **fitted.settings}
    state["label_values"] = torch.where(fitted.label_nodes == node, label, fitted.label_values)
    return type(fitted)(num_classes=fitted.num_classes, fitted_on=fitted.fitted_on, **state)


def test_labelled_neighbours_help_where_classes_cluster(out):
    on = out.graph.val_mask
    with_labels = GraphScaling(labelled_neighbours=True).fit(out, on=on)
    assert unseen_nll(with_labels(out), out.graph) < unseen_nll(GraphScaling().fit(out, on=on)(out), out.graph) + 0.01
    elsewhere = permuted(out, torch.arange(out.num_nodes).flip(0))  # another graph: its labels are not known
    assert torch.isfinite(with_labels(elsewhere)).all()


def test_labels_of_neighbours_are_read_on_the_graph_of_the_fit_alone(out):
    """On any other graph, of the same size or larger, the numbers of labelled nodes name other nodes."""
    fitted = GraphScaling(labelled_neighbours=True).fit(out, on=out.graph.val_mask)
    width = 2 * out.num_classes

    def of_labels(edge_index, nodes, train_mask):
        graph = Data(edge_index=edge_index, num_nodes=nodes, train_mask=train_mask)
        logits = torch.cat([out.logits, out.logits[: nodes - out.num_nodes]])
        return fitted.context_of(Outputs(logits, graph))[:, -width:].nan_to_num()

    edges, train, N = out.graph.edge_index, out.graph.train_mask, out.num_nodes
    assert of_labels(edges, N, train).abs().sum() > 0
    longer = torch.cat([train, torch.zeros(5, dtype=torch.bool)])
    for other in (
        (edges[:, 1:], N, train),
        (edges.flip(1)[:, 2:], N, train),
        (edges, N, ~train),
        (edges, N + 5, longer),
    ):
        assert of_labels(*other).abs().sum() == 0


# ------------------------------------------------------------------------------------------------------------ keep and free


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), classes=st.sampled_from([2, 3, 6]), sharpness=st.floats(0.1, 8.0))
def test_keep_never_changes_a_prediction(seed, classes, sharpness):
    known = model_outputs(random_graph(classes=classes), classes=classes, sharpness=sharpness, seed=seed)
    known = shifted(known, 2.0)
    fitted = GraphScaling(predictions="keep").fit(known, on=known.graph.val_mask)
    assert torch.equal(fitted(known).argmax(-1), known.pred)
    assert torch.equal(fitted(known.to(torch.float64)).argmax(-1), known.pred)


def test_keep_says_what_it_holds_and_what_freeing_would_gain(out):
    wrong = shifted(out, 1.5)
    keep = GraphScaling(predictions="keep").fit(wrong, on=out.graph.val_mask)
    held = keep.held(wrong)
    fitted_held = int(held[out.graph.val_mask].sum())
    assert 0 < int(held.sum()) < out.num_nodes
    assert "fitted nodes are held; freeing predictions: leave-one-out accuracy" in keep.note
    assert abs(fitted_held - int(keep.note.split()[0])) <= 10  # leave-one-out, so not to the node
    log_probs = keep(wrong)
    second = log_probs.scatter(1, wrong.pred[:, None], -torch.inf).amax(1)
    torch.testing.assert_close(log_probs.amax(1)[held], second[held])  # it shares its mean with those above it
    assert not GraphScaling().fit(wrong, on=out.graph.val_mask).held(wrong).any()


# ------------------------------------------------------------------------------------------------------------- never harms


def test_with_thirty_labels_it_is_not_worse_than_a_temperature():
    losses = []
    for seed in range(6):
        known = model_outputs(random_graph(nodes=600, train=60, val=30, seed=seed), seed=seed)
        on = known.graph.val_mask
        ours, ts = (recipe.fit(known, on=on)(known) for recipe in (GraphScaling(), TemperatureScaling()))
        losses.append(unseen_nll(ours, known.graph) - unseen_nll(ts, known.graph))
    assert sum(losses) / len(losses) <= 0.005
    assert max(losses) <= 0.03


def test_forty_labels_that_scale_and_pull_could_separate():
    """A model that is right on nearly all of them: its loss could be driven to nothing, and that of other nodes without end."""
    losses = []
    for seed in (0, 4, 6):
        data = gc.synthetic(400, num_classes=5, feature_signal=0.35, homophily=0.85, seed=seed)
        known = gc.train(data, training=gc.Training(epochs=60, hidden_channels=16), seeds=[0])[0].outputs
        on = torch.zeros_like(data.val_mask)
        on[data.val_mask.nonzero().flatten()[:40]] = True
        ours, ts = (recipe.fit(known, on=on)(known) for recipe in (GraphScaling(), TemperatureScaling()))
        losses.append(unseen_nll(ours, data) - unseen_nll(ts, data))
    assert max(losses) < 0.05  # without a ridge on the constants: 0.54, 0.36 and 0.21


def test_a_model_that_says_nothing_falls_back_and_says_so():
    graph = random_graph(nodes=400, train=40, val=150)
    noise = torch.randn(400, 4, generator=torch.Generator().manual_seed(1))
    alone = Data(y=torch.randint(0, 4, (400,), generator=torch.Generator().manual_seed(2)), num_nodes=400)
    for mask in ("train_mask", "val_mask", "test_mask"):
        alone[mask] = graph[mask]
    fitted = GraphScaling().fit(Outputs(noise, alone), on=alone.val_mask)
    log_probs = fitted(Outputs(noise, alone))
    assert unseen_nll(log_probs, alone) < 1.4863  # log 4 is 1.3863
    assert fitted.note


def test_a_perfect_model_is_not_driven_to_certainty():
    graph = random_graph(nodes=300, train=40, val=100)
    logits = 4.0 * torch.nn.functional.one_hot(graph.y, 4).float()
    known = Outputs(logits + 0.1 * torch.randn(300, 4, generator=torch.Generator().manual_seed(0)), graph)
    log_probs = GraphScaling().fit(known, on=graph.val_mask)(known)
    assert torch.isfinite(log_probs).all()
    assert float(log_probs.exp().amax(-1).max()) < 1 - 1e-6


def test_negative_scales_are_no_failure():
    """Where neighbours disagree, logits are to be turned over: what 0.1 clamped, and lost to a temperature by."""
    g = torch.Generator().manual_seed(0)
    n = 1200
    y = torch.randint(0, 2, (n,), generator=g)
    logits = torch.stack([-(y * 2.0 - 1), y * 2.0 - 1], -1) + 1.0 * torch.randn(n, 2, generator=g)
    flipped = torch.rand(n, generator=g) < 0.4
    logits[flipped] = logits[flipped].flip(-1)  # wrong on these nodes, and they sit next to each other
    first, second = flipped.nonzero().flatten(), (~flipped).nonzero().flatten()
    pairs = [nodes[torch.randint(0, len(nodes), (2, 3 * n), generator=g)] for nodes in (first, second)]
    wrong_side = torch.stack([first[torch.randint(0, len(first), (n,), generator=g)] for _ in range(2)])
    edges = torch.cat([*pairs, wrong_side], 1)
    graph = Data(edge_index=torch.cat([edges, edges.flip(0)], 1), y=y, num_nodes=n)
    split = torch.rand(n, generator=g)
    graph.train_mask, graph.val_mask, graph.test_mask = split < 0.1, (split >= 0.1) & (split < 0.5), split >= 0.5
    known = Outputs(logits, graph)
    ours, ts = (recipe.fit(known, on=graph.val_mask)(known) for recipe in (GraphScaling(), TemperatureScaling()))
    assert unseen_nll(ours, graph) < unseen_nll(ts, graph)
    kept = GraphScaling(predictions="keep").fit(known, on=graph.val_mask)(known)
    assert unseen_nll(kept, graph) < unseen_nll(ts, graph) + 1e-3


def test_a_node_without_neighbours_is_not_more_confident_than_a_temperature_says(out):
    """No fitted node is like it: it gets the temperature, not what neighbours would have added."""
    row, col = out.graph.edge_index
    lonely = (out.graph.test_mask.nonzero().flatten())[:40]
    cut = ~(torch.isin(row, lonely) | torch.isin(col, lonely))
    graph = out.graph.clone()
    graph.edge_index = out.graph.edge_index[:, cut]
    known = replace(out, graph=graph)
    fitted = GraphScaling().fit(known, on=graph.val_mask)
    ts = TemperatureScaling().fit(known, on=graph.val_mask)
    torch.testing.assert_close(fitted(known)[lonely], ts(known)[lonely], atol=1e-4, rtol=1e-4)


def test_enough_nodes_without_neighbours_have_a_term_of_their_own(out):
    row, col = out.graph.edge_index
    lonely = torch.arange(out.num_nodes) % 3 == 0
    graph = out.graph.clone()
    graph.edge_index = out.graph.edge_index[:, ~(lonely[row] | lonely[col])]
    logits = torch.where(lonely[:, None], 6 * out.logits, out.logits)  # over-confident where nobody is around
    known = replace(out, graph=graph, logits=logits)
    fitted = GraphScaling().fit(known, on=graph.val_mask)
    assert not fitted.context_of(known)[lonely].isnan()[:, 1:].any()
    ts = TemperatureScaling().fit(known, on=graph.val_mask)
    mask = lonely & graph.test_mask
    mine, theirs = (nll_loss(c(known)[mask].double(), graph.y[mask]) for c in (fitted, ts))
    assert mine < theirs


def test_facts_far_from_the_fitted_ones_are_not_extrapolated_to(out):
    fitted = GraphScaling().fit(out, on=out.graph.val_mask)
    context = fitted.context_of(out)[:1]
    logits = out.logits[:1]
    far, further = context.clone(), context.clone()
    far[0, 3], further[0, 3] = 20.0, 2000.0  # log degree
    torch.testing.assert_close(fitted.log_probs(logits, far), fitted.log_probs(logits, further))


# ------------------------------------------------------------------------------------------------------------- contracts


def test_knowing_the_training_set_is_optional(out):
    fitted = GraphScaling().fit(out, on=out.graph.val_mask)
    assert "knowing the training set is worth" in fitted.note
    graph = out.graph.clone()
    del graph.train_mask
    elsewhere = fitted(replace(out, graph=graph))
    assert torch.isfinite(elsewhere).all()
    train = out.graph.train_mask
    torch.testing.assert_close(elsewhere[train], fitted(out)[train])  # training nodes get that form anyway
    refitted = GraphScaling().fit(replace(out, graph=graph), on=out.graph.val_mask)
    assert torch.isfinite(refitted(replace(out, graph=graph))).all()


@pytest.mark.parametrize("recipe", [GraphScaling(predictions="keep"), GraphScaling(labelled_neighbours=True)], ids=str)
def test_other_forms_keep_the_contract(recipe, out, tmp_path):
    on = out.graph.val_mask
    fitted = recipe.fit(out, on=on)
    restored = saving.restore(saving.save(fitted, tmp_path / "c.safetensors"))
    assert torch.equal(restored(out), fitted(out))
    blind = replace(out, graph=blinded(out.graph))
    torch.testing.assert_close(recipe.fit(blind, on=on)(blind), fitted(out))
    order = torch.randperm(out.num_nodes, generator=torch.Generator().manual_seed(5))
    moved = permuted(out, order)
    torch.testing.assert_close(recipe.fit(moved, on=on[order])(moved), fitted(out)[order], atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("classes", [2, 150])
def test_few_and_many_classes(classes):
    graph = random_graph(nodes=500, classes=4, train=60, val=200)
    graph.y = torch.arange(500) % classes
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(500, classes, generator=g) + 3 * torch.nn.functional.one_hot(graph.y, classes)
    known = Outputs(logits, graph)
    log_probs = GraphScaling().fit(known, on=graph.val_mask)(known)
    ts = TemperatureScaling().fit(known, on=graph.val_mask)(known)
    assert unseen_nll(log_probs, graph) < unseen_nll(ts, graph) + 0.02


def test_more_labels_than_ridges_are_chosen_on(monkeypatch):
    from graphcal.methods import stacked_fit

    known = linear_outputs(random_graph(nodes=900, train=50, val=500))
    on = known.graph.val_mask
    whole = GraphScaling().fit(known, on=on)
    monkeypatch.setattr(stacked_fit, "MOST_NODES", 250)
    some = GraphScaling().fit(known, on=on)
    assert not torch.equal(some.theta, whole.theta)
    assert unseen_nll(some(known), known.graph) == pytest.approx(unseen_nll(whole(known), known.graph), abs=0.02)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="predictions='kept' is not one of free, keep"):
        GraphScaling(predictions="kept")
    with pytest.raises(ValueError, match="scars is not one of pull, facts, classes, neighbours"):
        GraphScaling(without="pull,scars")


def test_on_the_synthetic_graph_its_error_is_not_above_a_temperatures():
    """Where 0.1 had four times the error of a temperature: many predictions are wrong and were held back."""
    data = gc.synthetic(8000, 5, degree=8, homophily=0.75, feature_signal=0.2, seed=3)
    run = gc.train(data, "sage", gc.Training(epochs=60), seeds=[0])[0]
    study = gc.Study.of(
        [run.outputs], {"ts": TemperatureScaling(), "ours": GraphScaling(), "keep": GraphScaling(predictions="keep")},
        on=data.val_mask,
    )  # fmt: skip
    scores = {name: one for name, (one,) in study.scores(data.test_mask).items()}
    assert scores["ours"].ece <= 2 * scores["ts"].ece
    assert scores["ours"].nll < scores["ts"].nll
    assert scores["keep"].nll < scores["ts"].nll
    assert scores["ours"].accuracy >= scores["ts"].accuracy


def reversed_outputs(labels: int, lowered: float, seed: int) -> Outputs:
    """400 rows without edges, five classes, the logit of the true class lowered: NLL falls as the scale turns negative."""
    g = torch.Generator().manual_seed(seed)
    y, z = torch.randint(0, 5, (400,), generator=g), torch.randn(400, 5, generator=g)
    z[torch.arange(400), y] -= lowered
    return Outputs(z, Data(y=y, val_mask=torch.arange(400) < labels, num_nodes=400))


def members_of(
    out: Outputs, monkeypatch: pytest.MonkeyPatch, **settings: str
) -> tuple[GraphScaled, list[dict[str, Member]]]:
    judged: list[dict[str, Member]] = []
    judge = Problem.judge

    def recorded(self: Problem, members: dict[str, Member], keep: bool) -> Stack:
        judged.append(members)
        return judge(self, members, keep)

    with monkeypatch.context() as patch:
        patch.setattr(Problem, "judge", recorded)
        fitted = GraphScaling(**settings).fit(out, on=out.graph.val_mask)
    return fitted, judged


@pytest.mark.parametrize("predictions", ["free", "keep"])
@pytest.mark.parametrize(("labels", "lowered", "seed"), [(30, 1.0, 0), (12, 0.0, 1), (12, 0.0, 2), (12, 0.0, 3)])
def test_temperature_scaling_inside_the_stack_has_a_positive_scale(labels, lowered, seed, predictions, monkeypatch):
    out = reversed_outputs(labels, lowered, seed)
    fitted, judged = members_of(out, monkeypatch, predictions=predictions)
    ts = fitted.theta[:, fitted.members.index("ts"), 0]
    assert (ts >= SMALLEST_SCALE).all()
    if lowered:
        assert (ts == SMALLEST_SCALE).all()  # that of TS alone
        assert float(TemperatureScaling().fit(out, on=out.graph.val_mask).scale) == pytest.approx(SMALLEST_SCALE)
    pred = out.pred[fitting_order(out, out.graph.val_mask)]
    for members in judged:
        assert torch.equal(members["ts"].unseen.argmax(-1), pred)  # of every leave-one-out fit too


def test_a_positive_scale_is_left_as_it_is(out, monkeypatch):
    monkeypatch.setattr(stacked_fit, "SMALLEST_SCALE", -1e9)
    unclamped = GraphScaling().fit(out, on=out.graph.val_mask)
    monkeypatch.undo()
    fitted = GraphScaling().fit(out, on=out.graph.val_mask)
    for name in ("theta", "weights", "sharpness"):
        torch.testing.assert_close(getattr(fitted, name), getattr(unclamped, name), atol=1e-9, rtol=0)


def test_the_note_says_how_the_fitted_nodes_differ():
    """Fitted on hubs, the note says so; fitted on random nodes it does not."""
    g = torch.Generator().manual_seed(0)
    nodes = 3000
    hubs = torch.rand(nodes, generator=g) < 0.3
    source = torch.randint(nodes, (6000,), generator=g)
    target = hubs.nonzero().flatten()[torch.randint(int(hubs.sum()), (6000,), generator=g)]
    edges = torch.cat([torch.stack([source, target]), torch.stack([target, source])], 1)
    y = torch.randint(4, (nodes,), generator=g)
    logits = torch.randn(nodes, 4, generator=g)
    logits[torch.arange(nodes), y] += 1.5
    masks = {name: torch.zeros(nodes, dtype=torch.bool) for name in ("train_mask", "test_mask")}
    out = gc.Outputs(logits, Data(edge_index=edges, y=y, num_nodes=nodes, val_mask=hubs, **masks))
    few = torch.zeros(nodes, dtype=torch.bool)
    few[hubs.nonzero().flatten()[:400]] = True
    note = gc.GraphScaling().fit(out, on=few).note
    assert "mean degree is" in note
    assert "may not carry over" in note
    random = torch.zeros(nodes, dtype=torch.bool)
    random[torch.randperm(nodes, generator=g)[:400]] = True
    assert "carry over" not in gc.GraphScaling().fit(out, on=random).note
