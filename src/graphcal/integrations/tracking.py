"""Results and report where a team keeps its experiments: MLflow or Weights & Biases, whichever run is active.

with mlflow.start_run():
    log_results(gc.run("citeseer"), mlflow)

log_results(gc.run("citeseer"), wandb.init())
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from graphcal.pipeline import Results

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
    """Log the numbers, ``results.json`` and ``report.html`` to ``tracker``: the module ``mlflow``, or a run of ``wandb``."""
    with tempfile.TemporaryDirectory() as folder:
        results.save(folder)
        files = [Path(folder) / name for name in ("results.json", "report.html")]
        if hasattr(tracker, "log_artifact") and hasattr(tracker, "log_metrics"):  # mlflow
            tracker.log_metrics(scalars(results))
            for path in files:
                tracker.log_artifact(str(path))
        elif hasattr(tracker, "log") and hasattr(tracker, "save"):  # wandb
            tracker.log(scalars(results))
            for path in files:
                tracker.save(str(path), base_path=folder, policy="now")
        else:
            raise ValueError(f"log_results understands mlflow and a run of wandb; got {type(tracker).__name__}")
