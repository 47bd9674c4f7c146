"""Train models on a graph: checks and preparation before the loop, runs from its result.

train           one run for every seed
train_replicas  the general form: seeds, decays and splits in one training

Which replicas train side by side, and on which threads.

Replicas that train on the same nodes share a chunk; a chunk is one stack. There are as many threads as torch has, and each trains
whole chunks with one torch thread. That is faster than splitting every operation between torch's threads, which then wait for
each other after each operation, and by far faster on a machine that others use as well. A single chunk keeps torch's threads.

A chunk is large enough that Python's share of an epoch stays small, and small enough that what all its layers keep for the
backward pass stays within CHUNK_BYTES: what streams through memory gains nothing by being stacked, and much of it at once loses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from copy import copy
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphcal.checks import check_edges, check_labels
from graphcal.core import Outputs
from graphcal.lab.engine.receptive import FirstProductCache, GraphInput, ReceptiveField, full_graph, receptive_fields
from graphcal.lab.models import Backbone, ModelConfig, TrainedGNN, backbone_of
from graphcal.lab.models.replicas import graph_input
from graphcal.lab.training._loop import EarlyStopping, History, fit
from graphcal.lab.training.losses import Targets
from graphcal.lab.training.settings import Replica, Training, default_training

T = TypeVar("T")
LARGEST = 8  # replicas in a chunk: beyond this Python's share no longer falls
CHUNK_BYTES = 2**28  # of the activations of all layers and replicas of a chunk


@dataclass
class Chunk:
    """Some of the replicas, and how far they are."""

    members: list[int]
    epoch: int = 0
    running: int = 0
    cancelled: Event = field(default_factory=Event)

    def report(self, epoch: int, running: int) -> bool:
        """Notes the state. False: there is nothing left to do."""
        self.epoch, self.running = epoch, running
        return running > 0 and not self.cancelled.is_set()


def split_into_chunks(masks: Sequence[tuple[Tensor, Tensor]], activations: int) -> list[Chunk]:
    """The replicas in chunks, those with equal masks together. ``activations``: numbers in all layers of one replica."""
    threads = torch.get_num_threads()
    by_masks: dict[bytes, list[int]] = {}
    for i, pair in enumerate(masks):
        by_masks.setdefault(b"".join(mask.cpu().numpy().tobytes() for mask in pair), []).append(i)
    room = CHUNK_BYTES // (4 * activations)
    share = -(-len(masks) // threads)
    size = max(1, min(LARGEST, share, room))
    chunks: list[Chunk] = []
    rest: list[int] = []  # groups smaller than a chunk are put together: their fields are joined
    for group in by_masks.values():
        if len(group) < size:
            rest += group
            continue
        pieces = -(-len(group) // size)
        chunks += [Chunk(group[k::pieces]) for k in range(pieces)]
    chunks += [Chunk(rest[k : k + size]) for k in range(0, len(rest), size)]
    for chunk in chunks:
        chunk.running = len(chunk.members)
    return chunks


def run_in_threads(
    job: Callable[[Chunk], T], chunks: Sequence[Chunk], epochs: int, progress: Callable[[int, int, int], None] | None
) -> list[T]:
    """``job`` of every chunk. Progress is reported from the calling thread, a few times a second."""
    threads = torch.get_num_threads()
    workers = min(threads, len(chunks))
    cancelled = Event()
    for chunk in chunks:
        chunk.cancelled = cancelled

    def alone(chunk: Chunk) -> T:
        torch.set_num_threads(max(1, threads // workers))
        return job(chunk)

    with ThreadPoolExecutor(workers) as pool:
        try:
            futures = [pool.submit(alone, chunk) for chunk in chunks]
            pending: set[Any] = set(futures)
            while pending:
                done, pending = wait(pending, timeout=0.3, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                if progress is not None:
                    progress(max(c.epoch for c in chunks), epochs, sum(c.running for c in chunks))
            return [future.result() for future in futures]
        except BaseException:
            cancelled.set()
            for future in futures:
                future.cancel()
            raise
        finally:
            torch.set_num_threads(threads)


Progress = Callable[[int, int, int], None]  # epoch, epochs at most, replicas still training
Fields = tuple[ReceptiveField, ReceptiveField]  # of a training pass, of a validation pass


@dataclass(frozen=True, eq=False)
class Run:
    """One trained replica: what it said, the model, and how training went.

    >>> import graphcal
    >>> data = graphcal.lab.synthetic(500, seed=0)
    >>> run = graphcal.lab.train(data, training=graphcal.lab.Training(epochs=5), seeds=1)[0]
    >>> run.outputs, run.history.epochs
    (Outputs(500 nodes, 5 classes, final layer known), 5)
    >>> run.model(data.x, data.edge_index).shape
    torch.Size([500, 5])
    """

    seed: int
    outputs: Outputs
    model: nn.Module  # model(x, edge_index) -> logits (N, C), on any graph
    history: History


def train(
    data: Data,
    backbone: str | Backbone = "gcn",
    training: Training | None = None,
    seeds: int | Iterable[int] = 10,
    progress: Progress | None = None,
) -> list[Run]:
    """Train one `Run` per seed, all together; ``seeds=3`` is ``range(3)``. Without ``training``: CaGCN's settings.

    >>> import graphcal
    >>> runs = graphcal.lab.train(graphcal.lab.synthetic(500, seed=0), "gcn", graphcal.lab.Training(epochs=5), seeds=2)
    >>> [run.seed for run in runs], runs[0].outputs
    ([0, 1], Outputs(500 nodes, 5 classes, final layer known))
    """
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    return train_replicas(data, backbone, training, [Replica(seed) for seed in numbers], progress)


def train_replicas(
    data: Data,
    backbone: str | Backbone,
    training: Training | None,
    replicas: Sequence[Replica],
    progress: Progress | None = None,
) -> list[Run]:
    """Train one `Run` per replica: seeds, decays and splits in one training."""
    backbone = backbone_of(backbone)
    training = training or default_training(backbone)
    if not replicas:
        return []
    classes = _num_classes(data)
    masks = [replica.masks(data) for replica in replicas]
    _check(data, classes, masks)
    graph = graph_input(backbone, data.x, data.edge_index, training.input_dropout)
    _check_finite(graph.x)
    config = ModelConfig(
        in_channels=graph.x.shape[1],
        hidden_channels=training.hidden_channels,
        num_classes=classes,
        dropout=training.dropout,
        input_dropout=training.input_dropout,
        init=training.init,
    )
    # a model of one feature reaches as far
    depth = backbone.build(replace(config, in_channels=1), [torch.Generator()]).depth
    whole = full_graph(graph, depth)
    cut: dict[tuple[bytes, bytes], Fields] = {}
    lock = Lock()

    def train_chunk(chunk: Chunk) -> list[Run]:
        mine = [replicas[i] for i in chunk.members]
        fields = _chunk_fields(graph, depth, [masks[i] for i in chunk.members], cut, lock)
        train_mask, val_mask = (torch.stack([masks[i][k] for i in chunk.members]) for k in (0, 1))
        model = backbone.build(config, [torch.Generator().manual_seed(r.seed) for r in mine]).to(graph.device)
        targets = _targets(data.y, train_mask, fields[0]), _targets(data.y, val_mask, fields[1])
        stopping = fit(model, training, mine, fields, targets, chunk)
        return _runs(backbone, config, mine, stopping, data, whole)

    chunks = split_into_chunks(masks, max(depth, 2) * max(graph.x.shape) * training.hidden_channels)
    done = run_in_threads(train_chunk, chunks, training.epochs, progress)
    by_member = {i: run for chunk, runs in zip(chunks, done) for i, run in zip(chunk.members, runs)}
    return [by_member[i] for i in range(len(replicas))]


def _num_classes(data: Data) -> int:
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
    graph: GraphInput,
    depth: int,
    masks: list[tuple[Tensor, Tensor]],
    cut: dict[tuple[bytes, bytes], Fields],
    lock: Lock,
) -> Fields:
    """The chunk's fields: shared with other chunks of the same masks, except for the products of its own weights."""
    rows = [torch.stack([m[k] for m in masks]).any(0).nonzero().flatten().cpu().numpy() for k in (0, 1)]
    key = (rows[0].tobytes(), rows[1].tobytes())
    with lock:
        if key not in cut:
            cut[key] = receptive_fields(graph, rows[0], rows[1], depth)
    first_products = FirstProductCache()
    train_field, val_field = (replace(each, first_products=first_products) for each in cut[key])
    return train_field, val_field


