"""A session killed at any moment goes on where it was, and its tables are the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_preset import small

from graphcal.lab.bench.engines import Serial
from graphcal.lab.bench.files import write_files
from graphcal.lab.bench.session import Session, status

KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from test_session import longer
from graphcal.lab.bench.engines import Serial
if __name__ == "__main__":
    session = longer(sys.argv[1])
    print("ready", flush=True)
    session.run(Serial(), lambda: None)
"""


def longer(folder: Path) -> Session:
    base = {"protocol": "public", "block": 2, "training": {"epochs": 100, "hidden_channels": 16}}
    return Session.of(small(runs=8, base=base), folder)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_killed_at_any_moment_and_resumed_the_tables_are_the_same_bytes(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    for wanted in (0, 5):  # killed while the first models are trained, and when some cells are finished
        command = [sys.executable, str(script), str(tmp_path / "parts"), str(Path(__file__).parent)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        while child.poll() is None and len(list((tmp_path / "parts").glob("records/*.json"))) < wanted:
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    left = len(longer(tmp_path / "parts").unfinished())
    assert 0 < left <= 19
    for folder in ("parts", "whole"):
        session = longer(tmp_path / folder)
        session.run(Serial(), lambda: None)
        write_files(session.table(), session.store.folder)
    for end in (".md", ".csv", "-runs.csv", ".tex"):
        assert (tmp_path / "parts" / f"small{end}").read_bytes() == (tmp_path / "whole" / f"small{end}").read_bytes()


def test_a_part_that_nothing_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--only split=3: no cell of small has all of these"):
        Session.of(small(), tmp_path, only="split=3")


def test_a_folder_without_a_benchmark_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no benchmark: `graphcal bench PRESET"):
        status(tmp_path)
