"""Smooth ECE and KDE-ECE against direct sums over the nodes."""

import numpy as np
import pytest
import torch
from known_truth import binary, confidences, draw, predictions

from graphcal.metrics import kde_ece, smooth_ece
from graphcal.metrics.ece_variants import CELLS


def direct_smooth(conf, right, width):
    """∫ |1/N Σ K_σ(t, c)(right - c)| dt with the reflected Gaussian as a sum of images."""
    t = (np.arange(CELLS) + 0.5) / CELLS
    images = [sign * conf + shift for shift in (-2, 0, 2) for sign in (1, -1)]
    kernel = sum(np.exp(-((t[:, None] - image[None]) ** 2) / (2 * width**2)) for image in images)
    kernel /= np.sqrt(2 * np.pi) * width
    return np.abs((kernel * (right - conf)[None]).mean(1)).mean()


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_smooth_ece_is_its_own_width(scale):
    log_probs, y = predictions(300, scale=scale)
    width = smooth_ece(log_probs, y)
    conf, right = log_probs.exp().max(1).values.numpy(), (log_probs.argmax(1) == y).double().numpy()
    assert direct_smooth(conf, right, width) == pytest.approx(width, abs=2e-4)


def test_smooth_ece_finds_a_steady_offset():
    g = torch.Generator().manual_seed(0)
    conf = confidences("even", 20_000, g) * 0.9
    conf = conf.clamp(min=0.5)
    log_probs, y = binary(conf, draw(conf + 0.08, g))
    assert smooth_ece(log_probs, y) == pytest.approx(0.08, abs=0.012)
    assert kde_ece(log_probs, y) == pytest.approx(0.08, abs=0.012)


def test_kde_ece_is_the_direct_sum():
    log_probs, y = predictions(400, scale=0.6)
    conf, right = log_probs.exp().max(1).values.numpy(), (log_probs.argmax(1) == y).double().numpy()
    reach = 3 * conf.std() * 800 ** (-0.2)
    z = (np.arange(8000) + 0.5) / 8000
    kernel = sum(
        35 / 32 / reach * np.clip(1 - ((z[:, None] - image[None]) / reach) ** 2, 0, None) ** 3
        for image in (conf, -conf, 2 - conf)
    )
    expected = np.abs((kernel * (z[:, None] - right[None])).mean(1)).mean()
    assert kde_ece(log_probs, y) == pytest.approx(expected, abs=3e-4)


def test_one_confidence_for_all():
    log_probs, y = binary(torch.full((200,), 0.7, dtype=torch.float64), torch.tensor([1.0] * 180 + [0.0] * 20))
    assert kde_ece(log_probs, y) == pytest.approx(0.2, abs=2e-3)
    assert smooth_ece(log_probs, y) == pytest.approx(0.2, abs=2e-3)
