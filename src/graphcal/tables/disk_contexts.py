"""What a graph-aware calibration reads off the graph around every row, with logits and edges in files.

The facts of `graphcal.engine.graph_columns`, whose formulas are used as they are, from sums over neighbours that are computed
block by block (`graphcal.tables.edge_blocks`). In memory are parts of a few columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcal.core import Calibration
from graphcal.engine.graph_columns import context_rows, feature_rows, log_opinion, mean_of
from graphcal.methods.graph_scaling import GraphScaled
from graphcal.methods.rbs import BinnedScales
from graphcal.methods.scar import NEAR, TRAINING, CentroidPull
from graphcal.tables.disk_columns import ColumnSource, DiskColumns
from graphcal.tables.edge_blocks import EdgeBlocks, degrees, neighbour_sum, reached, returning

ROWS = 1 << 15  # whose facts are put together at once

Array = NDArray[Any]
Progress = Callable[[str, int, int], None] | None


@dataclass(frozen=True)
class OneHot:
    """Predictions (1, N) as C columns of zeros and ones."""

    pred: DiskColumns
    width: int

    def read(self, rows: slice, columns: slice = slice(None)) -> Array:
        classes = np.arange(self.width)[columns]
        one: Array = self.pred.read(rows) == classes[:, None]
        return one.astype(np.float64)


@dataclass(frozen=True)
class Means:
    """Sums (V, N) over neighbours divided by their number; a node without neighbours has its own value."""

    sums: DiskColumns
    degree: DiskColumns
    own: ColumnSource

    @property
    def width(self) -> int:
        return self.sums.width

    def read(self, rows: slice, columns: slice = slice(None)) -> Array:
        degree = self.degree.read(rows)
        mean: Array = self.sums.read(rows, columns) / np.maximum(degree, 1)
        alone = degree[0] == 0
        if alone.any():
            mean[:, alone] = self.own.read(rows, columns)[:, alone]
        return mean


@dataclass(frozen=True, eq=False)
class DiskGraph:
    """Logits (C, N), edges and training set of a table, in files; its facts are computed when first asked for."""

    logits: DiskColumns
    edges: EdgeBlocks
    train: DiskColumns | None  # (1, N)
    folder: Path
    workers: int = 1
    progress: Progress = None

    @property
    def num_nodes(self) -> int:
        return self.logits.num_rows

    def parts(self) -> list[slice]:
        return [slice(at, min(at + ROWS, self.num_nodes)) for at in range(0, self.num_nodes, ROWS)]

    def mapped(self, name: str, width: int, of: Callable[[Tensor], Tensor], dtype: str = "float32") -> DiskColumns:
        """A function of the logits (n, C) -> (n, V), for all nodes."""
        out = DiskColumns.make(self.folder / name, width, self.num_nodes, dtype)
        for rows in self.parts():
            out.write(rows.start, of(self.logits_of(rows)).T.numpy())
        return out

    def sums(self, name: str, values: ColumnSource) -> DiskColumns:
        return neighbour_sum(self.edges, values, self.folder / name, self.workers, self.progress)

    def logits_of(self, rows: slice) -> Tensor:
        return turned(self.logits, rows)  # (n, C)

    def train_of(self, rows: slice) -> Tensor:
        if self.train is None:
            return torch.zeros(rows.stop - rows.start, dtype=torch.bool)
        return turned(self.train, rows)[:, 0] != 0  # (n,)

    def near_of(self, rows: slice) -> Tensor:
        """Next to the training set."""
        return torch.zeros_like(self.train_of(rows)) if self.train is None else turned(self.near, rows)[:, 0] != 0

    @cached_property
    def near(self) -> DiskColumns:
        assert self.train is not None
        return reached(self.edges, self.train, self.folder / "near")

    @cached_property
    def degree(self) -> DiskColumns:
        return degrees(self.edges, self.folder / "degree")

    @cached_property
    def returning(self) -> DiskColumns:
        return returning(self.edges, self.folder / "returning")

    @cached_property
    def predicted(self) -> OneHot:
        pred = self.mapped("pred", 1, lambda z: z.argmax(-1, keepdim=True), "int32")
        return OneHot(pred, self.logits.width)

    @cached_property
    def agreement(self) -> Means:
        """(C, N) shares of neighbours by predicted class."""
        return Means(self.sums("predictions", self.predicted), self.degree, self.predicted)

    @cached_property
    def second_agreement(self) -> Means:
        return Means(self.sums("agreement", self.agreement), self.degree, self.agreement)

    @cached_property
    def confidences(self) -> Means:
        """(C + 1, N) mean probabilities and confidence of the neighbours."""
        classes = self.logits.width

        def with_top(z: Tensor) -> Tensor:
            probs = z.softmax(-1)
            return torch.cat([probs, probs.amax(-1, keepdim=True)], -1)

        own = self.mapped("own-probs", classes + 1, with_top)
        return Means(self.sums("probs", own), self.degree, own)

    def features_of(self, rows: slice) -> Tensor:
        """`graphcal.engine.graph_columns.node_features` of some nodes."""  # (n, 8)
        one, two, around = (turned(m, rows).float() for m in (self.agreement, self.second_agreement, self.confidences))
        degree = turned(self.degree, rows)[:, 0].long()
        probs, conf = around[:, :-1], around[:, -1:]
        return feature_rows(self.logits_of(rows), one, two, probs, conf, degree, self.near_of(rows))


def turned(values: ColumnSource, rows: slice) -> Tensor:
    """(n, V) of columns."""
    return torch.from_numpy(np.ascontiguousarray(values.read(rows).T))


Context = tuple[int, Callable[[slice], Tensor]]  # numbers per node, and those of some nodes (n, K)


def is_known_on_disk(calibration: Calibration) -> bool:
    """Whether `context_on_disk` knows what it reads; labels of neighbours are known of one graph, in memory."""
    known = isinstance(calibration, CentroidPull | BinnedScales | GraphScaled)
    return known and not getattr(calibration, "reads_labels", False)


def context_on_disk(calibration: Calibration, graph: DiskGraph) -> Context:
    """What a calibration reads off the graph: `Calibration.context`, in parts."""
    if isinstance(calibration, CentroidPull):
        return 1, lambda rows: (NEAR * graph.near_of(rows) + TRAINING * graph.train_of(rows))[:, None]
    if isinstance(calibration, BinnedScales):
        return 1, lambda rows: turned(graph.agreement, rows).gather(1, graph.logits_of(rows).argmax(-1, keepdim=True))
    assert isinstance(calibration, GraphScaled)
    return calibration.layout.context, stacked_context(calibration, graph)


def stacked_context(calibration: GraphScaled, graph: DiskGraph) -> Callable[[slice], Tensor]:
    """The context of graph scaling; see `graphcal.engine.graph_columns.read_context`."""
    scale = calibration.scale.double()
    own = graph.mapped("own-opinions", graph.logits.width, lambda z: (scale * z.double()).softmax(-1))
    first = graph.sums("opinions", own)
    second = graph.sums("second-opinions", first)
    walks = graph.sums("walks", graph.degree)  # of length two
    any_training = graph.train is not None and any(bool(graph.train_of(rows).any()) for rows in graph.parts())

    def rows_of(rows: slice) -> Tensor:
        degree, back = turned(graph.degree, rows), turned(graph.returning, rows)
        one = torch.cat([turned(first, rows), degree], 1)
        two = torch.cat([turned(second, rows), turned(walks, rows)], 1)
        two -= back * torch.cat([turned(own, rows).double(), torch.ones_like(back)], 1)  # walks that do not return
        opinions = [log_opinion(mean_of(sums)) for sums in (one, two)]
        unplaced = graph.train_of(rows) | (not any_training)
        return context_rows(graph.features_of(rows), degree[:, 0] == 0, opinions, unplaced, calibration.alone_is_known)

    return rows_of
