"""The training loop over mini-batches: losses, final-layer decay and early stopping of `graphcal.lab.training.loop`, one replica.

    for each epoch:   each batch of training nodes -> gradients, summed over processes -> step
                      all validation nodes, batch by batch -> keep the best, or stop

A batch is divided among the processes (`ProcessGroup`); the loss is the mean over all its seeds, so that two processes make the
steps of one. Order, samples and dropout come from the seed, the epoch and the node alone, whatever process computes them.
Validation batches are sampled in the same way in every epoch: early stopping compares models, not samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.lab.engine.dropout import Dropout, hashed, hashed_key
from graphcal.lab.engine.receptive import GraphInput, ReceptiveField, full_graph
from graphcal.lab.engine.sampled_fields import SampledFields
from graphcal.lab.models import Backbone, Replicas
from graphcal.lab.models.replicas import graph_input
from graphcal.lab.training.loaders import Sampling
from graphcal.lab.training.loop import EarlyStopping
from graphcal.lab.training.losses import Targets, accuracy, nll
from graphcal.lab.training.process_group import ProcessGroup
from graphcal.lab.training.settings import Replica, Training
from graphcal.lab.training.stacked_adam import StackedAdam

ORDER, STEP, VALIDATION = 1, 2, 3  # what a key is for
Loaders = tuple[Iterable[Data], Iterable[Data]]  # of training nodes, of validation nodes


@dataclass(frozen=True, eq=False)
class Batch:
    """This process's part of a batch: the pass that computes its seeds' outputs, their classes, and the seeds of all parts."""

    field: ReceptiveField | None  # None: no seed is left for this process
    y: Tensor  # (n,)
    total: int

    @property
    def targets(self) -> Targets:
        """Weights that sum to this process's share of the batch."""
        return Targets(self.y, torch.full((1, len(self.y)), 1 / self.total, device=self.y.device))


class Batches(Protocol):
    def training(self, epoch: int) -> Iterator[Batch]: ...

    def validation(self) -> Iterator[Batch]: ...


