"""How a model is trained: one flat, frozen set of choices.

The defaults are CaGCN's recipe for a GCN (Wang et al., NeurIPS 2021, arXiv 2109.14285, and its official code): 64 hidden units,
dropout 0.5 on the hidden layer only, Adam at 0.01 with coupled L2 5e-4 on all parameters, at most 2,000 epochs, patience 100
on the validation cross-entropy, best state restored, initial weights uniform in +-1/sqrt(out).

``final_weight_decay`` is SCAR's class-centroid-level lever (lambda_K of the paper): the decay of the final layer alone.
"""

from __future__ import annotations

from dataclasses import dataclass

OPTIMIZERS = ("adam", "adamw", "sgd")
MONITORS = ("loss", "accuracy", "both")


@dataclass(frozen=True)
class Training:
    hidden: int = 64  # units of a hidden layer (of each head, for GAT)
    dropout: float = 0.5  # on hidden layers
    input_dropout: float = 0.0  # on the features
    init: str = "uniform"  # graphcal.engine.layers.INITS
    optimizer: str = "adam"  # adam and sgd with coupled L2, adamw with decoupled decay
    lr: float = 0.01
    head_lr: float | None = None  # the final layer's; None: lr
    weight_decay: float = 5e-4
    inner_weight_decay: float | None = None  # GCNII's convolutions; None: weight_decay
    final_weight_decay: float | None = None  # lambda_K; None: weight_decay
    final_decay_from: float | None = None  # anneal lambda_K from this value to final_weight_decay ...
    final_decay_epochs: int = 500  # ... linearly over these epochs
    epochs: int = 2000
    patience: int | None = 100  # epochs without improvement; None: train to the end
    monitor: str = "loss"  # on validation nodes: loss, accuracy, or both (GAT's rule, see stopping.py)
    loss: str = "ce"  # graphcal.training.losses.LOSSES
    au_epsilon: float = -0.5  # AU-LS: smoothing in the limit
    au_gamma: float = 0.5  # AU-LS: extra smoothing in the first epochs
    gcl_gamma: float = 0.1  # GCL: extra weight of confident nodes
    centroid_pull: float = 0.1  # centroid term: its weight

    def __post_init__(self) -> None:
        for name, choices in (("optimizer", OPTIMIZERS), ("monitor", MONITORS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r} is not one of {', '.join(choices)}")
        for name in ("dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1); got {getattr(self, name)}")
        for name in ("hidden", "epochs", "final_decay_epochs", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        for name in ("lr", "head_lr", "weight_decay", "inner_weight_decay", "final_weight_decay", "final_decay_from"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must not be negative; got {value}")
