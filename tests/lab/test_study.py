"""The one loop: blind, fit, apply, measure."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import graphcal
from conftest import random_graph
from graphcal import metrics
from graphcal.core import Outputs, hide_test_labels
from graphcal.lab.shift import with_mixed_features
from graphcal.lab.training import Training, train
from graphcal.methods import SCAR, TemperatureScaling, Uncalibrated
from graphcal.methods.scar import CentroidPull
from graphcal.observation import observe
from graphcal.study import Study, held_out
from small_outputs import model_outputs

RECIPES = {"none": Uncalibrated(), "ts": TemperatureScaling(), "scar": SCAR()}


def trained(data: Data, seeds: int = 2) -> list[Outputs]:
    return [
        run.outputs
        for run in train(data, training=Training(hidden_channels=8, epochs=30, patience=None), seeds=range(seeds))
    ]


@pytest.fixture(scope="module")
def data() -> Data:
    return random_graph(nodes=400, train=60, val=120)


@pytest.fixture(scope="module")
def study(data: Data) -> Study:
    return Study.of(trained(data), RECIPES, on=data.val_mask)


def test_a_blinded_graph_has_no_test_label():
    graph = random_graph()
    blind = hide_test_labels(graph)
    assert (blind.y[graph.test_mask] == -1).all()
    assert "test_mask" not in blind
    seen = graph.train_mask | graph.val_mask
    assert torch.equal(blind.y[seen], graph.y[seen])
    assert (graph.y >= 0).all()
    assert "test_mask" in graph
    assert blind.edge_index is graph.edge_index


def test_recipes_see_no_test_label(data: Data) -> None:
    seen: list[Outputs] = []

    class Watching(TemperatureScaling):
        def fit(self, out, on, stop=None):  # type: ignore[no-untyped-def]
            seen.append(out)
            return super().fit(out, on, stop)

    outputs = trained(data)
    study = Study.of(outputs, {"watching": Watching()}, on=data.val_mask)
    assert len(seen) == 2
    for out in (*seen, *study.outputs):
        assert (out.graph.y[data.test_mask] == -1).all()
        assert "test_mask" not in out.graph
    assert seen[0].graph is seen[1].graph  # its structure is computed once
    assert study.graph is outputs[0].graph


def test_numbers_are_those_of_fitting_by_hand(study: Study, data: Data) -> None:
    test, y = data.test_mask, data.y[data.test_mask]
    scores, measured = study.scores(test), study.measure(test)
    for name, recipe in RECIPES.items():
        by_hand = []
        for out in study.outputs:
            by_hand.append(recipe.fit(out, on=data.val_mask)(out).detach()[test])
        assert [s.nll for s in scores[name]] == [metrics.nll(lp, y) for lp in by_hand]
        assert measured[name].by_seed == tuple(scores[name])
        assert measured[name].ece == sum(metrics.ece(lp, y) for lp in by_hand) / 2
    assert measured["ts"].against["ece"].difference == pytest.approx(measured["ts"].ece - measured["none"].ece)
    assert not measured["none"].against


def test_a_record_is_plain_and_says_what_was_fitted(study: Study, data: Data) -> None:
    measured = study.measure(data.test_mask)
    assert list(measured) == list(RECIPES)
    record = json.loads(json.dumps({**study.about("ts"), **measured["ts"].to_dict()}, allow_nan=False))
    assert record["title"] == TemperatureScaling.card.title
    assert record["recipe"] == repr(TemperatureScaling())
    assert record["fit_seconds"] >= 0
    assert len(record["ece"]["values"]) == 2


def test_calibrations_are_carried_to_a_changed_graph(study: Study, data: Data) -> None:
    same = study.reapply([replace(out, graph=data) for out in study.outputs])
    assert torch.equal(same.log_probs("scar")[0], study.log_probs("scar")[0])
    runs = train(data, training=Training(hidden_channels=8, epochs=30, patience=None), seeds=range(2))
    changed = with_mixed_features(data, 1.0, torch.Generator().manual_seed(0))
    moved = study.reapply([observe(run.model, changed) for run in runs])
    assert moved.graph is changed
    assert moved.fitted["ts"][0].calibration is study.fitted["ts"][0].calibration
    assert not torch.equal(moved.log_probs("ts")[0], study.log_probs("ts")[0])


def test_runs_on_several_graphs_are_refused(data: Data) -> None:
    (out,) = trained(data, 1)
    with pytest.raises(ValueError, match="runs on one graph"):
        Study.of([out, replace(out, graph=data.clone())], RECIPES, on=data.val_mask)
    with pytest.raises(ValueError, match="at least one run"):
        Study.of([], RECIPES, on=data.val_mask)


def test_seconds_are_those_of_the_clock(data: Data) -> None:
    ticks = iter(range(100))
    study = Study.of(trained(data, 1), {"none": Uncalibrated()}, on=data.val_mask, clock=lambda: float(next(ticks)))
    (one,) = study.fitted["none"]
    assert (one.fit_seconds, one.apply_seconds) == (1.0, 1.0)


def test_held_out_nodes_are_calibrated_by_a_fit_on_the_other_folds() -> None:
    data = random_graph()
    out = trained(data)[0]
    nodes = data.val_mask.nonzero().flatten()
    parts = [torch.arange(0, 30), torch.arange(30, 60)]
    got = held_out(out, TemperatureScaling(), data.val_mask, parts)
    first_half = data.val_mask.clone()
    first_half[nodes[30:]] = False
    by_hand = TemperatureScaling().fit(out, on=first_half)(out)[nodes[30:]]
    assert torch.allclose(got[30:], by_hand)
    plain = held_out(out, Uncalibrated(), data.val_mask, parts)
    assert torch.allclose(plain, out.logits[data.val_mask].log_softmax(-1))


@pytest.mark.slow_cases("cagcn")
@pytest.mark.parametrize("name", ["scar", "graph-scaling", "ms", "cagcn"])
def test_held_out_nodes_have_the_log_probabilities_of_the_whole_graph(name: str) -> None:
    out = model_outputs()
    on, recipe = out.graph.val_mask, graphcal.CALIBRATORS[name]()
    nodes = on.nonzero().flatten()
    parts = torch.arange(len(nodes)).chunk(2)
    got = held_out(out, recipe, on, parts)
    for part in parts:
        others = on.clone()
        others[nodes[part]] = False
        whole = recipe.fit(out, on=others)(out).detach()[nodes[part]]
        torch.testing.assert_close(got[part], whole, atol=1e-6, rtol=1e-6)


def test_held_out_applies_a_fold_to_its_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    out = model_outputs()
    sizes, kernel = [], CentroidPull.kernel

    def counted(self, logits, context):
        sizes.append(logits.shape[1])
        return kernel(self, logits, context)

    monkeypatch.setattr(CentroidPull, "kernel", counted)
    parts = torch.arange(int(out.graph.val_mask.sum())).chunk(2)
    held_out(out, SCAR(), out.graph.val_mask, parts)
    assert sizes == [len(part) for part in parts]


def fits(path: Path) -> bool:
    """Does a module call `something.fit(..., on=...)`?"""
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "fit" and any(k.arg == "on" for k in call.keywords)
        for call in calls
    )


def test_nobody_else_fits_on_validation_nodes() -> None:
    root = Path(graphcal.__file__).parent
    modules = {str(path.relative_to(root)): path for path in root.rglob("*.py") if fits(path)}
    retrained = {"lab/training/retraining.py"}  # a recipe: whoever fits it hides test labels
    others = {name for name in modules if not name.startswith(("methods/", "lab/paper/"))} - retrained - {"study.py"}
    for name in others:
        text = modules[name].read_text(encoding="utf-8")
        assert "hide_test_labels(" in text or "blinded_outputs(" in text, f"{name} fits with test labels in sight"
    assert others == {"lab/bench/label_free.py", "lab/bench/set_coverage.py"}


def test_the_nodes_that_stop_a_fit_reach_the_recipe(data: Data) -> None:
    seen = []

    class Watching:
        def fit(self, out, on, stop=None):
            seen.append(stop)
            return Uncalibrated().fit(out, on)

    out = Outputs(torch.randn(data.num_nodes, 10), data)
    Study.of([out], {"watching": Watching()}, on=data.val_mask, stop=data.train_mask)
    assert seen[0] is data.train_mask


@pytest.mark.parametrize(
    ("name", "words"), [("train_mask", "2 test nodes are also in train_mask"), ("val_mask", "fitted on")]
)
def test_test_nodes_that_were_trained_or_fitted_on_are_said(name, words):
    out = model_outputs()
    graph = out.graph.clone()
    graph.test_mask = graph.test_mask.clone()
    graph.test_mask[graph[name].nonzero().flatten()[:2]] = True
    with pytest.warns(UserWarning, match=words):
        Study.of([replace(out, graph=graph)], {"none": Uncalibrated()}, on=graph.val_mask)


def test_every_other_way_says_it_too():
    """By hand, by observe, by fitting on test nodes, by measuring on training nodes."""
    out = model_outputs()
    graph, y = out.graph.clone(), out.graph.y
    graph.test_mask = graph.test_mask | graph.train_mask
    graph.x = torch.randn(len(y), 5)
    message = f"{int(graph.train_mask.sum())} test nodes are also in train_mask"
    with pytest.warns(UserWarning, match=message):
        Outputs(out.logits, graph)
    with pytest.warns(UserWarning, match=message):
        observe(torch.nn.Linear(5, out.num_classes), graph, call=lambda model, data: model(data.x))
    with pytest.warns(UserWarning, match="on shares 3 nodes with test_mask: their labels are fitted on"):
        TemperatureScaling().fit(
            out, on=out.graph.val_mask | (out.graph.test_mask.cumsum(0).le(3) & out.graph.test_mask)
        )
    with pytest.warns(UserWarning, match="measured nodes are in train_mask: the model has seen their labels"):
        metrics.evaluate(out.logits.log_softmax(-1), y, graph.test_mask, graph, thorough=False, draws=20)


def test_masks_that_are_apart_are_not_remarked_on(recwarn):
    out = model_outputs()
    study = Study.of([out], {"none": Uncalibrated()}, on=out.graph.val_mask)
    study.measure(out.graph.test_mask)
    messages = [str(one.message) for one in recwarn]
    assert not [
        one for one in messages if "test nodes are also" in one or "measured nodes" in one or "test_mask" in one
    ]
