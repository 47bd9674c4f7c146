"""Adam in one flat vector is torch's Adam, and it gives back the best state it saw."""

from __future__ import annotations

import torch

from graphcal.methods.solvers.adam import adam, ravel, unravel

A = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)


def loss(w):
    return (A @ w["x"] - 1).square().mean() + w["y"].sum().square()


def start():
    return {"x": torch.zeros(6, dtype=torch.double), "y": torch.ones(2, 3, dtype=torch.double)}


def test_raveled_weights_come_back():
    weights = start()
    again = unravel(ravel(weights), weights)
    assert list(again) == list(weights)
    assert all(torch.equal(again[name], weights[name]) for name in weights)


def last():
    """A watched loss that keeps the last state."""
    count = iter(range(1000, 0, -1))
    return lambda w: torch.tensor(float(next(count)))


def test_a_fit_is_that_of_torchs_adam():
    ours = adam(start(), loss, last(), lr=0.05, epochs=30, patience=100, weight_decay=0.01)
    theirs = {name: w.requires_grad_() for name, w in start().items()}
    optimiser = torch.optim.Adam(theirs.values(), lr=0.05, weight_decay=0.01)
    for _ in range(30):
        optimiser.zero_grad()
        loss(theirs).backward()
        optimiser.step()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name].detach(), atol=1e-10, rtol=1e-8)


def test_the_watched_loss_decides_which_state_is_kept_and_when_to_stop():
    seen = []

    def watch(w):  # falls for three epochs, then rises
        seen.append({name: value.detach().clone() for name, value in w.items()})
        return torch.tensor(abs(len(seen) - 4.0))

    kept = adam(start(), loss, watch, lr=0.05, epochs=100, patience=5)
    assert len(seen) == 4 + 5
    assert all(torch.equal(kept[name], seen[3][name]) for name in kept)


def test_weight_decay_acts_on_the_names_it_is_given_for():
    nothing = lambda w: 0.0 * loss(w)  # noqa: E731
    decayed = adam(start(), nothing, last(), lr=0.1, epochs=3, patience=9, weight_decay={"y": 1.0})
    assert (decayed["y"] < 1).all()
    assert torch.equal(decayed["x"], start()["x"])


def test_a_loss_that_is_not_finite_ends_the_fit():
    kept = adam(start(), lambda w: loss(w) / 0.0, lr=0.1, epochs=9, patience=9)
    assert all(torch.equal(kept[name], value) for name, value in start().items())
