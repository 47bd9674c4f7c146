"""Graph neural networks with a replica axis and a final layer named ``head``, one file each.

`BACKBONES` maps a name to its specification, a frozen dataclass; a new backbone is one file and one line here.
"""

from __future__ import annotations

from graphcal.models.appnp import APPNP
from graphcal.models.config import Replicas, Shape, Spec
from graphcal.models.fagcn import FAGCN
from graphcal.models.gat import GAT
from graphcal.models.gcn import GCN
from graphcal.models.gcnii import GCNII
from graphcal.models.gpn import GPN
from graphcal.models.jknet import JKNet
from graphcal.models.mlp import MLP
from graphcal.models.sage import GraphSAGE
from graphcal.models.sgc import SGC
from graphcal.models.trained import OnGraph, SingleModel
from graphcal.plugins import Names

BACKBONES: Names[type[Spec]] = Names(
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
    signature="build(shape, generators): it is not a specification of a backbone",
)


def backbone_of(backbone: str | Spec) -> Spec:
    """The specification with a name, with its defaults, or the specification that is given."""
    return BACKBONES[backbone]() if isinstance(backbone, str) else backbone


def name_of(spec: Spec) -> str:
    """The name of a specification in `BACKBONES`."""
    names = [name for name, kind in BACKBONES.items() if kind is type(spec)]
    return names[0] if names else type(spec).__name__


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
    "GraphSAGE",
    "JKNet",
    "OnGraph",
    "Replicas",
    "Shape",
    "SingleModel",
    "Spec",
    "backbone_of",
    "name_of",
]
