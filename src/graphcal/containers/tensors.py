"""Files of torch.save, opened so that nothing in them can run: a zip archive of announced size, `weights_only`, plain tensors."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from graphcal.files import WORKING, check_archive, check_memory, reading

ASKED = re.compile(r"(?:Unsupported global: GLOBAL|Trying to load unsupported GLOBAL) (\S+)")


def load_safely(path: Path, known: Sequence[type] = (), instead: str = "save tensors alone") -> Any:
    """What a file of torch.save holds; classes beside tensors and plain containers must be ``known``."""
    with reading(path, "a file of torch.save (since torch 1.6: a zip archive)"), zipfile.ZipFile(path) as archive:
        check_archive(path, archive)
    try:
        with torch.serialization.safe_globals(list(known)):
            return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as fault:  # of any class: the file decides what goes wrong
        asked = ASKED.search(str(fault))
        said = next(iter(str(fault).splitlines()), "") or type(fault).__name__
        reason = f"it asks for {asked[1]}" if asked else f"it is not a sound file of torch.save ({said})"
        raise ValueError(f"{path}: cannot be opened safely: {reason}; {instead}") from fault


def check_tensor(value: Any, name: str, path: Path, sparse: bool = False) -> torch.Tensor:
    """A plain tensor on the CPU, no larger than its file may make it; CSR too with ``sparse``."""
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{path}: {name} is a {type(value).__name__}, expected a tensor")
    plain = value.device.type == "cpu" and not value.is_quantized and not value.is_complex()
    layouts = (torch.strided, torch.sparse_csr) if sparse else (torch.strided,)
    if type(value) is not torch.Tensor or not plain or value.layout not in layouts:
        which = "a plain one, or CSR" if sparse else "a plain one"
        raise ValueError(f"{path}: {name} is a {value.layout} tensor of {value.dtype}; expected {which}")
    if value.layout == torch.strided:
        check_memory(path, WORKING * value.numel(), f"{name} of shape {tuple(value.shape)}")
    return value.detach()
