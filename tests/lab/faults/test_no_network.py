"""Nothing is asked of the network unless a graph is named that is not at hand."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.network

GUARD = """
import socket, sys
def refuse(*args, **kwargs):
    raise AssertionError(f"a socket was opened: {args}")
socket.socket.connect = refuse
socket.socket.connect_ex = refuse
socket.getaddrinfo = refuse
socket.create_connection = refuse
"""


def guarded(code: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "GRAPHCAL_DATA"}
    done = subprocess.run(
        [sys.executable, "-c", GUARD + code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_import_and_the_main_job_open_no_socket() -> None:
    """The same guard stops a download first, so the test can fail."""
    guarded(
        "from pathlib import Path\nimport tempfile\nimport graphcal\nfrom graphcal.lab.datasets._fetch import download\n"
        "from graphcal.lab.training import Training\n"
        "try:\n    download('https://127.0.0.1:9/x', Path(tempfile.mkdtemp()) / 'x')\n"
        "except (AssertionError, ConnectionError) as seen:\n    assert 'a socket was opened' in str(seen), seen\n"
        "else:\n    raise SystemExit(1)\n"
        "results = graphcal.lab.run('citeseer', calibrators=['ts'], seeds=[0], training=Training(epochs=2))\n"
        "assert graphcal.report(results).html\n"
    )
