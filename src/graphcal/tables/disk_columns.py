"""Matrices (V, N) in a file, column after column as in the blocks of a table; read and written in parts.

Parts are copied, not mapped: in memory is only the part that is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class DiskColumns:
    """V columns of N numbers."""

    path: Path
    width: int
    num_rows: int
    dtype: str = "float32"

    @classmethod
    def make(cls, path: Path, width: int, num_rows: int, dtype: str = "float32") -> DiskColumns:
        """A matrix of zeros."""
        with open(path, "wb") as file:
            file.truncate(width * num_rows * np.dtype(dtype).itemsize)
        return cls(path, width, num_rows, dtype)

    def read(self, rows: slice, columns: slice = slice(None)) -> Array:
        """(v, n) of some rows and columns."""
        first, last, _ = rows.indices(self.num_rows)
        numbers = range(*columns.indices(self.width))
        block = np.empty((len(numbers), last - first), dtype=self.dtype)
        with open(self.path, "rb", buffering=0) as file:
            for column, number in zip(block, numbers):
                file.seek((number * self.num_rows + first) * block.itemsize)
                file.readinto(column.data)
        return block

    def write(self, first_row: int, block: Array, first_column: int = 0) -> None:
        """A block (v, n) from this row and column on."""
        size = np.dtype(self.dtype).itemsize
        with open(self.path, "r+b", buffering=0) as file:
            for k, column in enumerate(block):
                file.seek(((first_column + k) * self.num_rows + first_row) * size)
                _write_all(file, np.ascontiguousarray(column, dtype=self.dtype))


def _write_all(file: Any, values: Array) -> None:
    rest = values.data.cast("B")
    while rest:
        rest = rest[file.write(rest) :]
