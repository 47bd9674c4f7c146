"""A search is cells on an engine; validation decides, and a second search finds everything done."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_small import small

from graphcal.bench.engines import Serial
from graphcal.bench.search import search


def test_search_finds_the_better_decay_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="search needs Optuna")

    def found() -> list[tuple[float, float]]:
        trials = search(
            small(), "uncal", {"final_weight_decay": (1e-6, 10.0)}, tmp_path, Serial(), trials=6, together=3, runs=1
        )
        return [(trial.settings["final_weight_decay"], trial.validation_nll) for trial in trials]

    first = found()
    files = sorted((tmp_path / "records").iterdir())
    assert len(first) == 6
    assert [nll for _, nll in first] == sorted(nll for _, nll in first)
    assert first[0][0] < first[-1][0]  # a decay of several units crushes the final layer
    assert found() == first
    assert sorted((tmp_path / "records").iterdir()) == files


def test_search_names_the_methods(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="search needs Optuna")
    with pytest.raises(ValueError, match="small has no method 'nope'; choose one of uncal, ts, searched"):
        search(small(), "nope", {"lr": (1e-3, 1e-1)}, tmp_path, Serial(), trials=1)
