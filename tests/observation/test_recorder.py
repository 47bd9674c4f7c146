"""Which linear calls a tensor depends on last."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from graphcal.observation.recorder import Recorder

X = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
A, B = nn.Linear(5, 3), nn.Linear(5, 3, bias=False)
BACK, P = nn.Linear(3, 5), nn.Parameter(torch.ones(2, 5, 3))


def into_a_part():
    z = torch.zeros(6, 3)
    z.narrow(0, 0, 4).copy_(A(X)[:4])
    return z + B(X)


def by_index():
    z = torch.zeros(6, 3)
    z[X[:, 0] > 0] += A(X)[X[:, 0] > 0]
    return z + B(X)


FLOWS = {
    "sum": (lambda: A(X).relu() + B(X), [0, 1]),
    "later call": (lambda: A(BACK(A(X)).tanh()), [2]),
    "skip": (lambda: A(BACK(A(X))) + B(X), [2, 3]),
    "list": (lambda: torch.cat([A(X), B(X)], 1), [0, 1]),
    "written into a part": (into_a_part, [0, 1]),
    "written by index": (by_index, [0, 1]),
    "gate": (lambda: torch.sigmoid(A(X)) * B(X), [1]),
    "closing log_softmax": (lambda: A(X).log_softmax(-1), [0]),
    "view of a parameter": (lambda: X @ P[1] + torch.addmm(A.bias, X, B.weight.t()), [0, 1]),
    "product of values": (lambda: A(X) @ A(X).T, [0, 1]),
    "no weight": (lambda: X @ X.T, []),
}


@pytest.mark.parametrize("name", FLOWS)
def test_sources_are_the_last_linear_calls(name):
    flow, numbers = FLOWS[name]
    with torch.no_grad(), Recorder() as record:
        z = flow()
    assert [call.number for call in record.sources(z)] == numbers


def test_a_call_holds_its_input_weight_and_bias():
    with torch.no_grad(), Recorder() as record:
        A(X), X @ P[1], torch.addmm(A.bias, X, B.weight.t())
    linear, product, added = record.calls
    assert all(call.input is X for call in record.calls)
    assert torch.equal(linear.weight, A.weight)
    assert torch.equal(product.weight, P[1].T)
    assert torch.equal(added.weight, B.weight)
    assert product.bias is None
    assert torch.equal(added.bias, A.bias)


def test_gates_are_held_and_calls_changed():
    def run():
        return torch.sigmoid(A(X)) * B(X)

    with torch.no_grad():
        with Recorder(keep_gates=True) as first:
            z = run()
        with Recorder(first, {0: lambda y: 7 * y, 1: lambda y: 2 * y}):
            again = run()
    torch.testing.assert_close(again, 2 * z)
