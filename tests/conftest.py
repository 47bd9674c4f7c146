"""Fixtures that several test files share."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

pytest.register_assert_rewrite("calibrator_contract")

HAS_LAB = importlib.util.find_spec("graphcal.lab") is not None
needs_lab = pytest.mark.skipif(not HAS_LAB, reason="needs the laboratory, graphcal.lab")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of a test as slow that ``@pytest.mark.slow_cases(ID, ...)`` names; "wide-" means all that begin so."""
    for item in items:
        marker, callspec = item.get_closest_marker("slow_cases"), getattr(item, "callspec", None)
        if marker is None or callspec is None:
            continue
        if any(callspec.id == case or (case.endswith("-") and callspec.id.startswith(case)) for case in marker.args):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real graphs; tests that need it are skipped elsewhere."""
    folder = os.environ.get("GRAPHCAL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set GRAPHCAL_DATA to the folder of real graphs to run this test")
    return Path(folder)


def random_graph(
    nodes: int = 150, classes: int = 4, features: int = 10, seed: int = 0, train: int = 40, val: int = 60
) -> Data:
    """A small graph with class-dependent edges and features, an isolated node, and the three masks."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (nodes,), generator=g)
    y[:classes] = torch.arange(classes)
    pairs = torch.randint(nodes, (2, 12 * nodes), generator=g)
    keep = torch.rand(pairs.shape[1], generator=g) < torch.where(y[pairs[0]] == y[pairs[1]], 0.5, 0.08)
    pairs = pairs[:, keep & (pairs[0] != pairs[1])]
    pairs = pairs[:, (pairs != nodes - 1).all(0)]  # the last node is isolated
    edge_index = torch.unique(torch.cat([pairs, pairs.flip(0)], 1), dim=1)
    x = torch.randn(nodes, features, generator=g) + torch.nn.functional.one_hot(y, features) * 1.5
    part = torch.zeros(nodes, dtype=torch.long)
    order = torch.randperm(nodes - 1, generator=g)
    part[order[:train]], part[order[train : train + val]] = 1, 2
    part[nodes - 1] = 0
    return Data(
        x=x,
        edge_index=edge_index,
        y=y,
        train_mask=part == 1,
        val_mask=part == 2,
        test_mask=part == 0,
        num_nodes=nodes,
    )


@pytest.fixture
def graph() -> Data:
    return random_graph()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No data folder and an empty cache."""
    monkeypatch.delenv("GRAPHCAL_DATA", raising=False)
    monkeypatch.setenv("GRAPHCAL_CACHE", str(tmp_path / "cache"))
    return tmp_path
