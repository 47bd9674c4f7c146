"""Sums over neighbours for graphs that do not fit in memory: `graphcal.graphs.GraphSums` with its columns and edges in files.

*Columns* (V, N) lie in a file one after the other, as in the blocks of a table. Parts are copied, not mapped: in memory is only
the part that is read.

*Edges* are cut into square blocks of the adjacency matrix.

    block (i, j)    edges from nodes of part i to nodes of part j, as sorted numbers (row << bits | column), each once, no loops

A sum over neighbours takes part i of the result and adds block (i, j) times part j of the values, for every j: in memory are one
part of a few columns, twice, and one block (Zhu et al., GridGraph, USENIX ATC 2015). Parts have 2^20 nodes or fewer, so that a
block has some two million edges where they are spread evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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


BITS = 20  # of a node's place in its part, at most
FEWEST_BITS = 10
EDGES = 1 << 21  # in a block
GATHERED = 1 << 20  # edges, before they are written
COLUMNS = 8  # that are summed at once


@dataclass(frozen=True)
class EdgeBlocks:
    """The blocks of one graph in a folder."""

    folder: Path
    num_nodes: int
    bits: int

    @property
    def parts(self) -> int:
        return max(1, -(-self.num_nodes >> self.bits))

    def nodes(self, part: int) -> slice:
        return slice(part << self.bits, min((part + 1) << self.bits, self.num_nodes))

    def size(self, part: int) -> int:
        return int(self.nodes(part).stop - self.nodes(part).start)

    def path(self, i: int, j: int) -> Path:
        return self.folder / f"{i}-{j}.edges"

    def keys(self, i: int, j: int) -> Array:
        """The edges of a block, (e,) int64."""
        path = self.path(i, j)
        return np.fromfile(path, np.int64) if path.exists() else np.empty(0, np.int64)

    def ends(self, keys: Array) -> tuple[Array, Array]:
        """Both ends of edges, as places in their parts."""
        return keys >> self.bits, keys & ((1 << self.bits) - 1)

    def matrix(self, i: int, j: int) -> Any:
        """A block as a sparse matrix of ones; None where it has no edges."""
        from scipy.sparse import csr_matrix

        keys = self.keys(i, j)
        if not len(keys):
            return None
        starts = np.zeros(self.size(i) + 1, dtype=np.int32)
        np.cumsum(np.bincount(keys >> self.bits, minlength=self.size(i)), out=starts[1:])
        columns = (keys & ((1 << self.bits) - 1)).astype(np.int32)
        return csr_matrix((np.ones(len(keys)), columns, starts), (self.size(i), self.size(j)))


def write_blocks(
    folder: Path,
    num_nodes: int,
    edges: Iterable[tuple[Array, Array]],
    expected: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> EdgeBlocks:
    """The blocks of edges that come in pieces, both ends as node numbers; about how many are ``expected`` sets their size."""
    bits = BITS
    while bits > FEWEST_BITS and max(1, -(-num_nodes >> bits)) ** 2 * EDGES < expected:
        bits -= 1
    folder.mkdir()
    blocks = EdgeBlocks(folder, num_nodes, bits)
    for piece in gathered(edges, GATHERED):
        _append(blocks, *piece)
    for part in range(blocks.parts):
        if progress:
            progress("sorting edges", part, blocks.parts)
        for j in range(blocks.parts):
            keys = blocks.keys(part, j)
            if len(keys):
                keys.sort()
                keys[np.diff(keys, prepend=-1) != 0].tofile(blocks.path(part, j))
    return blocks


def gathered(edges: Iterable[tuple[Array, Array]], count: int) -> Iterator[tuple[Array, Array]]:
    """The same edges in pieces of about ``count``."""
    held: list[tuple[Array, Array]] = []
    for piece in edges:
        held.append(piece)
        if sum(len(source) for source, _ in held) >= count:
            yield np.concatenate([s for s, _ in held]), np.concatenate([t for _, t in held])
            held = []
    if held:
        yield np.concatenate([s for s, _ in held]), np.concatenate([t for _, t in held])


def _append(blocks: EdgeBlocks, source: Array, target: Array) -> None:
    apart = source != target
    source, target, bits = source[apart], target[apart], blocks.bits
    block = (source >> bits) * blocks.parts + (target >> bits)
    low = (1 << bits) - 1
    keys = (block << 2 * bits) | ((source & low) << bits) | (target & low)
    keys.sort()
    present = np.unique(keys >> 2 * bits)
    ends = [*np.searchsorted(keys, present << 2 * bits), len(keys)]
    for number, first, last in zip(present.tolist(), ends, ends[1:]):
        with open(blocks.path(*divmod(number, blocks.parts)), "ab") as file:
            (keys[first:last] & ((1 << 2 * bits) - 1)).tofile(file)


def degrees(blocks: EdgeBlocks, to: Path) -> DiskColumns:
    """Number of neighbours of every node, (1, N)."""
    out = DiskColumns.make(to, 1, blocks.num_nodes, "float64")
    for i in range(blocks.parts):
        counts = [np.bincount(blocks.ends(blocks.keys(i, j))[0], minlength=blocks.size(i)) for j in range(blocks.parts)]
        out.write(blocks.nodes(i).start, np.sum(counts, axis=0)[None])
    return out


def reciprocal_degree(blocks: EdgeBlocks, to: Path) -> DiskColumns:
    """Edges of every node that exist in both directions, (1, N)."""
    out = DiskColumns.make(to, 1, blocks.num_nodes, "float64")
    for i in range(blocks.parts):
        total = np.zeros(blocks.size(i))
        for j in range(blocks.parts):
            there, back = blocks.keys(i, j), blocks.keys(j, i)
            rows, columns = blocks.ends(back)
            both = np.intersect1d(there, (columns << blocks.bits) | rows, assume_unique=True)
            total += np.bincount(blocks.ends(both)[0], minlength=blocks.size(i))
        out.write(blocks.nodes(i).start, total[None])
    return out


def reached(blocks: EdgeBlocks, start: DiskColumns, to: Path) -> DiskColumns:
    """1 at the nodes outside ``start`` (1, N) that an edge from it leads to, (1, N)."""
    out = DiskColumns.make(to, 1, blocks.num_nodes, "uint8")
    for j in range(blocks.parts):
        seen = np.zeros(blocks.size(j), dtype=bool)
        for i in range(blocks.parts):
            rows, columns = blocks.ends(blocks.keys(i, j))
            seen[columns[start.read(blocks.nodes(i))[0][rows] != 0]] = True
        out.write(blocks.nodes(j).start, (seen & (start.read(blocks.nodes(j))[0] == 0))[None])
    return out


def neighbour_sum(
    blocks: EdgeBlocks,
    values: DiskColumns,
    to: Path,
    workers: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> DiskColumns:
    """Sums of values (V, N) over the neighbours of every node, in double precision."""
    out = DiskColumns.make(to, values.width, blocks.num_nodes, "float64")
    groups = [slice(c, min(c + COLUMNS, values.width)) for c in range(0, values.width, COLUMNS)]
    with ThreadPoolExecutor(workers) as pool:
        for k, group in enumerate(groups):
            for i in range(blocks.parts):
                if progress:
                    progress(f"summing over neighbours, {to.stem}", k * blocks.parts + i, len(groups) * blocks.parts)
                total = np.zeros((group.stop - group.start, blocks.size(i)))
                for j in range(blocks.parts):
                    matrix = blocks.matrix(i, j)
                    if matrix is not None:
                        part = values.read(blocks.nodes(j), group)
                        list(pool.map(_add_product, [matrix] * len(part), part, total))
                    del matrix  # before the next one is made
                out.write(blocks.nodes(i).start, total, group.start)
    return out


def _add_product(matrix: Any, values: Array, total: Array) -> None:
    total += matrix @ values.astype(np.float64, copy=False)


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
        return reciprocal_degree(self.edges, self._path("reciprocal"))

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
