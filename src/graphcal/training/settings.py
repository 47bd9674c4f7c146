"""How a model is trained: one flat, frozen set of choices.

The defaults are CaGCN's settings for a GCN (Wang et al., NeurIPS 2021, arXiv 2109.14285, and its official code): 64 hidden
units, dropout 0.5 on the hidden layer only, Adam at 0.01 with coupled L2 5e-4 on all parameters, at most 2,000 epochs, patience
100 on the validation cross-entropy, best state restored, initial weights uniform in +-1/sqrt(out).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from graphcal.training.losses import CrossEntropy, Loss, loss_of

MONITORS = ("loss", "accuracy", "both")


@dataclass(frozen=True)
class Training:
    """The settings of a training; the defaults are those of CaGCN's GCN.

    ``final_weight_decay`` is SCAR's class-centroid-level lever (lambda_K of the paper): the decay of the final layer alone.
    ``dataclasses.asdict`` writes it as plain data, `Training.from_dict` reads it back.

    >>> Training(epochs=200, final_weight_decay=1e-4).lr
    0.01
    """

    hidden_channels: int = 64  # units of a hidden layer (of each head, for GAT)
    dropout: float = 0.5  # on hidden layers
    input_dropout: float = 0.0  # on the features
    init: str = "uniform"  # graphcal.engine.inits.INITS
    lr: float = 0.01
    final_lr: float | None = None  # of the final layer; None: lr
    weight_decay: float = 5e-4
    final_weight_decay: float | None = None  # lambda_K; None: weight_decay
    epochs: int = 2000
    patience: int | None = 100  # epochs without improvement; None: train to the end
    monitor: str = "loss"  # on validation nodes: loss, accuracy, or both (GAT's rule, see early_stopping.py)
    loss: Loss = field(default_factory=CrossEntropy)

    def __post_init__(self) -> None:
        if self.monitor not in MONITORS:
            raise ValueError(f"monitor={self.monitor!r} is not one of {', '.join(MONITORS)}")
        if not isinstance(self.loss, Loss):
            raise ValueError(f"loss={self.loss!r} is not a loss: give CrossEntropy(), AULS(...), or Training.from_dict")
        for name in ("dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1); got {getattr(self, name)}")
        for name in ("hidden_channels", "epochs", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        for name in ("lr", "final_lr", "weight_decay", "final_weight_decay"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must not be negative; got {value}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Training:
        """From plain data (TOML, JSON): the defaults with ``values`` changed. A loss is a name or a table with its name.

        >>> Training.from_dict({"epochs": 500, "loss": {"name": "au-ls", "epsilon": -0.3}}).loss
        AULS(epsilon=-0.3, gamma=0.5)
        """
        return cls().updated(values)

    def updated(self, values: Mapping[str, Any]) -> Training:
        """The same training with ``values``, plain data as in `from_dict`, changed.

        >>> Training(epochs=200).updated({"dropout": 0.8}).epochs
        200
        """
        names = [f.name for f in fields(self)]
        unknown = [name for name in values if name not in names]
        if unknown:
            raise ValueError(f"a training has no setting {', '.join(unknown)}; it has {', '.join(names)}")
        loss = {"loss": loss_of(values["loss"])} if "loss" in values else {}
        return replace(self, **{**values, **loss})
