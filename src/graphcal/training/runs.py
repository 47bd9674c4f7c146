"""One run of a training: what is asked for (`Replica`), what happened (`History`), what came out (`Run`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn
from torch_geometric.data import Data

from graphcal.checks import check_mask
from graphcal.core import Outputs
from graphcal.training.settings import Training


@dataclass(frozen=True, eq=False)
class Replica:
    """One run among many: its seed, and where it differs from the common `Training` and from the graph's own masks."""

    seed: int
    final_weight_decay: float | None = None  # None: the training's
    weight_decay: float | None = None  # None: the training's
    train_mask: Tensor | None = None  # (N,) None: the graph's
    val_mask: Tensor | None = None  # (N,) None: the graph's

    def weight_decays(self, training: Training) -> tuple[float, float]:
        """(decay of all layers but the last, decay of the last)"""
        decay = training.weight_decay if self.weight_decay is None else self.weight_decay
        for final in (self.final_weight_decay, training.final_weight_decay):
            if final is not None:
                return decay, final
        return decay, decay

    def masks(self, data: Data) -> tuple[Tensor, Tensor]:
        """(training nodes, validation nodes), checked"""
        chosen = []
        for name in ("train_mask", "val_mask"):
            mask = getattr(self, name) if getattr(self, name) is not None else data.get(name)
            if mask is None:
                raise ValueError(f"the graph has no {name}: give it one, as a boolean tensor with one entry per node")
            chosen.append(check_mask(mask, int(data.num_nodes), name))
        train, val = chosen
        both = (train & val).nonzero().flatten()
        if len(both):
            raise ValueError(
                f"train_mask and val_mask share {len(both)} nodes (first: node {int(both[0])}): early stopping needs nodes the "
                "model is not trained on"
            )
        return train, val


@dataclass
class History:
    """What happened, epoch by epoch, until the replica stopped."""

    train_loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    best_epoch: int = -1  # counted from 0; the state after this epoch is the one returned

    @property
    def epochs(self) -> int:
        return len(self.val_loss)


@dataclass(frozen=True, eq=False)
class Run:
    """One trained replica: what it said, the model, and how training went.

    >>> import graphcal as gc
    >>> data = gc.synthetic(500, seed=0)
    >>> run = gc.train(data, training=gc.Training(epochs=5), seeds=1)[0]
    >>> run.outputs, run.history.epochs
    (Outputs(500 nodes, 5 classes, final layer known), 5)
    >>> run.model(data.x, data.edge_index).shape
    torch.Size([500, 5])
    """

    seed: int
    outputs: Outputs
    model: nn.Module  # model(x, edge_index) -> logits (N, C), on any graph
    history: History
