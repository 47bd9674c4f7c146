"""From a graph to trained runs: what is checked and prepared before the loop, and what is made of its result.

train           one run for every seed
train_replicas  the general form: seeds, decays and splits in one training
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from threading import Lock

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.checks import check_edges, check_labels
from graphcal.core import Outputs
from graphcal.engine.cutting import Graph, fields, whole
from graphcal.engine.operators import feature_matrix, plain_adjacency
from graphcal.engine.receptive import Field, Shared
from graphcal.models import BACKBONES, OnGraph, Shape, SingleModel, Spec, backbone_of, name_of
from graphcal.training.chunks import Chunk, chunked, in_threads
from graphcal.training.early_stopping import Keeper
from graphcal.training.loop import fit
from graphcal.training.losses import Targets
from graphcal.training.published import recipe
from graphcal.training.replicas import Replica, Run
from graphcal.training.settings import Training

Progress = Callable[[int, int, int], None]  # epoch, epochs at most, replicas still training


def train(
    data: Data,
    backbone: str | Spec = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(10),
    progress: Progress | None = None,
) -> list[Run]:
    """One `Run` for every seed, all trained together. Without ``training``: CaGCN's recipe for the backbone."""
    return train_replicas(data, backbone, training, [Replica(seed) for seed in seeds], progress)


def train_replicas(
    data: Data,
    backbone: str | Spec,
    training: Training | None,
    replicas: Sequence[Replica],
    progress: Progress | None = None,
) -> list[Run]:
    """One `Run` for every replica: seeds, decays and splits in one training."""
    spec = backbone_of(backbone)
    training = training or (recipe("cagcn", name_of(spec)) if type(spec) in BACKBONES.values() else Training())
    if not replicas:
        return []
    classes = _classes(data)
    masks = [replica.masks(data) for replica in replicas]
    _check(data, classes, masks)
    operator, x = spec.prepare(plain_adjacency(data.edge_index, int(data.num_nodes)), feature_matrix(data.x))
    _check_finite(x)
    graph = Graph(operator, x, data.edge_index.device, training.input_dropout)
    shape = Shape(x.shape[1], classes, training.hidden, training.dropout, training.input_dropout, training.init)
    depth = spec.build(replace(shape, features=1), [torch.Generator()]).depth  # a model of one feature reaches as far
    everything = whole(graph, depth)
    cut: dict[tuple[bytes, bytes], tuple[Field, Field]] = {}
    lock = Lock()

    def job(chunk: Chunk) -> list[Run]:
        mine = [replicas[i] for i in chunk.members]
        learn, check = _chunk_fields(graph, depth, [masks[i] for i in chunk.members], cut, lock)
        train_mask, val_mask = (torch.stack([masks[i][k] for i in chunk.members]) for k in (0, 1))
        model = spec.build(shape, [torch.Generator().manual_seed(r.seed) for r in mine]).to(graph.device)
        targets = _targets(data.y, train_mask, learn), _targets(data.y, val_mask, check)
        keeper = fit(model, training, mine, (learn, check), targets, chunk)
        return _runs(spec, shape, mine, keeper, data, everything)

    chunks = chunked(masks, max(depth, 2) * max(x.shape) * training.hidden)
    done = in_threads(job, chunks, training.epochs, progress)
    by_member = {i: run for chunk, runs in zip(chunks, done) for i, run in zip(chunk.members, runs)}
    return [by_member[i] for i in range(len(replicas))]


def _classes(data: Data) -> int:
    if data.get("y") is None:
        raise ValueError("the graph has no labels y: training needs them")
    return int(data.y.max()) + 1 if data.get("num_classes") is None else int(data.num_classes)


def _check(data: Data, classes: int, masks: list[tuple[Tensor, Tensor]]) -> None:
    nodes = int(data.num_nodes)
    check_edges(data.edge_index, nodes)
    used = torch.stack([mask for pair in masks for mask in pair]).any(0).cpu()
    check_labels(data.y, nodes, classes, used)


def _check_finite(x: sp.csr_matrix) -> None:
    broken = ~np.isfinite(x.data)
    if broken.any():
        first = int(np.searchsorted(x.indptr, int(broken.argmax()), side="right")) - 1
        raise ValueError(
            f"the features x are not finite in {int(broken.sum())} places (first: node {first}): repair or drop them"
        )


def _chunk_fields(
    graph: Graph,
    depth: int,
    masks: list[tuple[Tensor, Tensor]],
    cut: dict[tuple[bytes, bytes], tuple[Field, Field]],
    lock: Lock,
) -> tuple[Field, Field]:
    """The chunk's fields: shared with other chunks of the same masks, except for the products of its own weights."""
    rows = [torch.stack([m[k] for m in masks]).any(0).nonzero().flatten().cpu().numpy() for k in (0, 1)]
    key = (rows[0].tobytes(), rows[1].tobytes())
    with lock:
        if key not in cut:
            cut[key] = fields(graph, rows[0], rows[1], depth)
    shared = Shared()
    learn, check = (replace(each, shared=shared) for each in cut[key])
    return learn, check


def _targets(y: Tensor, mask: Tensor, field: Field) -> Targets:
    chosen = mask[:, field.answers].float()
    return Targets(y[field.answers].clamp(min=0), chosen / chosen.sum(1, keepdim=True))


def _runs(
    spec: Spec, shape: Shape, replicas: Sequence[Replica], keeper: Keeper, data: Data, everything: Field
) -> list[Run]:
    runs = []
    for replica, state, history in zip(replicas, keeper.states(), keeper.histories):
        if history.best_epoch < 0:
            raise ValueError(
                f"the training of seed {replica.seed} diverged: its validation loss was never a number (first: "
                f"{history.val_loss[0]}). Lower lr, or look for features of extreme size"
            )
        one = spec.build(shape, [torch.Generator()]).to(data.edge_index.device)
        one.load_state_dict(state)
        with torch.no_grad():
            logits, hidden, final = one(everything)[0], one.representation(everything), one.final(0)
        handle = OnGraph(one, lambda: everything, data.edge_index)
        outputs = Outputs(logits, _as_split(data, replica), final, None if hidden is None else hidden[0], handle)
        runs.append(Run(replica.seed, outputs, SingleModel(spec, one).eval(), history))
    return runs


def _as_split(data: Data, replica: Replica) -> Data:
    """The caller's graph; a replica with masks of its own gets a shallow copy that carries them."""
    if replica.train_mask is None and replica.val_mask is None:
        return data
    own = copy(data)
    own.train_mask, own.val_mask = replica.masks(data)
    return own
