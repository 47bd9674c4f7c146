"""Trained models by the hash of their training: twenty calibrators share one.

A base is trained whole, all its runs together, and cached whole in one safetensors file: logits, final representation, final
layer and weights of every run. A training that was killed leaves nothing, and is done again the same way.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import FinalLayer, Outputs
from graphcal.files import write_atomically
from graphcal.lab.bench.records import Store, sealed, unsealed
from graphcal.lab.bench.spec import RunId, TrainingGroup, canonical
from graphcal.lab.datasets import load
from graphcal.lab.models import BACKBONES, ModelConfig, Replicas, TrainedGNN
from graphcal.lab.training import Replica, Run, Training, train_replicas


class Graphs:
    """The graphs of one job. Splits of the same graph share its features and edges."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, str, bool | None], dict[tuple[int, int], Data]] = {}

    def of(self, base: TrainingGroup, split: int) -> Data:
        known = self._loaded.setdefault((base.dataset, base.protocol, base.row_normalise), {})
        asked = (base.labels_per_class, split)
        if asked not in known:
            graph = load(base.dataset, base.protocol, *asked, row_normalise=base.row_normalise)
            if known:
                first = next(iter(known.values()))
                graph.x, graph.edge_index = first.x, first.edge_index
            known[asked] = graph
        return known[asked]


@dataclass(frozen=True)
class Models:
    """The models of one base: what each says on a graph, and the seconds each took (those of all, divided by their number)."""

    outputs: Mapping[RunId, Callable[[Data], Outputs]]
    seconds: float


def models_of(base: TrainingGroup, store: Store, graphs: Graphs) -> Models:
    """The trained models: found in the cache, or trained and put there. Two processes never train the same base at once."""
    path = store.cache_path(base.key)
    with store.lock(f"base-{base.key}"):
        if path.exists() and not _is_sound(base, path):
            store.set_aside(path)
        if not path.exists():
            _train(base, path, graphs)
    return _read(base, path)


def _is_sound(base: TrainingGroup, path: Path) -> bool:
    """Whole, of this training and no other, with what every run needs."""
    try:
        tensors, about = unsealed(path)
        config, seconds = json.loads(about["config"]), float(about["seconds"])
    except (ValueError, KeyError, FileNotFoundError):
        return False
    needed = {f"{number}/logits" for number in range(len(base.runs))}
    mine = about.get("base") == canonical(asdict(base)) and isinstance(config, dict) and seconds >= 0
    return mine and needed <= tensors.keys()


def _train(base: TrainingGroup, path: Path, graphs: Graphs) -> None:
    splits = [graphs.of(base, split) for split, _ in base.runs]
    replicas = [
        Replica(seed, train_mask=graph.train_mask, val_mask=graph.val_mask)
        for (_, seed), graph in zip(base.runs, splits)
    ]
    seen = copy.copy(splits[0])  # shares x and edge_index
    known = torch.stack([graph.train_mask | graph.val_mask for graph in splits]).any(0)
    seen.y = torch.where(known, seen.y, -1)
    del seen.test_mask
    backbone = BACKBONES[base.backbone](**base.architecture)
    started = time.process_time()
    runs = train_replicas(seen, backbone, Training.from_dict(base.training), replicas)
    seconds = time.process_time() - started
    tensors: dict[str, Tensor] = {}
    for number, run in enumerate(runs):
        out, model = run.outputs, _replicas(run)
        kept = {"logits": out.logits}
        if out.final is not None:
            kept |= {"weight": out.final.weight, "bias": out.final.bias}
        kept |= {f"state/{name}": value for name, value in model.state_dict().items()}
        tensors |= {f"{number}/{name}": t.detach().contiguous().clone() for name, t in kept.items() if t is not None}
    config = asdict(_replicas(runs[0]).config)
    about = {"base": canonical(asdict(base)), "seconds": repr(seconds), "config": canonical(config)}
    write_atomically(path, sealed(tensors, about))


def _replicas(run: Run) -> Replicas:
    assert isinstance(run.model, TrainedGNN)
    return run.model.replicas


def _read(base: TrainingGroup, path: Path) -> Models:
    with safe_open(path, "pt") as file:
        seconds = float(file.metadata()["seconds"])
    outputs = {run: partial(_outputs, base, path, number) for number, run in enumerate(base.runs)}
    return Models(outputs, seconds / len(base.runs))


def _outputs(base: TrainingGroup, path: Path, number: int, graph: Data) -> Outputs:
    with safe_open(path, "pt") as file:
        mine = f"{number}/"
        kept = {name[len(mine) :]: file.get_tensor(name) for name in file.keys() if name.startswith(mine)}  # noqa: SIM118
        config = ModelConfig(**json.loads(file.metadata()["config"]))
    state = {name[len("state/") :]: t for name, t in kept.items() if name.startswith("state/")}
    model = TrainedGNN.from_state(BACKBONES[base.backbone](**base.architecture), config, state)
    final = FinalLayer.from_weight(kept["weight"], kept["bias"]) if "weight" in kept else None
    handle = model.on(graph)
    return Outputs(kept["logits"], graph, final, handle.hidden, handle)
