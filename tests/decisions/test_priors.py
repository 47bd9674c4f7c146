"""Prior shift: closed forms undo what they describe; EM finds the new prior, and refuses what is not one."""

import numpy as np
import pytest
import torch

from graphcal.decisions.priors import em_prior, estimate_prior, move_prior, undo_focal, undo_weights

MEANS = torch.tensor([[0.0, 0.0], [1.7, 0.0], [0.0, 1.7]], dtype=torch.double)
OLD, NEW = [0.6, 0.3, 0.1], [0.3, 0.3, 0.4]


def nodes(count, prior, seed, moved=0.0):
    g = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor(prior), count, replacement=True, generator=g)
    return MEANS[y] + torch.randn(count, 2, generator=g, dtype=torch.double) + moved, y


def posterior(x, prior):
    density = -((x[:, None] - MEANS) ** 2).sum(-1) / 2
    return (density + torch.tensor(prior, dtype=torch.double).log()).log_softmax(1)


def test_weights_and_priors_are_undone_exactly():
    x, _ = nodes(50, OLD, 0)
    weighted = [p * w for p, w in zip(OLD, (1.0, 2.0, 9.0))]
    torch.testing.assert_close(undo_weights(posterior(x, weighted), [1.0, 2.0, 9.0]), posterior(x, OLD))
    torch.testing.assert_close(move_prior(posterior(x, OLD), OLD, NEW), posterior(x, NEW))
    for bad in ([1.0, 2.0], [1.0, 0.0, 2.0]):
        with pytest.raises(ValueError, match="weights must be 3 positive numbers"):
            undo_weights(posterior(x, OLD), bad)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 3.0])
def test_focal_loss_is_undone(gamma):
    """The minimiser of the expected focal loss for a known truth goes back to that truth."""
    truth = torch.tensor([0.7, 0.2, 0.1], dtype=torch.double)
    z = torch.zeros(3, dtype=torch.double, requires_grad=True)
    optimiser = torch.optim.LBFGS([z], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        log_v = z.log_softmax(0)
        value = -(truth * (1 - log_v.exp()) ** gamma * log_v).sum()
        value.backward()
        return value

    optimiser.step(loss)
    learned = z.detach().log_softmax(0)[None]
    torch.testing.assert_close(undo_focal(learned, gamma).exp()[0], truth, atol=1e-4, rtol=0)
    if gamma:
        assert learned.exp().max() < 0.69  # focal loss alone is under-confident
    with pytest.raises(ValueError, match="gamma must be at least 0"):
        undo_focal(learned, -1.0)


def test_em_finds_the_new_prior():
    x, _ = nodes(20_000, NEW, 1)
    np.testing.assert_allclose(em_prior(posterior(x, OLD).exp().numpy(), np.array(OLD)), NEW, atol=0.02)


@pytest.mark.slow
def test_intervals_hold_the_prior_and_the_count():
    held, times = 0, 8
    for k in range(times):
        (x, y), (x_new, y_new) = nodes(600, OLD, 10 + k), nodes(1000, NEW, 50 + k)
        estimate = estimate_prior(posterior(x_new, OLD), posterior(x, OLD), y, draws=60, seed=k)
        held += sum(one.low <= p <= one.high for one, p in zip(estimate.prior, NEW))
        seen = np.bincount(y_new, minlength=3)
        held += sum(one.low <= n <= one.high for one, n in zip(estimate.count, seen))
        assert estimate.nodes == 1000
    assert held >= 0.8 * 6 * times


def test_another_kind_of_shift_is_refused():
    (x, y), (x_new, _) = nodes(1500, OLD, 2), nodes(2000, NEW, 3, moved=1.2)
    with pytest.raises(ValueError, match="more than the prior has changed"):
        estimate_prior(posterior(x_new, OLD), posterior(x, OLD), y, draws=100)
    with pytest.raises(ValueError, match="no labelled node of class 2"):
        estimate_prior(posterior(x_new, OLD), posterior(x, OLD), y.clamp(max=1))
