"""Results as `graphcal run` writes them, from a small graph and models with a known miscalibration."""

from __future__ import annotations

import base64
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import graphcal
from conftest import random_graph
from graphcal.decisions import backtest
from graphcal.metrics import evaluate
from graphcal.records import SCHEMA
from graphcal.reports import verdict
from graphcal.reports.maps import FIELDS, WIDE, node_map
from graphcal.reports.wording import backtest_sentence
from graphcal.results import Choice, Provenance, Results
from small_outputs import model_outputs

SCALES = {"none": 0.45, "ts": 1.0, "scar": 0.9, "sharp": 2.2}
TITLES = {"none": "Uncalibrated", "ts": "Temperature scaling", "scar": "SCAR"}
SEEDS = 3


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
        before = None if name == "none" else outputs["none"]
        measured = evaluate(log_probs, y, test, graph, before=before, thorough=False).to_dict()
        methods[name] = {"fit_seconds": 0.002, **measured}
        if name in TITLES:
            methods[name]["title"] = TITLES[name]
        methods[name]["decision"] = backtest(log_probs[0], y, test).to_dict()
    record = {
        "graphcal": "0.1.0",
        "command": "graphcal run sample",
        "dataset": "sample",
        "protocol": "random",
        "backbone": "gcn",
        "training": {"hidden_channels": 64, "final_lr": None},
        "seeds": list(range(SEEDS)),
        "schema": SCHEMA,
        "input": "model",
        "num_nodes": 1500,
        "chosen_method": "scar",
        "choice": {"reason": "lowest held-out NLL on the validation nodes", "held_out_nll": {}},
        "versions": {"torch": "2.13.0"},
        "nodes": {"train": 100, "val": 300, "test": int(test.sum())},
        "bins": 20,
        "methods": methods,
        "map": {"before": "none", "after": "scar", **node_map(outputs["none"][0], outputs["scar"][0], graph)},
    }
    decision = {"sentence": backtest_sentence(record), "guarantee": False}
    return {**record, "decision": decision, "verdict": verdict(record)}


def results_with(record: dict[str, Any]) -> Results:
    """Results whose record is the given one, with a temperature as their calibrator."""
    out = model_outputs()
    source = Provenance("model", record["dataset"], record["protocol"], "", tuple(record["seeds"]))
    results = Results(
        source=source,
        choice=Choice(record["chosen_method"], "", {}),
        methods={},
        nodes={},
        num_nodes=0,
        bins=20,
        map=None,
        calibration=graphcal.TemperatureScaling().fit(out, on=out.graph.val_mask),
        write_calibrated=lambda path: (Path(path).write_bytes(b""), Path(path))[1],
        reference=graphcal.metrics.reference_summary(out.logits.log_softmax(1)),
    )
    results.__dict__["record"] = record  # the cached property
    return results


def unpacked_map(record: dict[str, Any]) -> dict[str, np.ndarray]:
    """The columns of a map's record, as the page reads them."""
    raw, n, start = zlib.decompress(base64.b64decode(record["data"]), -15), record["nodes"], 0
    arrays: dict[str, np.ndarray] = {}
    for name in (*FIELDS, *(f"neighbour{k}" for k in range(record["neighbours"]))):
        kind = np.dtype("<u4" if name in WIDE else "<u2")
        arrays[name] = np.frombuffer(raw, kind, n, start).astype(np.int64)
        start += n * kind.itemsize
    return arrays
