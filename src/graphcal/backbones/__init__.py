"""Graph neural networks with a replica axis and a final layer named ``head``, one file each.

`BACKBONES` maps a name to its specification, a frozen dataclass; a new backbone is one file and one line here.
"""

from __future__ import annotations

from graphcal.backbones.gcn import GCN
from graphcal.backbones.shape import Replicas, Shape, Spec
from graphcal.backbones.single import SingleModel

BACKBONES: dict[str, type[Spec]] = {"gcn": GCN}


def backbone_of(backbone: str | Spec) -> Spec:
    """The specification with a name, with its defaults, or the specification that is given."""
    if isinstance(backbone, Spec):
        return backbone
    if backbone not in BACKBONES:
        raise ValueError(f"unknown backbone {backbone!r}; choose among {', '.join(BACKBONES)}")
    return BACKBONES[backbone]()


def name_of(spec: Spec) -> str:
    """The name of a specification in `BACKBONES`."""
    names = [name for name, kind in BACKBONES.items() if kind is type(spec)]
    return names[0] if names else type(spec).__name__


__all__ = ["BACKBONES", "GCN", "Replicas", "Shape", "SingleModel", "Spec", "backbone_of", "name_of"]
