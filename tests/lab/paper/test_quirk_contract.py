"""The calibrators of the reproduction keep the contract of ours, where it applies.

`scar-gat-code` needs a GAT to run again; the two that follow CaGCN's closure may end at any temperature, so extreme logits are
not for them.
"""

from __future__ import annotations

import pytest

from calibrator_contract import *  # noqa: F403

NAMES = (
    "cagcn-code",
    "cagcn-gats",
    "ms-cagcn",
    "scar-grid",
    "scar-no-guard",
    "ts-base-dropout",
)


@pytest.fixture(scope="module", params=NAMES)
def name(request) -> str:
    return request.param
