"""Read npz files and files of torch.save that hold plain arrays. Nothing in them can run code: no pickles, ``weights_only``.

Sizes that a file announces are held against the limits of `graphcal.files` before memory is taken.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcal.files import WORKING, check_archive, check_memory, check_regular, file_errors

if TYPE_CHECKING:
    import torch

CLASS_IN_FILE = re.compile(r"(?:Unsupported global: GLOBAL|Trying to load unsupported GLOBAL) (\S+)")


def read_arrays(
    path: str | os.PathLike[str], names: Collection[str] | None = None
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Read the arrays ``names`` of an npz file (default: all), as far as they are there, and list all names it has."""
    check_regular(path)
    with file_errors(path, "a readable .npz file of plain arrays"):
        with zipfile.ZipFile(path) as archive:
            check_archive(path, archive)
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            wanted = [name for name in members if names is None or name in names]
            entries = sum(_entries(archive, members[name]) for name in wanted)
        check_memory(path, WORKING * entries, f"its {entries:,} numbers")
        with np.load(path, allow_pickle=False) as file:
            return {name: _native(file[name]) for name in wanted}, list(members)


def _native(values: np.ndarray) -> np.ndarray:
    """Convert to this machine's byte order; half precision becomes single, which sparse matrices support."""
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _entries(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Count the numbers that the header of an array announces; refuse more than the member has bytes for."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize > member.file_size:
        raise ValueError(f"{member.filename} announces shape {shape} in {member.file_size} bytes")
    return count


def load_safely(path: Path, classes: Sequence[type] = (), instead: str = "save tensors alone") -> Any:
    """Load a file of torch.save that holds tensors, plain containers and objects of ``classes``."""
    import torch

    with file_errors(path, "a file of torch.save (since torch 1.6: a zip archive)"), zipfile.ZipFile(path) as archive:
        check_archive(path, archive)
    try:
        with torch.serialization.safe_globals(list(classes)):
            return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as fault:  # of any class: the file decides what goes wrong
        other = CLASS_IN_FILE.search(str(fault))
        text = next(iter(str(fault).splitlines()), "") or type(fault).__name__
        reason = f"it asks for {other[1]}" if other else f"it is not a sound file of torch.save ({text})"
        raise ValueError(f"{path}: cannot be opened safely: {reason}; {instead}") from fault


def check_tensor(value: Any, name: str, path: Path, sparse: bool = False) -> torch.Tensor:
    """Check that a value is a plain tensor on the CPU, no larger than its file may make it; CSR too with ``sparse``."""
    import torch

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
