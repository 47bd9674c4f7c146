"""Numbers and pages reach MLflow (a local file store) and Weights & Biases (offline)."""

import json

import pytest

from graphcal.integrations.tracking import log_results, scalars
from graphcal.results import Results
from sample_results import results_with, sample_results


@pytest.fixture
def results() -> Results:
    return results_with(sample_results())


def test_mlflow(results, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("graphcal")
    with mlflow.start_run() as run:
        log_results(results, mlflow)
    kept = mlflow.get_run(run.info.run_id)
    assert kept.data.metrics == pytest.approx(scalars(results))
    (saved,) = tmp_path.rglob("results.json")
    assert json.loads(saved.read_text(encoding="utf-8"))["verdict"] == results.verdict
    assert list(tmp_path.rglob("report.html"))


def test_wandb(results, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=str(tmp_path), project="graphcal")
    try:
        log_results(results, run)
        name, value = next(iter(scalars(results).items()))
        assert run.summary[name] == pytest.approx(value)
    finally:
        run.finish()
    assert list(tmp_path.rglob("report.html"))


def test_something_else_is_refused(results):
    with pytest.raises(ValueError, match="log_results understands mlflow and a run of wandb; got list"):
        log_results(results, [])
