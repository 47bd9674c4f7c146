"""Sums over neighbours for graphs that do not fit in memory: `graphcal.graphs.GraphSums` with its columns in files.

Every call works through blocks of rows, or blocks of edges (`graphcal.tables.edge_blocks`), and writes one file of columns. In
memory are a block of each column that is read and of the one that is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphcal.tables.disk_columns import DiskColumns
from graphcal.tables.edge_blocks import EdgeBlocks, degrees, neighbour_sum, reached, returning

ROWS = 1 << 15  # of one call of a function

Progress = Callable[[str, int, int], None] | None


@dataclass(frozen=True, eq=False)
class DiskSums:
    """`GraphSums` of edges and a training set in files."""

    edges: EdgeBlocks
    training: DiskColumns | None  # (1, N) 1 at training nodes
    folder: Path  # for the columns
    workers: int = 1
    progress: Progress = None
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def num_nodes(self) -> int:
        return self.edges.num_nodes

    @cached_property
    def degree(self) -> DiskColumns:
        return degrees(self.edges, self._path("degree"))

    @cached_property
    def reciprocal(self) -> DiskColumns:
        return returning(self.edges, self._path("reciprocal"))

    @cached_property
    def train(self) -> DiskColumns:
        return self._flags(self.training)

    @cached_property
    def near(self) -> DiskColumns:
        return self._flags(self.training and reached(self.edges, self.training, self._path("near")))

    def _flags(self, flags: DiskColumns | None) -> DiskColumns:
        if self.training is None or not any(self.training.read(part).any() for part in self._parts()):
            return self.rows(lambda degree: torch.full_like(degree, torch.nan), self.degree)
        return self.rows(lambda flag: flag.double(), flags)

    def neighbour_sum(self, values: DiskColumns) -> DiskColumns:
        return neighbour_sum(self.edges, values, self._path("sums"), self.workers, self.progress)

    def rows(self, function: Callable[..., Tensor], *values: DiskColumns | None) -> DiskColumns:
        out, path = None, self._path("rows")
        for part in self._parts():
            if self.progress:
                self.progress("reading neighbourhoods", part.start, self.num_nodes)
            with torch.inference_mode():
                result = function(*(_tensor(column, part) for column in values if column is not None)).T.numpy()
            out = out or DiskColumns.make(path, len(result), self.num_nodes, str(result.dtype))
            out.write(part.start, result)
        assert out is not None
        return out

    def _parts(self) -> list[slice]:
        return [slice(at, min(at + ROWS, self.num_nodes)) for at in range(0, max(self.num_nodes, 1), ROWS)]

    def _path(self, name: str) -> Path:
        return self.folder / f"{next(self._numbers):03d}-{name}"


def _tensor(columns: DiskColumns, rows: slice) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(columns.read(rows).T))  # (n, V)
