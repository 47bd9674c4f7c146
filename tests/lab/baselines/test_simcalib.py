"""The distances of SimCalib, and what it asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcal.lab.baselines import SimCalib
from graphcal.lab.baselines.simcalib import class_prototypes, describe
from small_outputs import model_outputs


@pytest.fixture(scope="module")
def out():
    return model_outputs()


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
