"""Targets that are not graphs: presets, results, records of a benchmark, saved calibrations, predictions."""

from __future__ import annotations

import json
import random
import struct
from functools import cache
from pathlib import Path
from typing import Any

import fuzz_inputs as inputs
import numpy as np
from fuzz_targets import Target, write_npz

PRESET = {
    "title": "Small", "source": "none", "runs": 2, "methods": ["plain", "ts"], "metric": "ece", "kind": "table",
    "axes": {"dataset": ["citeseer"], "labels_per_class": [20], "backbone": ["gcn"]},
    "base": {"protocol": "public", "training": {"epochs": 3, "lr": 0.01}, "block": 2, "bins": 15},
    "define": {"plain": {"title": "Plain", "calibrator": "none"}, "ts": {"title": "TS", "calibrator": "ts", "stop": "val"}},
    "set": [{"where": {"dataset": "citeseer"}, "training": {"dropout": 0.5}}],
    "published": [{"where": {"dataset": "citeseer"}, "values": {"ts": [4.1, 0.3]}}],
    "remark": [{"where": {"dataset": "citeseer"}, "text": "a remark"}], "reasons": {"cora": "not here"},
}  # fmt: skip


def preset(folder: Path, rng: random.Random) -> None:
    text = inputs.toml_of(inputs.broken_tree(PRESET, rng) if rng.random() < 0.85 else PRESET)
    content = text.encode("utf-8", "surrogatepass")
    (folder / "mine.toml").write_bytes(inputs.broken_bytes(content, rng) if rng.random() < 0.3 else content)


def read_preset(folder: Path) -> Any:
    from graphcal.lab.bench.session import Session

    return Session.of(str(folder / "mine.toml"), folder / "out").cells


@cache
def results() -> Any:
    scores = {
        key: {"mean": 0.1, "sd": 0.01, "runs": [0.1, 0.1]}
        for key in ("accuracy", "ece", "ece_floor", "ece_excess", "nll", "brier")
    }
    bins = [{"low": 0.0, "high": 1.0, "count": 5, "confidence": 0.5, "accuracy": 0.4}]
    method = {
        **scores,
        "ece_interval": [0.0, 0.2],
        "binnings": {"equal-width": bins},
        "bins": "equal-width",
        "histogram": [1, 2],
        "note": "n",
        "decision": {
            "curve": {"targets": [0.05, 0.1], "decided": [0, 5], "total": 9},
            "labels": 9, "nodes": 9, "approved": 5, "errors": 1, "max_error": 0.05, "next_target": [0.1, 5], "warnings": [],
        },
    }  # fmt: skip
    pair = {"ece": {"difference": -0.1, "low": -0.2, "high": 0.0, "p": 0.01}}
    return {
        "graphcal": "0.1.0", "dataset": "d", "backbone": "gcn", "protocol": "p", "seeds": [0, 1],
        "nodes": {"train": 1, "val": 2, "test": 3},
        "bins": 20, "training": {"lr": 0.1}, "versions": {"torch": "2"}, "command": "graphcal run",
        "schema": 3, "chosen_method": "ts", "files": {},
        "methods": {"none": method, "ts": {**method, "title": "TS", "against": pair}},
    }  # fmt: skip


def report(folder: Path, rng: random.Random) -> None:
    content = json.dumps(inputs.broken_tree(results(), rng) if rng.random() < 0.9 else results()).encode()
    (folder / "results.json").write_bytes(inputs.broken_bytes(content, rng) if rng.random() < 0.2 else content)


def read_report(folder: Path) -> Any:
    import graphcal

    return graphcal.report(folder / "results.json").html


def read_card(folder: Path) -> Any:
    from graphcal.reports import model_card

    return model_card(folder)


def safetensors(path: Path, header: Any, tensors: dict[str, np.ndarray], rng: random.Random) -> None:
    """A safetensors file with a header of ours, broken here and there."""
    from safetensors.numpy import save

    if tensors and rng.random() < 0.4:
        name = rng.choice(list(tensors))
        changed = inputs.broken_array(tensors[name], rng)
        sayable = changed.dtype.kind in "fiub" and changed.dtype.isnative and changed.dtype.itemsize <= 8
        tensors = {**tensors, name: changed if sayable else tensors[name]}
    metadata = {k: v if isinstance(v, str) else json.dumps(v) for k, v in header.items()}
    if "graphcal" in metadata and rng.random() < 0.8:  # made by somebody who knows about the checksum
        metadata["sha256"] = _checksum(metadata, tensors)
    content = save(
        {k: np.ascontiguousarray(v) for k, v in tensors.items()},
        metadata,
    )
    if rng.random() < 0.1:  # the file's own table of contents
        size = struct.unpack("<Q", content[:8])[0]
        new_header = json.dumps(inputs.broken_tree(json.loads(content[8 : 8 + size]), rng)).encode()
        content = struct.pack("<Q", len(new_header)) + new_header + content[8 + size :]
    path.write_bytes(inputs.broken_bytes(content, rng) if rng.random() < 0.15 else content)


def _checksum(metadata: dict[str, str], tensors: dict[str, np.ndarray]) -> str:
    import torch

    from graphcal import saving

    if not hasattr(saving, "checksum"):  # a format without one
        return ""
    return str(saving.checksum(metadata, {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in tensors.items()}))


