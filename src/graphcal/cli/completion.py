"""What a shell completes: names of graphs, protocols, backbones, calibrators and presets, known without waiting for torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files

from graphcal.plugins import announced

BACKBONES = ("gcn", "gat", "sage", "appnp", "sgc", "gcnii", "fagcn", "jknet", "gpn", "mlp")


def complete_dataset(incomplete: str) -> list[str]:
    from graphcal.datasets.catalog import NAMES

    return _matching(incomplete, NAMES)


def complete_protocol(incomplete: str) -> list[str]:
    from graphcal.datasets.protocols import PROTOCOLS

    return _matching(incomplete, PROTOCOLS)


def complete_backbone(incomplete: str) -> list[str]:
    return _matching(incomplete, [*BACKBONES, *announced("backbone")])


def complete_calibrator(incomplete: str) -> list[str]:
    cards = json.loads((files("graphcal") / "methods" / "cards.json").read_text(encoding="utf-8"))
    return _matching(incomplete, [*cards, *announced("calibrator")])


def complete_calibrators(incomplete: str) -> list[str]:
    """Of names separated by commas, the last one."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in complete_calibrator(last)]


def complete_preset(incomplete: str) -> list[str]:
    from graphcal.bench.presets import preset_titles

    return _matching(incomplete, ["list", "status", "archive", "audit", *preset_titles()])


def _matching(start: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(start)]
