"""The two forms of the columns of a convex fit say the same."""

from __future__ import annotations

import pytest
import torch

from graphcal.engine import columns as columns_module
from graphcal.engine import linear
from graphcal.engine.columns import DenseColumns, StructuredColumns, contrast
from graphcal.engine.linear import LinearFit

N, C = 40, 3


@pytest.fixture
def structured() -> StructuredColumns:
    g = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.double)

    return StructuredColumns([draw(N, C), 100 * draw(N, C)], [draw(N, 2), draw(N, 4)], draw(N, C, 2))


def written_out(columns: StructuredColumns) -> torch.Tensor:
    """(n, C, K), column by column."""
    parts = [f[:, :, None] * r[:, None, :] for f, r in zip(columns.fields, columns.rows)]
    own = torch.zeros(N, C, C, columns.own.shape[2], dtype=torch.double)
    for c in range(C):
        own[:, c, c] = columns.own[:, c]
    return torch.cat([*parts, own.flatten(2)], -1)


@pytest.mark.parametrize("chunk", [2**22, 50])
def test_structured_columns_are_the_columns_written_out(structured, chunk, monkeypatch):
    monkeypatch.setattr(columns_module, "CHUNK", chunk)
    dense = DenseColumns(written_out(structured))
    g = torch.Generator().manual_seed(1)
    theta = torch.randn(12, generator=g, dtype=torch.double)
    probs = torch.randn(N, C, generator=g, dtype=torch.double).softmax(-1)
    square = torch.randn(12, 12, generator=g, dtype=torch.double)
    inverse = square @ square.T
    torch.testing.assert_close(structured.apply(theta), dense.apply(theta))
    torch.testing.assert_close(structured.transpose(probs), dense.transpose(probs))
    torch.testing.assert_close(structured.curvature(probs), dense.curvature(probs))
    found = torch.cat([s for _, s in structured.leverage(inverse)])
    torch.testing.assert_close(found, torch.cat([s for _, s in dense.leverage(inverse)]))
    for columns in (structured, dense):
        torch.testing.assert_close(columns.levered(inverse, probs), (found @ probs[:, :, None]).squeeze(-1))
    thetas = torch.stack([theta, 2 * theta])
    torch.testing.assert_close(structured.apply_each(thetas), torch.stack([dense.apply(t) for t in thetas]))


def test_columns_of_unit_size_have_contrasts_of_size_one(structured):
    unit, size, alive = structured.unit(1e-12)
    assert alive.all()
    torch.testing.assert_close(contrast(written_out(unit)).square().mean((0, 1)), torch.ones(12, dtype=torch.double))
    torch.testing.assert_close(size, DenseColumns(written_out(structured)).unit(1e-12)[1])


def test_a_fit_and_its_leave_one_out_do_not_depend_on_the_form(structured):
    y = torch.randint(0, C, (N,), generator=torch.Generator().manual_seed(2))
    target, start = torch.nn.functional.one_hot(y, C).double(), torch.zeros(12)
    found = []
    for columns in (structured, DenseColumns(written_out(structured))):
        fit = LinearFit(torch.zeros(N, C), columns, target, start)
        ridge = torch.full((12,), 0.01, dtype=torch.double)
        state = fit.solve(ridge)
        found.append((fit.theta(state), state.loo_logits(ridge).log_softmax(-1)))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-6, atol=1e-9)


def test_the_series_for_many_classes_is_the_solution_for_few(structured, monkeypatch):
    y = torch.randint(0, C, (N,), generator=torch.Generator().manual_seed(2))
    target, ridge = torch.nn.functional.one_hot(y, C).double(), torch.full((12,), 0.05, dtype=torch.double)
    fit = LinearFit(torch.zeros(N, C), structured, target, torch.zeros(12))
    state = fit.solve(ridge)
    solved = state.loo_logits(ridge)
    monkeypatch.setattr(linear, "MOST_SOLVED", 1)
    assert (state.loo_logits(ridge) - solved).abs().max() < 0.01 * (solved - state.z).abs().max()


def test_selected_columns_are_those_columns(structured):
    keep = torch.tensor([True, False, True, True, False, False] + [True, False] * 3)
    torch.testing.assert_close(written_out(structured.select(keep)), written_out(structured)[:, :, keep])


def test_a_column_of_nothing_is_left_out(structured):
    rows = [structured.rows[0] * torch.tensor([1.0, 0.0]), structured.rows[1]]
    unit, _, alive = StructuredColumns(structured.fields, rows, structured.own).unit(1e-12)
    assert alive.tolist() == [True, False] + [True] * 10
    assert unit.apply(torch.eye(12, dtype=torch.double)[1]).abs().max() == 0