@cache
def outputs() -> Any:
    import torch
    from torch_geometric.data import Data

    from graphcal.core import FinalLayer, Outputs

    g = torch.Generator().manual_seed(0)
    k = torch.arange(40)
    graph = Data(x=torch.rand(40, 6, generator=g), edge_index=torch.stack([k, k * 7 % 40]), y=k % 3, num_nodes=40)
    graph.train_mask, graph.val_mask, graph.test_mask = k < 10, (k >= 10) & (k < 30), k >= 30
    weight, hidden = torch.randn(3, 4, generator=g), torch.randn(40, 4, generator=g)
    return Outputs(hidden @ weight.T, graph, FinalLayer.from_weight(weight), hidden)


@cache
def saved() -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """The header and the tensors of a saved calibration of every kind that needs no model to run again, and of older formats."""
    import tempfile
    from dataclasses import fields

    from safetensors import safe_open

    import graphcal
    from graphcal.methods import CALIBRATORS

    records, out = [], outputs()
    with tempfile.TemporaryDirectory() as folder:
        for name in CALIBRATORS.builtin:
            cls: Any = CALIBRATORS[name]
            small = {f.name: 3 for f in fields(cls) if f.name == "epochs"}
            try:
                path = graphcal.save(cls(**small).fit(out, on=out.graph.val_mask), Path(folder) / "c.safetensors")
            except ValueError:  # it runs the model again
                continue
            with safe_open(path, "np") as file:
                names = list(file.keys())
                records.append((json.loads(file.metadata()["graphcal"]), {key: file.get_tensor(key) for key in names}))
    return records


def calibration(folder: Path, rng: random.Random) -> None:
    header, tensors = rng.choice(saved())
    header = inputs.broken_tree(header, rng) if rng.random() < 0.6 else header
    safetensors(folder / "c.safetensors", {"graphcal": header}, tensors, rng)


def restore(folder: Path) -> Any:
    import graphcal

    return graphcal.restore(folder / "c.safetensors")


def restore_and_apply(folder: Path) -> Any:
    import torch

    log_probs = restore(folder)(outputs())
    assert log_probs.shape == (40, 3), "not log-probabilities of these nodes"
    assert torch.isfinite(log_probs).all(), "not finite"
    assert torch.allclose(log_probs.exp().sum(-1), torch.ones(40, dtype=log_probs.dtype), atol=1e-3), "not normalised"


def predictions(folder: Path, rng: random.Random) -> None:
    k = np.arange(30)
    probs = np.full((30, 3), 0.2)
    probs[k, k % 3] = 0.6
    if rng.random() < 0.4:
        write_npz(folder / "p.npz", {"label": k % 3, "probs": probs}, rng)
        return
    text = "label,prob_0,prob_1,prob_2\n" + "".join(
        f"{i % 3},{','.join(map(str, row))}\n" for i, row in enumerate(probs)
    )
    content = inputs.broken_text(text, rng).encode("utf-8", "replace")
    (folder / "p.csv").write_bytes(inputs.broken_bytes(content, rng) if rng.random() < 0.3 else content)


def read_predictions(folder: Path) -> Any:
    from graphcal.metrics.gate import judge
    from graphcal.tables.reading import read_table

    table = read_table(next(folder.iterdir()))
    labelled = table.labelled
    return judge(table.log_probs[labelled].double(), table.labels[labelled], draws=50)


@cache
def cell() -> Any:
    from graphcal.lab.bench.records import Cell, TrainingGroup

    group = TrainingGroup(
        "citeseer", "public", 20, None, "gcn", {"layers": 2}, {"lr": 0.01, "epochs": 5}, ((0, 0), (0, 1))
    )
    return Cell((group,), (0, 1), "ts", {}, "none", 20)


def record(folder: Path, rng: random.Random) -> None:
    scores = dict.fromkeys(
        ("accuracy", "ece", "ece_floor", "ece_excess", "ece_debiased", "nll", "brier", "signed_gap"), 0.1
    )
    sound = {
        "spec": cell().to_dict(), "versions": {"torch": "2"},
        "seconds": {"train": 1.0, "fit": 0.1, "apply": 0.1, "search": 0.0, "trained": {}},
        "result": {"test": scores, "unlabelled": scores, "validation": scores, "bins": {}, "nodes": {},
                   "changed": 0, "fitted": "", "chosen": None},
    }  # fmt: skip
    content = json.dumps(inputs.broken_tree(sound, rng) if rng.random() < 0.8 else sound).encode()
    (folder / "records").mkdir()
    (folder / "records" / f"{cell().key}.json").write_bytes(
        inputs.broken_bytes(content, rng) if rng.random() < 0.3 else content
    )
    safetensors(
        folder / "records" / f"{cell().key}.safetensors",
        {},
        {"log_probs": np.zeros((5, 3), "f4"), "y": np.zeros(5, "i8")},
        rng,
    )


def read_record(folder: Path) -> Any:
    from graphcal.lab.bench.records import Store

    store = Store(folder)
    return store.record(cell().key), store.nodes(cell().key)


def record_targets() -> dict[str, Target]:
    return {
        "preset": Target(preset, read_preset),
        "report": Target(report, read_report),
        "card": Target(report, read_card),
        "restore": Target(calibration, restore),
        "applied": Target(calibration, restore_and_apply),
        "predictions": Target(predictions, read_predictions),
        "record": Target(record, read_record),
    }
