"""SCAR's class-centroid-level lever for people with their own model and loop."""

from __future__ import annotations

from typing import Any

from torch import nn


def param_groups(
    model: nn.Module, weight_decay: float, final_weight_decay: float, final: str | nn.Module | None = None
) -> list[dict[str, Any]]:
    """Two optimiser groups: everything else with ``weight_decay``, the final layer with ``final_weight_decay``.

    The final layer is ``final`` (a module or its dotted name), else the attribute ``head``, else the last module with a weight.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    >>> optimizer = torch.optim.Adam(param_groups(model, 5e-4, 1e-4), lr=0.01)
    >>> [group["weight_decay"] for group in optimizer.param_groups]
    [0.0005, 0.0001]
    """
    last = _final_module(model, final)
    last_parameters = {id(p) for p in last.parameters()}
    rest = [p for p in model.parameters() if id(p) not in last_parameters]
    return [
        {"params": rest, "weight_decay": weight_decay},
        {"params": list(last.parameters()), "weight_decay": final_weight_decay},
    ]


def _final_module(model: nn.Module, final: str | nn.Module | None) -> nn.Module:
    names: dict[str, nn.Module] = {name: module for name, module in model.named_modules() if name}
    if isinstance(final, str):
        if final not in names:
            raise ValueError(f"final={final!r} is not a module of {type(model).__name__}; it has {', '.join(names)}")
        return names[final]
    if final is not None:
        if all(final is not module for module in names.values()):
            raise ValueError(f"final={type(final).__name__} is not a module of {type(model).__name__}")
        return final
    head = getattr(model, "head", None)
    if isinstance(head, nn.Module):
        return head
    # A convolution keeps its weight in a Linear inside it: the outermost module that holds the last weight is the layer.
    weighted = [name for name, module in names.items() if getattr(module, "weight", None) is not None]
    if not weighted:
        raise ValueError(f"{type(model).__name__} has no module with a weight; name the final layer with final=")
    name = weighted[-1]
    outer = name.rpartition(".")[0]
    holds_own = outer in names and any(True for _ in names[outer].parameters(recurse=False))
    return names[outer] if holds_own else names[name]
