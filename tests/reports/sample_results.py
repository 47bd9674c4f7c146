"""Results as `graphcal run` writes them, from a small graph and models with a known miscalibration."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from conftest import random_graph
from graphcal import metrics
from graphcal.reports import report_data

SCALES = {"none": 0.45, "ts": 1.0, "scar": 0.9, "sharp": 2.2}
SEEDS = 3


def spread(values: list[float]) -> dict[str, Any]:
    return {"mean": sum(values) / len(values), "sd": float(torch.tensor(values).std()), "values": values}


@cache
def sample_results() -> dict[str, Any]:
    """An under-confident model, two good calibrators, one that overshoots."""
    graph, g = random_graph(nodes=1500, classes=5, train=100, val=300), torch.Generator().manual_seed(0)
    z = 2 * torch.randn(1500, 5, generator=g, dtype=torch.float64)
    y = graph.y = torch.multinomial(z.softmax(1), 1, generator=g)[:, 0]
    test = graph.test_mask
    noise = [0.3 * torch.randn(1500, 5, generator=g, dtype=torch.float64) for _ in range(SEEDS)]
    outputs = {name: [(s * (z + e)).log_softmax(1) for e in noise] for name, s in SCALES.items()}
    methods: dict[str, Any] = {}
    for name, log_probs in outputs.items():
        floor = [metrics.ece_floor(lp[test]) for lp in log_probs]
        row: dict[str, Any] = {
            f.__name__: spread([f(lp[test], y[test]) for lp in log_probs])
            for f in (metrics.accuracy, metrics.ece, metrics.nll, metrics.brier)
        }
        excess = [e - f for e, f in zip(row["ece"]["values"], floor)]
        row |= {"ece_floor": spread(floor), "ece_excess": spread(excess), "fit_seconds": 0.002}
        row["measurement"] = report_data(log_probs, y, test, graph=graph, before=outputs["none"])
        row["ece_interval"] = row["measurement"]["ece_interval"]
        methods[name] = row
    return {
        "graphcal": "0.1.0",
        "command": "graphcal run sample",
        "dataset": "sample",
        "protocol": "random",
        "backbone": "gcn",
        "training": {"hidden_channels": 64, "final_lr": None},
        "seeds": list(range(SEEDS)),
        "versions": {"torch": "2.13.0"},
        "nodes": {"train": 100, "val": 300, "test": int(test.sum())},
        "bins": 20,
        "methods": methods,
        "sentence": "TS repaired all of it.",
    }
