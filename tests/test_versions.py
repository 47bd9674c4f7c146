"""A result says what it was computed with."""

from __future__ import annotations

import torch

import graphcal
from graphcal.versions import installed_versions


def test_versions_are_those_of_the_packages_in_use() -> None:
    versions = installed_versions()
    assert versions["graphcal"] == graphcal.__version__
    assert versions["torch"] == torch.__version__
    assert {"python", "torch_geometric", "numpy", "scipy", "scikit-learn"} <= versions.keys()
