"""Processes that are killed leave whole files or none; what they left half-written is cleared away. See `tools/kills.py`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphcal.files import check_writable, sweep, write_atomically

WRITER = """
import sys
from graphcal.files import write_atomically
print("ready", flush=True)
while True:
    for content in (b"a" * 300_000, b"b" * 300_000):
        write_atomically(sys.argv[1], content)
"""


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_writer_leaves_a_whole_file(kind: signal.Signals, tmp_path: Path) -> None:
    rng, path = random.Random(0), tmp_path / "results.json"
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.02 + 0.05 * rng.random())
            writer.send_signal(kind)
            assert writer.wait(10) == -kind
        if path.exists():
            assert path.read_bytes() in (b"a" * 300_000, b"b" * 300_000)
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


def test_a_partial_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    dead = tmp_path / ".results.json.123.0badf00d"
    dead.write_bytes(b"half")
    mine = tmp_path / ".bashrc"
    mine.write_text("not ours")
    code = "import sys, time\nfrom graphcal.files import atomic_file\nwith atomic_file(sys.argv[1]):\n"
    code += "    print('in', flush=True)\n    time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "other")], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        sweep(tmp_path)
        left = {path.name for path in tmp_path.iterdir()}
        writer.kill()
    assert len(left) == 2
    assert ".bashrc" in left
    assert any(name.startswith(".other.") for name in left)
    check_writable(tmp_path)  # sweeps, too
    assert [path.name for path in tmp_path.iterdir()] == [".bashrc"]


def test_a_disk_that_takes_little_is_noticed_before_the_work(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys\n"
        "from graphcal.files import check_writable\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "try:\n    check_writable(sys.argv[1])\nexcept ValueError as fault:\n    print(fault)\n"
    )
    message = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True, check=True
    ).stdout
    assert f"cannot write to {tmp_path / 'out'}: File too large" in message
    assert not (tmp_path / "out").exists()


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        if path.exists():
            assert len(path.read_bytes()) == 300_000
    for writer in writers:
        writer.kill()
        writer.wait()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "a", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "a", b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a", b"old")]
