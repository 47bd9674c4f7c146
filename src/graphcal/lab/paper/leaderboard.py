"""Write results/leaderboard.csv: every method on every graph of the blind evaluation, with 95 % intervals over splits.

interval = mean ± t sd / √R over the R runs of a method on a graph; test nodes of the splits overlap, so it is about other
splits of the same graph.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import stats

from graphcal.lab.bench.files import csv_text
from graphcal.lab.paper.run_files import RunFiles

METRICS = ("nll", "ece", "brier", "accuracy")


def interval(values: np.ndarray) -> list[str]:
    """Mean, and both ends of Student's interval over runs; a single run has no interval."""
    mean, runs = float(values.mean()), len(values)
    half = float(stats.t.ppf(0.975, runs - 1) * values.std(ddof=1) / np.sqrt(runs)) if runs > 1 else float("nan")
    return [f"{mean:.4f}", *("" if half != half else f"{mean + sign * half:.4f}" for sign in (-1, 1))]


def leaderboard(folder: Path) -> str:
    """The text of leaderboard.csv; ECE and accuracy in percent."""
    runs = RunFiles(folder)
    titles = runs.titles("blind")
    body = []
    for row in runs.rows("blind"):
        for method in runs.methods("blind", row):
            values = [runs.at("blind", row, method, metric) for metric in METRICS]
            numbers = [number for one in values for number in interval(one)]
            body.append([*(value for _, value in row), method, titles[method], str(len(values[0])), *numbers])
    axes = [axis for axis, _ in runs.rows("blind")[0]]
    columns = [f"{metric}{part}" for metric in METRICS for part in ("", "_low", "_high")]
    return csv_text([*axes, "method", "title", "runs", *columns], body)
