"""Files are whole or absent, finished means the record exists, and a lock dies with its process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_preset import CELL

from graphcal.lab.bench.records import Record, Store


def record() -> Record:
    scores = {part: {"ece": 0.1} for part in ("test", "unlabelled", "validation")}
    seconds = {"train": 1.0, "search": 0.0, "fit": 0.1, "apply": 0.1, "trained": {}}
    return Record(CELL.to_dict(), {**scores, "bins": {}, "changed": 0}, seconds, {"graphcal": "0"})


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    store, log_probs = Store(tmp_path), torch.randn(5, 3).log_softmax(-1)
    assert not store.has(CELL)
    store.put(CELL, record(), log_probs, torch.arange(5))
    assert store.has(CELL)
    assert store.finished() == {CELL.key}
    again = store.record(CELL.key)
    assert again.cell == CELL
    assert again.result["test"]["ece"] == 0.1
    assert torch.equal(store.nodes(CELL.key)[0], log_probs)
    assert store.nodes(CELL.key)[1].tolist() == list(range(5))


def test_a_failure_is_kept_until_the_cell_is_finished(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.fail(CELL, ValueError("no good"))
    assert store.failed() == {CELL.key}
    assert store.error(CELL.key) == "ValueError: no good"
    assert not store.finished()
    store.put(CELL, record(), torch.zeros(1, 2).log_softmax(-1), torch.zeros(1, dtype=torch.long))
    assert not store.failed()


def test_a_record_under_the_name_of_another_cell_is_refused(tmp_path: Path) -> None:
    store, other = Store(tmp_path), replace(CELL, bins=15)
    store.put(CELL, record(), torch.zeros(1, 2).log_softmax(-1), torch.zeros(1, dtype=torch.long))
    store.record_path(CELL.key).rename(store.record_path(other.key))
    with pytest.raises(ValueError, match=rf"{other.key}.json: .*holds the result of another cell \({CELL.key}\)"):
        store.record(other.key)


def test_the_rest_of_a_killed_write_is_not_a_record(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / f".{CELL.key}.json.123.abcd.json").write_text("{")
    assert not store.finished()


HOLD = """
import sys, time
from graphcal.lab.bench.records import Store
with Store(sys.argv[1]).lock("job") as mine:
    print(mine, flush=True)
    time.sleep(60)
"""


def test_a_lock_keeps_others_out_and_dies_with_its_process(tmp_path: Path) -> None:
    store = Store(tmp_path)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with store.lock("job", wait=False) as mine:
            assert not mine
    finally:
        holder.kill()
        holder.communicate()
    with store.lock("job", wait=True) as mine:
        assert mine
