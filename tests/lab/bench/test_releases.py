"""Serving the next release: windows by hand, labels that only measure, a plug-in's row beside the others after one command."""

from __future__ import annotations

import csv
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphcal.lab.bench import releases
from graphcal.lab.bench.engines import Serial
from graphcal.lab.bench.publication import publish
from graphcal.lab.bench.release_pages import ServedLines, leaderboard
from graphcal.lab.bench.releases import NextRelease, serve, windows
from graphcal.lab.bench.session import Session
from graphcal.lab.datasets import debian
from graphcal.lab.training import Training, train
from graphcal.methods import GraphScaling, TemperatureScaling
from graphcal.study import Study

sys.path.insert(0, str(Path(__file__).parents[1] / "datasets"))
from debian_index import synthetic_index

PLUGIN = Path(__file__).parents[3] / "examples" / "calibrator_plugin"
PRESET = """
extends = "debian"
runs = 2
methods = ["none", "ts", "graph-scaling", "plugins"]

[axes]
dataset = ["debian-first"]
next = ["debian-second"]
backbone = ["sage"]

[base]
training = { epochs = 10, hidden_channels = 16 }
"""


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """Two releases of 1,200 packages, 300 of them new in the second."""
    monkeypatch.setattr(debian, "COMMON", 2)
    folder, reference = tmp_path / "data", None
    folder.mkdir()
    for name, first in (("first", 0), ("second", 300)):
        packages, texts = synthetic_index(1200, first)
        (tmp_path / "P").write_text(packages)
        (tmp_path / "T").write_text(texts)
        reference = debian.build_release(tmp_path / "P", tmp_path / "T", reference)
        debian.save_release(folder / f"debian-{name}.npz", reference)
    monkeypatch.setenv("GRAPHCAL_DATA", str(folder))
    releases.next_release.cache_clear()
    (tmp_path / "small.toml").write_text(PRESET)
    return folder


def by_hand() -> tuple[Data, NextRelease]:
    """Ten nodes: 0, 1 train, 2, 3 validate, the others test. Of the next release 0..7 were 2..9, 8..11 are new."""
    mask = torch.zeros(10, dtype=torch.bool)
    now = Data(y=torch.arange(10) % 3, edge_index=torch.tensor([[0, 1], [1, 0]]), x=torch.ones(10, 1))
    now.train_mask, now.val_mask, now.test_mask = mask.clone(), mask.clone(), mask.clone()
    now.train_mask[:2] = now.val_mask[2:4] = now.test_mask[4:] = True
    match = torch.tensor([2, 3, 4, 5, 6, 7, 8, 9, -1, -1, -1, -1])
    later = Data(y=torch.full((12,), 2), edge_index=torch.tensor([[0, 1], [1, 0]]), x=torch.ones(12, 1))
    return now, NextRelease(later, match)


def test_windows_by_hand(monkeypatch):
    monkeypatch.setattr(releases, "CERTIFIED", 2)
    now, following = by_hand()
    split = windows(now, following, seed=0)
    assert int(split.certify.sum()) == 2
    assert not (split.certify & ~now.test_mask).any()
    assert torch.equal(split.now, now.test_mask & ~split.certify)
    assert torch.equal(split.old[:8], split.now[2:])  # still there, not certified, not trained or validated
    assert not split.old[8:].any()
    assert sorted([*split.drawn.tolist(), *split.new.nonzero().flatten().tolist()]) == [8, 9, 10, 11]
    assert len(split.drawn) == 2
    assert split.graph.val_mask.nonzero().flatten().tolist() == [0, 1]
    assert split.graph.y[:2].tolist() == [2, 0]  # validation nodes keep the labels that they had
    assert (split.graph.y[2:] == 2).all()
    assert following.graph.get("val_mask") is None  # shared by all splits


def served(y_flipped: bool, recipe) -> list[dict]:
    following = releases.next_release("debian-first", "debian-second")
    graph = releases.load("debian-first")
    split = windows(graph, following, 0)
    run = train(graph, "sage", Training(epochs=10, hidden_channels=16), [0])[0]
    out = run.model.on(split.graph).outputs(split.graph)
    if y_flipped:
        hidden = split.old | split.new
        split.graph.y = torch.where(hidden, (split.graph.y + 1) % 4, split.graph.y)
    study = Study.of([run.outputs], {"m": recipe}, on=graph.val_mask)
    return serve(study, split, dataclasses.replace(out, graph=split.graph), 20, 0)


@pytest.mark.parametrize("recipe", [TemperatureScaling(), GraphScaling(sets=True)])
def test_labels_of_the_windows_only_measure(data, recipe, monkeypatch):
    monkeypatch.setattr(releases, "SMALLEST_SET", 5)
    plain, flipped = served(False, recipe), served(True, recipe)
    assert [(row["window"], row["labels"]) for row in plain] == [
        ("now", 0), *((w, k) for k in (0, 100, 500) for w in ("old", "new", "all")),
    ]  # fmt: skip
    assert plain[0] == flipped[0]
    for one, other in zip(plain[1:], flipped[1:]):
        for key in ("confidence", "decided_5", "decided_10", "watch", "watch_auc", "nodes", "sets"):
            assert one.get(key) == other.get(key), key
        assert one["nll"] != other["nll"]
    if isinstance(recipe, GraphScaling):
        assert plain[3]["sets"] > 3
        assert plain[3]["sets_held"] > flipped[3]["sets_held"]


