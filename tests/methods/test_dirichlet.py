"""Dirichlet calibration beside matrix scaling."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal.methods import Dirichlet, MatrixScaling
from small_outputs import model_outputs, with_logits


@pytest.fixture(scope="module")
def out():
    return model_outputs(random_graph(nodes=600, train=60, val=300))


def test_dirichlet_is_matrix_scaling_of_log_probabilities(out):
    shifted = with_logits(out.logits.log_softmax(-1), out.graph)
    direct = MatrixScaling().fit(shifted, out.graph.val_mask)
    fitted = Dirichlet().fit(out, out.graph.val_mask)
    torch.testing.assert_close(fitted(out), direct(shifted), atol=1e-4, rtol=1e-4)
