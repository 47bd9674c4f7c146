"""Our own calibrators keep the contract; those of the reproduction are held to it in tests/paper."""

from __future__ import annotations

import pytest

from calibrator_contract import *  # noqa: F403
from graphcal.methods import CALIBRATORS


@pytest.fixture(scope="module", params=list(CALIBRATORS.builtin))
def name(request) -> str:
    return request.param
