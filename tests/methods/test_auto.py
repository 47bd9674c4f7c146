"""`auto` chooses, says why, and knows when to leave a model alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from conftest import random_graph
from graphcal.methods import Auto
from graphcal.methods.auto import one_standard_error
from small_outputs import model_outputs, with_logits


def drawn_from(logits: torch.Tensor, scale: float, seed: int = 0):
    """A graph whose labels follow softmax(scale z): exactly calibrated for scale 1."""
    graph = random_graph(nodes=len(logits), train=20, val=1000)
    g = torch.Generator().manual_seed(seed)
    graph.y = torch.multinomial((scale * logits).softmax(-1), 1, generator=g).squeeze(-1)
    return graph


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    return torch.randn(1200, 4, generator=torch.Generator().manual_seed(4))


def test_a_calibrated_model_is_left_alone(logits):
    graph = drawn_from(logits, 1.0)
    out = with_logits(logits, graph)
    fitted = Auto().fit(out, graph.val_mask)
    assert fitted.chosen == "none"
    assert "not measurably needed" in fitted.why
    assert torch.equal(fitted(out), logits.log_softmax(-1))


def test_a_model_that_is_off_by_a_temperature_gets_one(logits):
    graph = drawn_from(logits, 3.0)
    fitted = Auto().fit(with_logits(logits, graph), graph.val_mask)
    assert fitted.chosen == "ts"
    assert fitted.calibration.temperature == pytest.approx(1 / 3, rel=0.15)
    assert "one standard error" in fitted.why
    assert fitted.scores["ts"] < fitted.scores["none"]


def test_without_a_final_layer_or_edges_fewer_are_tried():
    out = model_outputs(random_graph(nodes=300, train=20, val=200))
    graph = out.graph
    assert set(Auto().fit(out, graph.val_mask).scores) == {
        "none",
        "ts",
        "scar",
        "ets",
        "scar with temperature",
        "rbs",
        "graph-scar",
    }
    plain = replace(out, final=None)
    assert list(Auto().fit(plain, graph.val_mask).scores) == ["none", "ts", "ets", "rbs"]
    lonely = graph.clone()
    del lonely["edge_index"]
    assert list(Auto().fit(replace(plain, graph=lonely), graph.val_mask).scores) == ["none", "ts", "ets"]


def test_the_rule_takes_the_simplest_within_one_standard_error():
    best = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.double)
    near = best + torch.tensor([0.1, -0.1, 0.05, 0.0], dtype=torch.double)  # mean excess 0.0125, well within its error
    far = best + 0.5  # always worse: the error of the difference is zero
    assert one_standard_error({"none": far, "ts": near, "rbs": best})[0] == "ts"
    assert one_standard_error({"none": far, "ts": far, "rbs": best})[0] == "rbs"
    assert one_standard_error({"none": near, "ts": best})[0] == "none"


def test_too_few_nodes_for_the_folds_are_refused():
    out = model_outputs()
    few = out.graph.val_mask & (out.graph.val_mask.cumsum(0) <= 6)
    with pytest.raises(ValueError, match="5 folds, but on selects only 6 nodes"):
        Auto().fit(out, few)
