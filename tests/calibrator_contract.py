"""What every calibrator keeps to, whoever wrote it.

A test module says whom it holds to this contract, and imports the tests:

    from calibrator_contract import *

    @pytest.fixture(scope="module", params=[...])
    def name(request): return request.param
"""

from __future__ import annotations

import copy
from dataclasses import fields, is_dataclass, replace

import pytest
import torch
from torch.nn.functional import nll_loss

from conftest import random_graph
from graphcal import saving
from graphcal.core import BLOCK, Calibration, Outputs
from graphcal.graphs import MemorySums, TracedSums, structure
from graphcal.methods import CALIBRATORS
from graphcal.methods.card import idea_of
from small_outputs import SMALL, model_outputs, permuted, quick, with_logits


def fit(name: str, out: Outputs, **budget: object) -> Calibration:
    return quick(name, **{**SMALL, **budget}).fit(out, on=out.graph.val_mask)


@pytest.fixture(scope="module")
def out() -> Outputs:
    return model_outputs()


@pytest.fixture(scope="module")
def fitted(name, out) -> Calibration:
    return fit(name, out)


def extreme_outputs(case: str) -> Outputs:
    g = torch.Generator().manual_seed(3)
    if case == "huge":
        graph = random_graph()
        return with_logits(2e4 * torch.rand(150, 4, generator=g) - 1e4, graph)
    if case == "huge and flat":
        graph = random_graph()
        logits = 1e4 * (torch.randint(0, 2, (150, 4), generator=g) * 2.0 - 1)  # only +-1e4: ties everywhere
        logits[:40] = 0.0
        return with_logits(logits, graph)
    if case == "two classes":
        return with_logits(torch.randn(150, 2, generator=g), random_graph(classes=2))
    if case == "200 classes":
        return with_logits(torch.randn(150, 200, generator=g), random_graph(classes=4))
    if case == "absent class":
        graph = random_graph()
        graph.val_mask = graph.val_mask & (graph.y != 2)
        return with_logits(torch.randn(150, 4, generator=g), graph)
    raise AssertionError(case)


EXTREMES = ("huge", "huge and flat", "two classes", "200 classes", "absent class")


def test_log_probabilities_sum_to_one(name, fitted, out):
    log_probs = fitted(out)
    assert log_probs.shape == out.logits.shape
    assert log_probs.dtype == out.logits.dtype
    assert torch.isfinite(log_probs).all()
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(out.num_nodes), atol=1e-5, rtol=0)
    assert not log_probs.requires_grad


@pytest.mark.slow_cases("ms-200 classes", "auto-200 classes", "graph-scaling-keep-200 classes", "dirichlet-200 classes")
@pytest.mark.parametrize("case", EXTREMES)
def test_extreme_logits_stay_finite(name, case):
    out = extreme_outputs(case)
    log_probs = fit(name, out, epochs=4)(out)  # the last node of the graph is isolated
    assert torch.isfinite(log_probs).all()
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(out.num_nodes), atol=1e-4, rtol=0)
    if CALIBRATORS[name].card.keeps_predictions:
        assert torch.equal(log_probs.argmax(-1), out.pred)
        assert torch.equal(log_probs.exp().argmax(-1), out.pred)  # ties that exp would make included


def test_the_input_is_not_changed(name):
    out = model_outputs()
    before = {key: value.clone() for key, value in out.graph.to_dict().items() if isinstance(value, torch.Tensor)}
    logits, gram, hidden = out.logits.clone(), out.final.gram.clone(), out.hidden.clone()
    fit(name, out)(out)
    assert set(before) == {key for key, value in out.graph.to_dict().items() if isinstance(value, torch.Tensor)}
    assert all(torch.equal(out.graph[key], value) for key, value in before.items())
    assert torch.equal(out.logits, logits)
    assert torch.equal(out.final.gram, gram)
    assert torch.equal(out.hidden, hidden)


def test_the_same_seed_gives_the_same_result(name, fitted, out):
    torch.manual_seed(99)  # the global generator plays no part
    again = fit(name, out)
    assert torch.equal(again(out), fitted(out))
    assert torch.equal(fitted(out), fitted(out))


def test_renumbering_the_nodes_renumbers_the_result(name, fitted, out):
    order = torch.randperm(out.num_nodes, generator=torch.Generator().manual_seed(5))
    moved = permuted(out, order)
    torch.testing.assert_close(fitted(moved), fitted(out)[order], atol=1e-4, rtol=1e-4)
    refitted = fit(name, moved)  # and fitting does not depend on the numbers either
    torch.testing.assert_close(refitted(moved), fitted(out)[order], atol=5e-3, rtol=5e-3)


