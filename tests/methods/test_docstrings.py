"""The examples in the docstrings run."""

from __future__ import annotations

import doctest

import pytest

from graphcal import persist
from graphcal.methods import graph_scaling, scar, temperature


@pytest.mark.parametrize("module", [graph_scaling, persist, scar, temperature], ids=lambda m: m.__name__)
def test_examples_say_what_happens(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
