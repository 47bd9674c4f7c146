"""Results and report where a team keeps its experiments: MLflow or Weights & Biases, whichever run is active.

with mlflow.start_run():
    log_results(gc.run("citeseer"), mlflow)

log_results(gc.run("citeseer"), wandb.init())
"""

from __future__ import annotations

import tempfile
from typing import Any

from graphcal.results import Results

LOGGED = ("accuracy", "ece", "ece_floor", "nll", "brier")


def scalars(results: Results) -> dict[str, float]:
    """``method/metric`` -> mean over seeds."""
    return {
        f"{name}/{key}": method[key]["mean"]
        for name, method in results.record["methods"].items()
        for key in LOGGED
        if key in method
    }


def log_results(results: Results, tracker: Any) -> None:
    """Log the numbers and the files of ``results.save`` to ``tracker``: the module ``mlflow``, or a run of ``wandb``."""
    if hasattr(tracker, "log_artifacts") and hasattr(tracker, "log_metrics"):  # mlflow
        tracker.log_metrics(scalars(results))
        with tempfile.TemporaryDirectory() as folder:
            results.save(folder)
            tracker.log_artifacts(folder)
    elif hasattr(tracker, "log") and hasattr(tracker, "dir"):  # wandb: what lies in the run's folder is kept with it
        tracker.log(scalars(results))
        results.save(tracker.dir)
    else:
        raise ValueError(f"log_results understands mlflow and a run of wandb; got {type(tracker).__name__}")