def test_nll_of_the_fitted_nodes_is_not_worse_where_it_is_minimised(name, out):
    if not CALIBRATORS[name].card.minimises_nll:
        pytest.skip("its fit has another aim")
    on, y = out.graph.val_mask, out.graph.y
    after = fit(name, out, epochs=150, patience=150)(out)
    assert nll_loss(after[on], y[on]) <= nll_loss(out.logits.log_softmax(-1)[on], y[on]) + 1e-6


def test_predictions_are_kept_where_the_card_says_so(name, fitted, out):
    changed = int((fitted(out).argmax(-1) != out.pred).sum())
    assert changed == 0 or not CALIBRATORS[name].card.keeps_predictions


def test_test_labels_are_never_read(name, fitted, out):
    blind = out.graph.clone()
    hidden_from_us = ~(blind.train_mask | blind.val_mask)
    blind.y = torch.where(hidden_from_us, (blind.y + 1) % 4, blind.y)
    unlabelled = replace(out, graph=blind)
    assert torch.equal(fit(name, unlabelled)(unlabelled), fitted(out))


def test_saved_and_restored_it_gives_the_same(name, fitted, out, tmp_path):
    path = saving.save(fitted, tmp_path / "calibration.safetensors")
    restored = saving.restore(path)
    assert type(restored) is type(fitted)
    assert torch.equal(restored(out), fitted(out))
    assert repr(restored) == repr(fitted)


def test_double_precision_in_and_out(name, fitted, out):
    wide = out.to(torch.float64)
    log_probs = fit(name, wide)(wide)
    assert log_probs.dtype == torch.float64
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(out.num_nodes, dtype=torch.float64))
    applied = fitted(wide)  # fitted in single precision, applied in double
    assert applied.dtype == torch.float64
    same = torch.isclose(applied.float(), fitted(out), atol=1e-3, rtol=1e-3).all(-1)
    assert same.float().mean() >= 0.98  # a step function may put a probability on its edge to either side


HALVES = (torch.float16, torch.bfloat16)


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_half_precision_is_computed_in_single(name, half, fitted, out):
    """Logits in half precision give what the same numbers in single precision give; autocast hands such logits over."""
    coarse = out.logits.to(half)
    narrow, wide = replace(out, logits=coarse), replace(out, logits=coarse.float())
    assert fitted(narrow).dtype == torch.float32
    assert torch.equal(fitted(narrow), fitted(wide))
    refitted = fit(name, narrow, epochs=3)(narrow)
    assert torch.isfinite(refitted).all()


def test_logits_that_require_a_gradient(name, fitted, out):
    tracked = replace(out, logits=out.logits.clone().requires_grad_(), hidden=out.hidden.clone().requires_grad_())
    assert torch.equal(fitted(tracked), fitted(out))
    assert not fit(name, tracked, epochs=3)(tracked).requires_grad


@pytest.mark.parametrize("scale", [1e10, 1e14])
def test_very_large_logits_stay_finite(name, scale):
    graph, g = random_graph(), torch.Generator().manual_seed(3)
    out = with_logits(scale * (2 * torch.rand(150, 4, generator=g) - 1), graph)
    log_probs = fit(name, out, epochs=3)(out)
    assert not torch.isnan(log_probs).any()
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(out.num_nodes), atol=1e-3, rtol=0)


@pytest.mark.parametrize("scale", [1e19, 1e30])
def test_logits_whose_squares_overflow_are_refused(name, out, scale):
    blown = out.logits.clone()
    blown[7] *= scale / blown[7].abs().max()
    with pytest.raises(ValueError, match=r"logits reach 1e\+\d\d \(row 7\)"):
        replace(out, logits=blown)


def test_features_that_are_not_finite_are_refused_or_not_read(name, fitted, out):
    broken = out.graph.clone()
    broken.x = broken.x.clone()
    broken.x[3, 0], broken.x[60, 1] = torch.nan, torch.inf
    try:
        log_probs, refused = fitted(replace(out, graph=broken)), ""
    except ValueError as error:
        log_probs, refused = None, str(error)
    assert "not finite" in refused or torch.equal(log_probs, fitted(out))


def test_all_state_moves_with_the_module(name, fitted, out):
    """Every tensor is a buffer, so `.to(device)` takes all of it along; on another device it works where there is one."""
    for module in fitted.modules():
        assert not [key for key, value in vars(module).items() if isinstance(value, torch.Tensor)]
        assert not [key for key, value in getattr(module, "settings", {}).items() if isinstance(value, torch.Tensor)]
    if torch.cuda.is_available() and not CALIBRATORS[name].card.model:
        there = saving_copy(fitted).to("cuda")(out.to("cuda"))
        torch.testing.assert_close(there.cpu(), fitted(out), atol=1e-4, rtol=1e-4)


def saving_copy(calibration: Calibration) -> Calibration:
    parts = copy.deepcopy(dict(calibration.named_children()))
    state = {**dict(calibration.named_buffers(recurse=False)), **parts, **calibration.settings}
    return type(calibration)(num_classes=calibration.num_classes, **state)


