"""Tests of the reproduction are slow by default: they read every committed table. Contracts and presets stay in the fast set."""

from pathlib import Path

import pytest

FAST = ("test_quirk_contract.py", "test_paper_presets.py", "test_claims.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.name not in FAST:
            item.add_marker(pytest.mark.slow)
