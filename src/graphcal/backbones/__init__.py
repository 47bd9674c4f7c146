"""Graph neural networks with a replica axis and a final layer named ``head``, one file each.

`BACKBONES` maps a name to its specification, a frozen dataclass; a new backbone is one file and one line here.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from graphcal.backbones.appnp import APPNP
from graphcal.backbones.fagcn import FAGCN
from graphcal.backbones.gat import GAT
from graphcal.backbones.gat_cagcn import GATofCaGCN
from graphcal.backbones.gcn import GCN
from graphcal.backbones.gcnii import GCNII
from graphcal.backbones.gpn import GPN
from graphcal.backbones.jknet import JKNet
from graphcal.backbones.mlp import MLP
from graphcal.backbones.sage import GraphSAGE
from graphcal.backbones.sgc import SGC
from graphcal.backbones.shape import Replicas, Shape, Spec
from graphcal.backbones.single import SingleModel

BACKBONES: dict[str, type[Spec]] = {
    "gcn": GCN,
    "gat": GAT,
    "gat-cagcn": GATofCaGCN,
    "gcnii": GCNII,
    "fagcn": FAGCN,
    "sage": GraphSAGE,
    "appnp": APPNP,
    "sgc": SGC,
    "mlp": MLP,
    "jknet": JKNet,
    "gpn": GPN,
}


def backbone_of(backbone: str | Spec) -> Spec:
    """The specification with a name, with its defaults, or the specification that is given.

    Other packages announce theirs by an entry point in the group ``graphcal.backbones``."""
    if isinstance(backbone, Spec):
        return backbone
    if backbone in BACKBONES:
        return BACKBONES[backbone]()
    announced = {point.name: point for point in entry_points(group="graphcal.backbones")}
    if backbone in announced:
        return announced[backbone].load()()
    choices = ", ".join([*BACKBONES, *sorted(announced)])
    raise ValueError(f"unknown backbone {backbone!r}; choose among {choices}")


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
    "GATofCaGCN",
    "GraphSAGE",
    "JKNet",
    "Replicas",
    "Shape",
    "SingleModel",
    "Spec",
    "backbone_of",
    "name_of",
]
