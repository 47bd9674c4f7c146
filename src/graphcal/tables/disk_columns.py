"""Matrices that lie in a file, for what has a number or more per node and need not be in memory: read and written in parts.

`DiskColumns` (V, N) lies column after column, as the blocks of a table do; `DiskRows` (N, K) row after row. Both read by copying,
not by mapping: what is in memory is what was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class ColumnSource(Protocol):
    """Anything that gives parts of a matrix (V, N)."""

    @property
    def width(self) -> int: ...

    def read(self, rows: slice, columns: slice = slice(None)) -> Array: ...


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
        places = range(*columns.indices(self.width))
        block = np.empty((len(places), last - first), dtype=self.dtype)
        with open(self.path, "rb", buffering=0) as file:
            for column, place in zip(block, places):
                file.seek((place * self.num_rows + first) * block.itemsize)
                file.readinto(column.data)
        return block

    def write(self, first_row: int, block: Array, first_column: int = 0) -> None:
        """A block (v, n) from this row and column on."""
        size = np.dtype(self.dtype).itemsize
        with open(self.path, "r+b", buffering=0) as file:
            for k, column in enumerate(block):
                file.seek(((first_column + k) * self.num_rows + first_row) * size)
                _write_all(file, np.ascontiguousarray(column, dtype=self.dtype))


@dataclass(frozen=True)
class DiskRows:
    """N rows of K single-precision numbers."""

    path: Path
    width: int

    def read(self, first_row: int, count: int) -> Array:
        """(n, K)."""
        at = 4 * self.width * first_row
        values: Array = np.fromfile(self.path, np.float32, self.width * count, offset=at)
        return values.reshape(count, self.width)


def _write_all(file: Any, values: Array) -> None:
    rest = values.data.cast("B")
    while rest:
        rest = rest[file.write(rest) :]
