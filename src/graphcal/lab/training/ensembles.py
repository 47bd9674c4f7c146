"""Uncertainty from several predictions of the same kind: MC dropout and deep ensembles.

    p = 1/S sum_s softmax(z_s)

    mc_dropout  z_s: one trained model, S passes with dropout        Gal & Ghahramani, ICML 2016 (arXiv 1506.02142)
    ensemble    z_s: S replicas trained from different seeds         Lakshminarayanan et al., NeurIPS 2017 (arXiv 1612.01474)

The result is an `Outputs` whose logits are log p, so that any calibrator that needs only logits can follow. There is no final
layer behind a mean of probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import Outputs
from graphcal.lab.models import TrainedGNN
from graphcal.lab.training.trainer import Run


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