class SampledBatches:
    """Batches that are sampled from a graph as the backbone reads it."""

    def __init__(
        self, graph: GraphInput, sampling: Sampling, depth: int, y: Tensor, masks: tuple[Tensor, Tensor], seed: int
    ) -> None:
        if len(sampling.fanouts) != depth and depth > 0:
            raise ValueError(
                f"the model reads {depth} hops, but there are {len(sampling.fanouts)} fan-outs: give one per hop, for example "
                f"Sampling(fanouts={(10,) * depth})"
            )
        self.fields = SampledFields(graph, sampling.fanouts[:depth])
        self.size, self.y, self.seed, self.group = sampling.batch_size, y, seed, ProcessGroup.current()
        self.train_nodes, self.val_nodes = (mask.nonzero().flatten().cpu() for mask in masks)

    def training(self, epoch: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(hashed(self.seed, ORDER, epoch) >> 1)
        order = torch.randperm(len(self.train_nodes), generator=generator)
        return self._batches(self.train_nodes[order], (STEP, epoch))

    def validation(self) -> Iterator[Batch]:
        return self._batches(self.val_nodes, (VALIDATION,))

    def _batches(self, nodes: Tensor, purpose: tuple[int, ...]) -> Iterator[Batch]:
        for number, seeds in enumerate(torch.split(nodes, self.size)):
            mine = self.group.share(seeds)
            field = self.fields.field(mine, hashed_key(self.seed, *purpose, number)) if len(mine) else None
            yield Batch(field, self.y[mine], len(seeds))


class LoadedBatches:
    """Batches of other loaders, PyG's for example: each is a small graph, its seeds first.

    Every process has loaders of its own, with as many training batches as those of the others.
    """

    def __init__(self, loaders: Loaders, backbone: Backbone, depth: int, input_dropout: float) -> None:
        self.loaders, self.backbone, self.depth, self.input_dropout = loaders, backbone, depth, input_dropout
        self.group = ProcessGroup.current()

    def training(self, epoch: int) -> Iterator[Batch]:
        for batch in map(self._batch, self.loaders[0]):
            total = self.group.sum(torch.tensor(float(batch.total)))
            yield replace(batch, total=int(total))

    def validation(self) -> Iterator[Batch]:
        return map(self._batch, self.loaders[1])

    def _batch(self, batch: Data) -> Batch:
        seeds = int(batch.batch_size)
        graph = graph_input(self.backbone, batch.x, batch.edge_index, self.input_dropout)
        field = replace(
            full_graph(graph, self.depth),
            nodes=[batch.n_id] * (self.depth + 1),
            output_index=torch.arange(seeds, device=graph.device),
        )
        return Batch(field, batch.y[:seeds], seeds)


def batches_of(
    loader: Sampling | Loaders,
    backbone: Backbone,
    graph: GraphInput,
    depth: int,
    y: Tensor,
    masks: tuple[Tensor, Tensor],
    seed: int,
) -> Batches:
    """The batches that ``loader`` stands for."""
    if isinstance(loader, Sampling):
        return SampledBatches(graph, loader, depth, y, masks, seed)
    if not isinstance(loader, tuple) or len(loader) != 2:
        raise ValueError(
            f"loader={type(loader).__name__} does not say what to train and what to stop on: give Sampling(fanouts, batch_size), "
            "or two loaders (of training nodes, of validation nodes)"
        )
    return LoadedBatches(loader, backbone, depth, graph.input_dropout)


def fit_batches(
    model: Replicas,
    training: Training,
    replica: Replica,
    batches: Batches,
    report: Callable[[int, int], None] = lambda epoch, running: None,
) -> EarlyStopping:
    """Trains the one replica in ``model``; returns its best state and history."""
    if model.has_own_loss:
        raise ValueError(
            f"{type(model).__name__} has a loss of its own over all training nodes: train it without loader="
        )
    if training.monitor == "refinement":
        raise ValueError(
            "monitor='refinement' needs all validation nodes at once: train without loader=, or monitor 'loss'"
        )
    optimizer, stopping = StackedAdam(model, training, [replica]), EarlyStopping(model, training, 1)
    group, step = ProcessGroup.current(), 0
    for epoch in range(training.epochs):
        trained = torch.zeros(2, dtype=torch.double)  # sum of losses, seeds
        for batch in batches.training(epoch):
            loss = _no_loss(model)
            if batch.field is not None:
                logits = model(batch.field, Dropout([replica.seed], step))
                loss = training.loss(logits, batch.targets, epoch).sum()
            optimizer.step(loss, group.sum_gradients)
            trained += torch.tensor([float(loss.detach()) * batch.total, len(batch.y)])
            step += 1
        train_loss = _ratio(group.sum(trained))
        val_loss, val_accuracy = validate(model, batches.validation(), group)
        watched = None if training.monitor == "loss" else val_accuracy
        going_on = stopping.update(epoch, model, train_loss, val_loss, watched)
        report(epoch + 1, int(going_on))
        if not going_on:
            break
    return stopping


@torch.no_grad()
def validate(model: Replicas, batches: Iterator[Batch], group: ProcessGroup) -> tuple[Tensor, Tensor]:
    """Cross-entropy (1,) and accuracy (1,) of all validation nodes, over all processes."""
    sums = torch.zeros(3, dtype=torch.double)  # losses, hits, seeds
    for batch in batches:
        if batch.field is not None:
            logits = model(batch.field)
            mean = torch.stack([nll(logits, batch.targets)[0], accuracy(logits, batch.targets)[0]]).double().cpu()
            sums += torch.cat([mean * batch.total, torch.tensor([len(batch.y)])])
    losses, hits, seeds = group.sum(sums)
    return (losses / seeds).float()[None], (hits / seeds).float()[None]


def _no_loss(model: Replicas) -> Tensor:
    """Zero, with gradients that are zero: a process without a seed takes part in the step."""
    return torch.stack([0 * p.sum() for p in model.parameters() if p.requires_grad]).sum()


def _ratio(sums: Tensor) -> Tensor:
    return (sums[0] / sums[1]).float()[None]
