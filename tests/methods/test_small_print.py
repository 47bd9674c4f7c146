"""Constants and margins that a formula's reader would miss: each has a test that fails without it."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import logsigmoid

from graphcal.graphs import MemorySums, structure
from graphcal.methods.platt import Sigmoids, fit_sigmoid
from graphcal.methods.scar import FEW_NODES, SCAR, guarded_pull, side_of_training
from graphcal.methods.solvers.scaling import break_ties, log_odds
from graphcal.methods.temperature import SMALLEST_SCALE, Temperature, fit_scale
from small_outputs import model_outputs


def test_a_tie_that_rounding_made_goes_to_the_prediction() -> None:
    tied = torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log()
    kept = break_ties(tied, torch.tensor([1, 0]))
    assert kept.argmax(-1).tolist() == [1, 0]
    torch.testing.assert_close(kept, tied, atol=1e-6, rtol=0)


def test_the_temperature_is_one_over_the_scale() -> None:
    assert Temperature(num_classes=2, scale=torch.tensor([2.0])).temperature == 0.5


def test_logits_that_point_the_wrong_way_are_flattened_not_turned_over() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).repeat(10, 1)
    assert float(fit_scale(logits, torch.tensor([1, 0]).repeat(10))) == pytest.approx(SMALLEST_SCALE)


def test_platt_counts_one_more_node_of_each_outcome() -> None:
    """With nothing to go by, the sigmoid says the smoothed frequency: 1/(n + 2) of n nodes, none of which has the class."""
    _, bias = fit_sigmoid(torch.zeros(4, dtype=torch.double), torch.zeros(4, dtype=torch.bool))
    assert float(bias.sigmoid()) == pytest.approx(1 / 6, abs=1e-6)


def test_platt_applies_slope_and_bias() -> None:
    logits = torch.tensor([[1.0, 0.0, -1.0]])
    slope, bias = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([0.0, 3.0, 0.0])
    expected = logsigmoid(slope * log_odds(logits) + bias).log_softmax(-1)
    log_probs = Sigmoids(num_classes=3, slope=slope, bias=bias).log_probs(logits, torch.empty(1, 0))
    torch.testing.assert_close(log_probs, expected)


def test_a_side_with_few_fitting_nodes_shares_the_weight_of_the_other() -> None:
    out = model_outputs(sharpness=0.3)
    side, free = side_of_training(MemorySums(structure(out.graph)))[:, 0], ~out.graph.train_mask
    near, far = ((side == 1) & free).nonzero().flatten(), ((side == 0) & free).nonzero().flatten()
    fewer, many = (near, far) if len(near) < len(far) else (far, near)

    def weights(count: int) -> tuple[float, float]:
        on = torch.zeros(out.num_nodes, dtype=torch.bool)
        on[fewer[:count]] = True
        on[many] = True
        fitted = SCAR().fit(out, on=on)
        return float(fitted.alpha), float(fitted.beta)

    assert len(fewer) > 12
    assert min(len(fewer), 12) < FEW_NODES
    alpha, beta = weights(12)
    assert alpha == beta != 0.0, "twelve nodes cannot carry a weight of their own"


def test_a_capped_weight_keeps_a_thousandth_of_the_lead() -> None:
    z, t = torch.tensor([[1.0], [0.0]], dtype=torch.double), torch.tensor([[0.0], [1.0]], dtype=torch.double)
    log_probs, w = guarded_pull(z, t, torch.ones(1, dtype=torch.double), torch.tensor([0]))
    assert float(w) == pytest.approx(0.5 * (1 - 1e-3), rel=1e-9)  # the lead of 1 is lost at 2 for each unit of w
    assert float(log_probs[0, 0] - log_probs[1, 0]) == pytest.approx(1e-3, rel=1e-6)