def _targets(y: Tensor, mask: Tensor, field: ReceptiveField) -> Targets:
    weights = mask[:, field.output_nodes].float()
    return Targets(y[field.output_nodes].clamp(min=0), weights / weights.sum(1, keepdim=True))


def _runs(
    backbone: Backbone,
    config: ModelConfig,
    replicas: Sequence[Replica],
    stopping: EarlyStopping,
    data: Data,
    whole: ReceptiveField,
) -> list[Run]:
    runs = []
    for replica, state, history in zip(replicas, stopping.best_states(), stopping.histories):
        if history.best_epoch < 0:
            raise ValueError(
                f"the training of seed {replica.seed} diverged: its validation loss was never a number (first: "
                f"{history.val_loss[0]}). Lower lr, or look for features of extreme size"
            )
        model = TrainedGNN.from_state(backbone, config, state)
        outputs = model.on(data, whole).outputs(_as_split(data, replica))
        runs.append(Run(replica.seed, outputs, model, history))
    return runs


def _as_split(data: Data, replica: Replica) -> Data:
    """The caller's graph; a replica with masks of its own gets a shallow copy that carries them."""
    if replica.train_mask is None and replica.val_mask is None:
        return data
    split = copy(data)
    split.train_mask, split.val_mask = replica.masks(data)
    return split