def test_a_refit_is_a_fit_on_old_validation_nodes_and_the_new_labels(data):
    following = releases.next_release("debian-first", "debian-second")
    graph = releases.load("debian-first")
    split = windows(graph, following, 0)
    out = train(graph, "sage", Training(epochs=3, hidden_channels=8), [0])[0].model.on(split.graph).outputs(split.graph)
    on = split.graph.val_mask.clone()
    on[split.drawn[:100]] = True
    expected = TemperatureScaling().fit(out, on=on)(out)
    assert torch.allclose(releases._refitted("ts", TemperatureScaling(), split, out, 100), expected, atol=1e-5)
    assert int(on.sum()) == int(split.graph.val_mask.sum()) + 100


def test_shares_decided_and_errors_by_hand():
    now, _ = by_hand()
    log_probs = torch.tensor([[0.9, 0.05, 0.05]] * 5 + [[0.4, 0.3, 0.3]] * 5).log()
    nodes = torch.arange(10) < 8
    row = releases._row("now", 0, log_probs, now, nodes, 20, {0.05: 0.8, 0.10: None})
    assert row["decided_5"] == pytest.approx(5 / 8)  # nodes 0 to 4
    assert row["error_5"] == pytest.approx(3 / 5)  # 0 and 3 are of class 0
    assert (row["decided_10"], row["error_10"]) == (0, None)


@pytest.mark.slow
def test_a_session_resumes_and_a_plug_in_joins_the_leaderboard_by_one_command(data, tmp_path):
    preset, folder, results = tmp_path / "small.toml", tmp_path / "bench", tmp_path / "results"
    session = Session.of(str(preset), folder)
    session.run(Serial(), lambda: None)
    assert not session.failed()
    assert session.finished() == len(session.cells) == 6
    written = publish(session.table(), "graphcal bench small", results)
    before = {path.name: path.read_bytes() for path in written}
    records = {path: path.stat().st_mtime_ns for path in (folder / "records").iterdir()}
    again = Session.of(str(preset), folder)
    assert not again.todo()
    again.run(Serial(), lambda: None)
    publish(again.table(), "graphcal bench small", results)
    assert {path.name: path.read_bytes() for path in written} == before
    assert {path: path.stat().st_mtime_ns for path in (folder / "records").iterdir()} == records
    command = [sys.executable, "-m", "graphcal", "bench", str(preset), "--only", "method=margin-scaling"]
    options = ["--out", str(folder), "--publish", str(results), "--engine", "serial"]
    site = installed(tmp_path / "site")
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, *options], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = list(csv.DictReader((results / "small-windows.csv").open()))
    assert {line["method"] for line in lines} == {"none", "ts", "graph-scaling", "margin-scaling"}
    assert len(lines) == 4 * 2 * 10
    page = (results / "small.md").read_text()
    assert "| margin-scaling |" in page.partition("## Leaderboard")[2].partition("\n## ")[0]
    old = [line for line in lines if line["method"] != "margin-scaling"]
    assert old == list(csv.DictReader(before["small-windows.csv"].decode().splitlines()))


def installed(folder: Path) -> Path:
    """The example package as an installer leaves it."""
    metadata = folder / "margin_scaling-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: margin-scaling\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[graphcal.calibrators]\nmargin-scaling = margin_scaling:MarginScaling\n"
    )
    (folder / "margin_scaling.py").write_text((PLUGIN / "margin_scaling.py").read_text(encoding="utf-8"))
    return folder


def lines_with(nll: dict[str, float]) -> list[dict[str, str]]:
    lines = []
    for method, value in nll.items():
        for split in range(5):
            for window in ("now", "old", "new", "all"):
                row = {
                    "window": window,
                    "labels": "0",
                    "nll": f"{value + split / 100}",
                    "ece": ".02",
                    "ece_floor": ".01",
                }
                row |= {
                    "error_5": "0.05" if split < 3 else "0.0501",
                    "error_10": "",
                    "decided_5": "0.5",
                    "decided_10": "0",
                }
                lines.append({"dataset": "d", "backbone": "sage", "method": method, "split": str(split), **row})
    return lines


def test_the_leaderboard_orders_by_nll_on_the_next_release_and_tests_paired_differences():
    grid = leaderboard(lines_with({"a": 1.2, "b": 1.0}))
    words = [[cell.words for cell in row] for row in grid.body]
    assert [row[1] for row in words] == ["b", "a"]
    assert words[1][5] == "+0.200"
    assert float(words[1][6]) == pytest.approx(2 / 2**5, abs=1e-3)  # all five differences have one sign
    assert words[0][11] == "3/5, 0/0"  # 5 % exactly is kept


def test_a_method_with_more_runs_than_the_others_is_compared_on_theirs():
    extra = [{**line, "split": str(int(line["split"]) + 5), "nll": "0.5"} for line in lines_with({"c": 0.0})]
    grid = leaderboard(lines_with({"a": 1.2, "b": 1.0, "c": 1.1}) + extra)
    words = [[cell.words for cell in row] for row in grid.body]
    assert [row[1:3] for row in words] == [["b", "5"], ["c", "5"], ["a", "5"]]


def test_values_are_paired_by_backbone_and_split():
    data = ServedLines(lines_with({"a": 1.0}))
    assert data.values("a", "all", "nll")["d", "sage", "3"] == pytest.approx(1.03)
    assert data.mean("a", "all", "nll") == pytest.approx(1.02)
    assert data.mean("a", "new", "nll", 500) is None
    assert np.isclose(data.mean("a", "all", "decided_5"), 0.5)
