"""Saved calibrations of older formats, brought into the form of today.

    1   graphcal 0.1: other names of some classes; SCAR in one class, with what its layer says of each centroid in place of
        Gram matrix and bias; nodes of the training set by number
    2   the training set by number, no checksum

Training nodes are forgotten: they were kept by number, which says nothing on another graph. All else gives what it gave.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

OLDER = (1, 2)
RENAMED = {"Gaps": "StretchedGaps", "Steps": "MonotoneCurves"}
REMEMBERS = ("CentroidPull", "GraphPull", "HopPull", "AttentionTemperature", "MixBeforeAttention", "GraphScaled")


def upgraded(
    header: dict[str, Any], tensors: dict[str, Tensor], path: Path
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file of format 1 or 2, as format 3 has them."""
    try:
        described, state = _upgraded(header, dict(tensors), header["format"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, RecursionError) as error:
        raise ValueError(f"{path} has a damaged graphcal header: {type(error).__name__} {error}") from None
    return described, state


def _upgraded(
    header: dict[str, Any], tensors: dict[str, Tensor], form: int
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if header["class"] == "Chosen":  # what `auto` was: the calibration it chose is all that is left of it
        inner = {key.removeprefix("calibration."): t for key, t in tensors.items()}
        chosen = {**header["parts"]["calibration"], "num_classes": header.get("num_classes")}
        return _upgraded(chosen, inner, form)
    if not isinstance(header["settings"], dict):
        raise TypeError("settings are not names with values")
    own = {name: tensors[name] for name in header["tensors"] if name in tensors}
    settings, name = dict(header["settings"]), header["class"]
    absent = [field for field in header["tensors"] if field not in tensors]  # refused later, by name
    if form == 1:
        name, own, settings = _of_format_1(RENAMED.get(name, name), own, settings)
    if own.pop("train_nodes", None) is not None or settings.pop("graph_nodes", None) is not None or name in REMEMBERS:
        settings.pop("graph_nodes", None)
        own["train_keys"] = torch.empty(0, dtype=torch.long)
    if name == "BinnedScales" and "scales" in own:
        own.setdefault("common", own["scales"].mean().reshape(1))
    state, parts = dict(own), {}
    for part, described in header["parts"].items():
        inner = {key.removeprefix(f"{part}."): t for key, t in tensors.items() if key.startswith(f"{part}.")}
        parts[part], inner = _upgraded(described, inner, form)
        state |= {f"{part}.{key}": t for key, t in inner.items()}
    described = {
        "class": name,
        "num_classes": header["num_classes"] if form == 2 else header["classes"],
        "fitted_on": {},
        "settings": settings,
        "tensors": [*own, *absent],
        "parts": parts,
    }
    return described, state


def _of_format_1(
    name: str, tensors: dict[str, Tensor], settings: dict[str, Any]
) -> tuple[str, dict[str, Tensor], dict[str, Any]]:
    if name == "NodeScaleGCN":
        return ("SoftplusScaleGCN" if settings.pop("link") == "softplus" else name), tensors, settings
    if name != "CentroidPull":
        return name, tensors, settings
    scale, pull = tensors["scale"], tensors["pull"]
    layer = {"gram": tensors["targets"].T.contiguous(), "bias": torch.zeros_like(tensors["targets"][0])}
    kept = {"guarded": settings["keep_predictions"], "note": settings["note"]}
    if settings["form"] == "graph":
        units = {"mean": tensors["centre"], "std": tensors["spread"]}
        return "GraphPull", {"scale": scale, "pull": pull, **units, **layer}, kept
    if settings["form"] == "hop":
        return "HopPull", {"hop_weights": pull, **layer}, {"note": settings["note"]}
    weights = {"alpha": pull[0].clone(), "beta": pull[-1].clone(), "scale": scale[0].clone()}
    return "CentroidPull", {**weights, **layer}, {**kept, "temperature": not settings["blend"]}
