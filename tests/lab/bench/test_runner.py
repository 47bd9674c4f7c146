"""Cells are computed once, share trainings, see no test label, choose on validation, and fail alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_preset import small
from torch_geometric.data import Data

from conftest import random_graph
from graphcal.core import Outputs
from graphcal.lab.bench import _runner as runner
from graphcal.lab.bench._runner import with_fitting_nodes
from graphcal.lab.bench.engines import Serial
from graphcal.lab.bench.expansion import recipe_class
from graphcal.lab.bench.records import jobs_of
from graphcal.lab.bench.session import Session, status
from graphcal.methods import TemperatureScaling


def ran(folder: Path, **changes: Any) -> Session:
    session = Session.of(small(**changes), folder)
    session.remember()
    session.run(Serial(), lambda: None)
    return session


@pytest.mark.slow
def test_a_record_holds_what_a_table_needs(tmp_path: Path) -> None:
    session = ran(tmp_path, runs=2)
    for key, cell in session.cells.items():
        record = session.store.record(key)
        assert record.cell == cell
        for where in ("test", "unlabelled"):
            scores = record.result[where]
            assert scores["ece_excess"] == pytest.approx(scores["ece"] - scores["ece_floor"])
            assert 0 < scores["accuracy"] < 1
        assert record.result["test"]["nodes"] == sum(record.result["bins"]["count"]) == 1000
        assert record.result["unlabelled"]["nodes"] == 3327 - 120 - 500 - 15  # fifteen nodes have no label
        assert record.result["nodes"] == {"all": 3327, "train": 120, "val": 500, "test": 1000}
        assert set(record.seconds) == {"train", "search", "fit", "apply", "trained"}
        assert set(record.seconds["trained"]) == {base.key for base in cell.groups}
        assert record.versions["graphcal"]
        log_probs, y = session.store.nodes(key)
        assert log_probs.shape == (1000, 6)
        assert record.result["test"]["accuracy"] == pytest.approx(float((log_probs.argmax(-1) == y).double().mean()))


def test_methods_share_trainings_and_nothing_is_done_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    train = runner.train_replicas

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(args[3]))
        return train(*args, **kwargs)

    monkeypatch.setattr(runner, "train_replicas", counted)
    session = ran(tmp_path)
    assert (
        calls == [2] * 4
    )  # two blocks of two runs, for the common training and for the candidate that differs from it
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    ran(tmp_path)
    more = ran(tmp_path, methods=["uncal", "ts", "searched", "ets"])
    assert calls == [2] * 4
    assert more.finished() == session.finished() + 4
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
def test_validation_chooses_among_trainings(tmp_path: Path) -> None:
    session = ran(tmp_path, methods=["searched", "small", "zero"], runs=2, define={
        "searched": {"calibrator": "ts", "search": {"final_weight_decay": [0.5, 0.0]}},
        "small": {"calibrator": "ts", "training": {"final_weight_decay": 0.5}},
        "zero": {"calibrator": "ts", "training": {"final_weight_decay": 0.0}},
    })  # fmt: skip
    records = {(one.method, one.cell.run): session.store.record(one.cell.key) for one in session.slots}
    for run in ((0, 0), (0, 1)):
        searched, candidates = records["searched", run], [records["small", run], records["zero", run]]
        best = min(candidates, key=lambda one: one.result["validation"]["nll"])
        assert searched.result["validation"] == best.result["validation"]
        assert searched.result["test"] == best.result["test"]
        assert searched.result["chosen"] == best.spec["groups"][0]["training"]
        assert searched.seconds["search"] > 0


def test_calibrators_and_training_see_no_test_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Data] = []

    class Peeking(TemperatureScaling):
        def fit(self, out: Outputs, on: torch.Tensor, stop: torch.Tensor | None = None) -> Any:
            seen.append(out.graph)
            return super().fit(out, on, stop)

    train = runner.train_replicas

    def watched(data: Data, *args: Any, **kwargs: Any) -> Any:
        seen.append(data)
        return train(data, *args, **kwargs)

    monkeypatch.setattr(runner, "recipe_class", lambda _: Peeking)
    monkeypatch.setattr(runner, "train_replicas", watched)
    assert ran(tmp_path, methods=["ts"], runs=1).finished() == 1
    assert len(seen) == 2
    for graph in seen:
        assert "test_mask" not in graph
        assert (graph.y[~(graph.train_mask | graph.val_mask)] == -1).all()


@pytest.mark.slow
def test_a_failing_cell_is_recorded_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(TemperatureScaling):
        def fit(self, out: Outputs, on: torch.Tensor, stop: torch.Tensor | None = None) -> Any:
            raise ArithmeticError("the temperature is below zero")

    with monkeypatch.context() as broken:
        broken.setattr(runner, "recipe_class", lambda name: Broken if name == "ts" else recipe_class(name))
        session = ran(tmp_path, methods=["ts", "uncal"], runs=2)
        assert session.finished() == 2
        assert set(session.failed().values()) == {"ArithmeticError: the temperature is below zero"}
        assert "failed: ArithmeticError" in session.table().rows[0].entries["ts"].missing
        (counts,) = status(tmp_path)
        assert (counts.cells, counts.finished, len(counts.failed)) == (4, 2, 2)
    session = ran(tmp_path, methods=["ts", "uncal"], runs=2)  # repaired: failed cells are tried again
    assert session.finished() == 4
    assert not session.failed()


def test_a_training_that_fails_is_tried_once_for_all_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        raise MemoryError("too large")

    monkeypatch.setattr(runner, "train_replicas", broken)
    session = ran(tmp_path, methods=["uncal", "ts"], runs=2)
    assert len(calls) == 1
    assert len(session.failed()) == 4


def test_a_job_that_another_process_holds_is_left_to_it(tmp_path: Path) -> None:
    session = Session.of(small(runs=2, methods=["uncal"]), tmp_path)
    (job,) = jobs_of(session.todo())
    with session.store.lock(f"job-{job.key}"):
        assert runner.work(job, lambda: None, str(tmp_path), wait=False).busy
    assert not session.finished()
    assert not runner.work(job, lambda: None, str(tmp_path), wait=True).busy
    assert session.finished() == 2


def test_runs_over_splits_are_measured_on_their_own_split(tmp_path: Path, shared_data: Path) -> None:
    base = {"protocol": "geom-gcn", "over": "splits", "block": 2, "training": {"epochs": 3, "hidden_channels": 4}}
    axes = {"dataset": ["chameleon"], "backbone": ["gcn"]}
    session = ran(tmp_path, methods=["uncal", "ts"], runs=2, axes=axes, base=base, published=[])
    labels = [session.store.nodes(one.cell.key)[1] for one in session.slots if one.method == "ts"]
    assert session.finished() == 4
    assert not torch.equal(*labels)
    entries = session.table().rows[0].entries
    assert any(entry.best or entry.tied for entry in entries.values())  # compared, although the test nodes differ


def test_a_cached_model_is_the_trained_one(tmp_path: Path) -> None:
    session = ran(tmp_path, methods=["uncal"], runs=1)
    group = next(iter(session.cells.values())).group
    graphs = runner.Graphs()
    out = runner.models_of(group, session.store, graphs).outputs[0, 0](graphs.of(group, 0))
    assert out.final is not None
    assert out.final_representation is not None
    assert out.model is not None
    assert torch.allclose(out.final_representation @ out.final.weight.T + out.final.bias, out.logits, atol=1e-5)
    unweighted = out.model.logits(edge_weight=torch.ones(out.graph.edge_index.shape[1]))
    assert torch.allclose(unweighted, out.logits, atol=1e-4)
    noisy = out.model.logits(dropout=torch.Generator().manual_seed(0))
    assert not torch.allclose(noisy, out.logits, atol=1e-2)
    assert torch.equal(noisy, out.model.logits(dropout=torch.Generator().manual_seed(0)))


def test_fewer_labels_are_the_first_of_more_and_none_is_measured():
    graph = random_graph(nodes=300, train=40, val=60)
    few, many = (with_fitting_nodes(graph, count, seed=3) for count in (20, 100))
    assert int(few.val_mask.sum()) == 20
    assert not (few.val_mask & ~many.val_mask).any()
    assert (few.val_mask <= graph.val_mask).all()
    for one in (few, many):
        assert not (one.val_mask & (one.test_mask | one.train_mask)).any()
        assert int(one.test_mask.sum()) == 260 - int(one.val_mask.sum())
    assert int(graph.val_mask.sum()) == 60  # the graph itself is as it was
    with pytest.raises(ValueError, match="fit_labels=250: only 60 validation and 200 test nodes"):
        with_fitting_nodes(graph, 250, seed=3)