def test_applying_needs_no_labels(name, fitted, out):
    """A shipped calibration meets graphs whose labels nobody knows."""
    bare = out.graph.clone()
    for key in ("y", "val_mask", "test_mask"):
        del bare[key]
    assert torch.equal(fitted(replace(out, graph=bare)), fitted(out))


def test_what_it_reads_off_the_graph_is_its_context(name, fitted, out):
    """Rows of logits with their rows of context are all a calibration needs; without a graph there is no context at all."""
    if fitted.needs.whole_graph:
        assert type(fitted).kernel is Calibration.kernel
        pytest.skip("it runs on the whole graph")
    context = fitted.context_of(out)
    assert context.shape[0] == out.num_nodes
    assert fitted.needs.edges == (context.shape[1] > 0)
    torch.testing.assert_close(fitted.log_probs(out.logits, context), fitted(out), atol=1e-6, rtol=0)
    some = torch.randperm(out.num_nodes)[:40]
    torch.testing.assert_close(
        fitted.log_probs(out.logits[some], context[some]), fitted(out)[some], atol=1e-5, rtol=1e-5
    )
    rows = fitted.kernel(out.logits.T, context.T).T
    torch.testing.assert_close(rows.to(out.logits), fitted(out), atol=1e-6, rtol=0)


def test_rows_of_more_than_one_block_are_calibrated_alike(name, fitted, out):
    if fitted.needs.whole_graph:
        pytest.skip("it runs on the whole graph")
    times = 2 * BLOCK // out.num_nodes + 1
    logits, context = out.logits.repeat(times, 1), fitted.context_of(out).repeat(times, 1)
    expected = fitted(out).repeat(times, 1)
    torch.testing.assert_close(fitted.log_probs(logits, context), expected, atol=1e-6, rtol=1e-6)


def test_context_and_kernel_run_on_any_device(name, fitted, out):
    """The meta device has shapes and no values: NumPy, ``.cpu()`` and decisions by value fail on it."""
    if fitted.needs.whole_graph:
        pytest.skip("it runs on the whole graph")
    there = saving_copy(fitted).to("meta")
    logits, edges = out.logits.to("meta"), structure(out.graph).edge_index.to("meta")
    context = there.context(logits, TracedSums(edges, out.graph.train_mask.to("meta")))
    assert context.device.type == "meta"
    assert context.shape == fitted.context_of(out).shape
    log_probs = there.log_probs(logits, context)
    assert log_probs.device.type == "meta"
    assert log_probs.shape == logits.shape
    assert log_probs.dtype == logits.dtype


@pytest.mark.parametrize("train", [True, False])
def test_the_context_is_the_same_in_memory_and_when_traced(name, fitted, out, train):
    if fitted.needs.whole_graph:
        pytest.skip("it runs on the whole graph")
    mask = out.graph.train_mask if train else torch.zeros_like(out.graph.train_mask)
    facts = replace(structure(out.graph), train_mask=mask)
    values, expected = (
        fitted.context(out.logits, graph) for graph in (TracedSums(facts.edge_index, mask), MemorySums(facts))
    )
    torch.testing.assert_close(values, expected, atol=1e-6, rtol=1e-6, equal_nan=True)


def test_the_card_is_filled_in(name):
    card = CALIBRATORS[name].card
    for field in fields(card):
        value = getattr(card, field.name)
        assert not isinstance(value, str) or value.strip(), f"{name}: {field.name} is empty"
    assert idea_of(CALIBRATORS[name]).endswith(".")


def test_a_recipe_is_a_frozen_value_with_defaults(name):
    recipe = CALIBRATORS[name]()
    assert is_dataclass(recipe)
    assert recipe == CALIBRATORS[name]()
    assert hash(recipe) == hash(CALIBRATORS[name]())


def test_bad_fitting_nodes_are_refused(name, out):
    recipe = quick(name, **SMALL)
    with pytest.raises(ValueError, match="selects no node"):
        recipe.fit(out, on=torch.zeros(out.num_nodes, dtype=torch.bool))
    with pytest.raises(ValueError, match="train_mask"):
        recipe.fit(out, on=out.graph.train_mask)


def test_another_number_of_classes_is_refused(name, fitted, out):
    assert fitted.num_classes == 4
    other = with_logits(torch.randn(out.num_nodes, 6), out.graph)
    with pytest.raises(ValueError, match="fitted on 4 classes, the logits have 6"):
        fitted(other)


def test_the_recipe_and_its_fit_say_what_they_do(name):
    recipe = CALIBRATORS[name]
    assert recipe.__doc__
    assert not recipe.__doc__.startswith(recipe.__name__), "a signature is not a docstring"
    assert recipe.fit.__doc__
