"""Several replicas as one prediction: cross-fitting, MC dropout and deep ensembles.

*Cross-fitting*: every labelled node predicted by a model that used it neither to train nor to stop.

Validation nodes that chose the epoch are a little too good to calibrate on, and training nodes cannot be used at all. Deal the
labelled nodes into folds; replica k trains without fold k and stops without it, all replicas in one training; what it says of
fold k is honest. So training labels calibrate too.

The replicas are laid side by side as one graph of ``folds`` parts, each with its own logits, so that a calibrator that reads
neighbourhoods finds around a node what the replica that predicted it said. Any recipe is fitted on that and applied to the model
trained on everything.

Departures: a replica has fewer training nodes than the model it stands for, (folds - 1) / folds of them, and is a little worse.
The final layers differ, so none is given: SCAR refuses, graph scaling does without its pull.

*MC dropout and deep ensembles*: uncertainty from several predictions of the same kind.

    p = 1/S sum_s softmax(z_s)

    mc_dropout  z_s: one trained model, S passes with dropout        Gal & Ghahramani, ICML 2016 (arXiv 1506.02142)
    ensemble    z_s: S replicas trained from different seeds         Lakshminarayanan et al., NeurIPS 2017 (arXiv 1612.01474)

The result is an `Outputs` whose logits are log p, so that any calibrator that needs only logits can follow. There is no final
layer behind a mean of probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import Outputs
from graphcal.lab.models import Backbone, TrainedGNN
from graphcal.lab.training.settings import Replica, Training
from graphcal.lab.training.trainer import Run, train_replicas


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Out-of-fold outputs to fit a calibrator on: ``recipe.fit(folds.outputs, on=folds.on)``."""

    outputs: Outputs  # of all replicas side by side: node n of replica k is k N + n
    on: Tensor  # (folds N,) every labelled node once, in the part of the replica that did not see it


def cross_fit(
    data: Data,
    backbone: str | Backbone = "gcn",
    training: Training | None = None,
    folds: int = 5,
    seed: int = 0,
) -> CrossFit:
    """Train one replica per fold without it; give what each says of the nodes that it did not see.

    >>> import graphcal
    >>> data = graphcal.lab.synthetic(600, seed=0)
    >>> training = graphcal.lab.Training(epochs=20)
    >>> run = graphcal.lab.train(data, training=training, seeds=[0])[0]
    >>> fitted = graphcal.lab.cross_fit(data, training=training, folds=3)
    >>> calibrate = graphcal.GraphScaling().fit(fitted.outputs, on=fitted.on)
    >>> calibrate(run.outputs).shape
    torch.Size([600, 5])
    """
    labelled = (data.train_mask | data.val_mask).nonzero().flatten()
    if not 2 <= folds <= len(labelled):
        raise ValueError(f"folds must be from 2 to the number of labelled nodes, {len(labelled)}; got {folds}")
    fold = stratified_folds(data.y, data.train_mask, labelled, folds, seed)
    unseen = [torch.zeros_like(data.train_mask) for _ in range(folds)]
    for k, mask in enumerate(unseen):
        mask[labelled[fold == k]] = True
    replicas = [Replica(seed, train_mask=data.train_mask & ~out, val_mask=data.val_mask & ~out) for out in unseen]
    runs = train_replicas(data, backbone, training, replicas)
    return CrossFit(side_by_side(data, runs, replicas, unseen), torch.cat(unseen))


def stratified_folds(y: Tensor, train: Tensor, labelled: Tensor, folds: int, seed: int) -> Tensor:
    """The fold of each labelled node: training and validation nodes of each class are dealt out in turn."""  # (n,)
    order = torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))
    kind = 2 * y[labelled[order]] + train[labelled[order]].long()
    order = order[torch.argsort(kind, stable=True)]
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(order), device=order.device) % folds
    return fold


def side_by_side(data: Data, runs: list[Run], replicas: list[Replica], unseen: list[Tensor]) -> Outputs:
    """One graph of as many parts as there are replicas; only what a replica saw, or is to be judged on, has its label."""
    nodes = int(data.num_nodes)
    edges = torch.cat([data.edge_index + k * nodes for k in range(len(runs))], 1)
    graph = Data(edge_index=edges, num_nodes=nodes * len(runs))
    graph.train_mask = torch.cat([replica.masks(data)[0] for replica in replicas])
    graph.val_mask = torch.cat(unseen)
    labelled = graph.train_mask | graph.val_mask
    graph.y = torch.where(labelled, data.y.repeat(len(runs)), -1)
    return Outputs(torch.cat([run.outputs.logits for run in runs]), graph)


def mc_dropout(run: Run, data: Data | None = None, passes: int = 10, seed: int = 0) -> Outputs:
    """The mean over ``passes`` passes with dropout, on the graph the run was trained on or on another."""
    if passes < 1:
        raise ValueError(f"passes must be at least 1; got {passes}")
    if not isinstance(run.model, TrainedGNN):
        raise ValueError(f"mc_dropout takes a run of graphcal.train; its model is {type(run.model).__name__}")
    data = run.outputs.graph if data is None else data
    return Outputs(log_mean(run.model.sample(data.x, data.edge_index, seed, passes)), data)


def ensemble(runs: Sequence[Run]) -> Outputs:
    """The mean over runs on one graph."""
    if not runs:
        raise ValueError("an ensemble needs at least one run; got none")
    graph = runs[0].outputs.graph
    if any(run.outputs.graph is not graph for run in runs):
        raise ValueError("the runs of an ensemble must share one graph and one split; these do not")
    return Outputs(log_mean(torch.stack([run.outputs.logits for run in runs])), graph)


def log_mean(logits: Tensor) -> Tensor:
    """log of the mean probability: (S, N, C) -> (N, C)"""
    return logits.log_softmax(-1).logsumexp(0) - log(len(logits))
