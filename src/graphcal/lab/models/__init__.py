"""Graph neural networks with a replica axis and a final layer named ``head``.

`BACKBONES` maps a name to its `Backbone`, a frozen dataclass of settings; a new one is one class and one line here.
"""

from __future__ import annotations

from graphcal.lab.models.gat import GAT
from graphcal.lab.models.gpn import GPN
from graphcal.lab.models.layered import GCN, MLP, SGC, GraphSAGE, JKNet
from graphcal.lab.models.replicas import Backbone, ModelConfig, ModelOnGraph, Replicas, TrainedGNN
from graphcal.lab.models.residual import APPNP, FAGCN, GCNII
from graphcal.plugins import Names

BACKBONES: Names[type[Backbone]] = Names(
    "backbone",
    {
        "gcn": GCN,
        "gat": GAT,
        "gcnii": GCNII,
        "fagcn": FAGCN,
        "sage": GraphSAGE,
        "appnp": APPNP,
        "sgc": SGC,
        "mlp": MLP,
        "jknet": JKNet,
        "gpn": GPN,
    },
    method="build",
    signature="build(config, generators): it is not a backbone",
)


def backbone_of(backbone: str | Backbone) -> Backbone:
    """The backbone with a name, with its defaults, or the one that is given."""
    return BACKBONES[backbone]() if isinstance(backbone, str) else backbone


def name_of(backbone: Backbone) -> str:
    """The name of a backbone in `BACKBONES`; of one that is not there, its class's."""
    names = [name for name, kind in BACKBONES.items() if kind is type(backbone)]
    return names[0] if names else type(backbone).__name__


__all__ = [
    "APPNP",
    "BACKBONES",
    "FAGCN",
    "GAT",
    "GCN",
    "GCNII",
    "GPN",
    "MLP",
    "SGC",
    "Backbone",
    "GraphSAGE",
    "JKNet",
    "ModelConfig",
    "ModelOnGraph",
    "Replicas",
    "TrainedGNN",
    "backbone_of",
    "name_of",
]
