"""`read_table`: predictions of any engine, in any layout, with their labels and their split, as one `PredictionTable`.

    table = read_table("preds/", source="graphstorm", labels="labels.parquet")
    table.logits (N, C), table.y (N,), table.ids, table.classes, table.split, table.notes

A row is a node. What is missing, repeated or unknown is counted and said in ``notes``; what would be a guess is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from graphcal.tables.blocks import scores_of
from graphcal.tables.classes import Classes, class_order, declared
from graphcal.tables.joining import duplicates, row_ids
from graphcal.tables.kinds import Kind, kind_of
from graphcal.tables.labelling import chosen_split, joined_labels, label_names, labels_and_split
from graphcal.tables.layouts import TableLayout, find_layout, is_calibrated
from graphcal.tables.pivots import long_block, long_rows, top_label_block, top_label_classes
from graphcal.tables.shards import one_table
from graphcal.tables.sources import Source, source_of
from graphcal.tables.splits import RowSplit
from graphcal.tables.table_checks import (
    check_classes,
    check_columns_given,
    check_kind,
    check_predictions,
    check_shards,
    remark_on_order,
)
from graphcal.tables.table_metadata import remembered
from graphcal.tables.times import is_time, times_of


@dataclass(frozen=True, eq=False)
class PredictionTable:
    """Predictions with what is known of them. Row k of every field is row k of the files."""

    ids: pa.Array  # (N,) int64 or text; of edges both ends, "a -> b"; row numbers where the table has none
    logits: Tensor  # (N, C) probabilities and log-probabilities as log p
    y: Tensor | None  # (N,) class numbers, -1 where there is no label
    classes: tuple[str, ...]
    split: RowSplit | None
    kind: Kind
    layout: TableLayout
    source: Source
    rows: pa.Table  # the other columns
    notes: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()  # of label and split, what came from other files
    numbered: bool = False  # labels may be numbers, 0 the first of the classes: their order was given

    @property
    def log_probs(self) -> Tensor:
        return self.logits.log_softmax(-1)  # (N, C)

    @property
    def labels(self) -> Tensor:
        """y, or a refusal where no row has a label."""  # (N,)
        if self.y is None:
            raise ValueError(
                f"{self.source.shards[0]}: no column with the labels; give a table of id and label with --labels, or name the "
                "column with --columns label=NAME"
            )
        if not bool((self.y >= 0).any()):
            raise ValueError(f"{self.source.shards[0]}: no row has a label")
        return self.y

    @property
    def labelled(self) -> Tensor:
        return self.labels >= 0  # (N,) bool

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the table that holds no scores."""
        if name not in self.rows.column_names:
            raise ValueError(
                f"{self.source.shards[0]}: no column {name!r}; the columns are {', '.join(self.rows.column_names)}"
            )
        return self.rows[name]

    def times(self, name: str = "") -> np.ndarray | None:
        """Times (N,) from the column ``name``, or from the first column of dates or timestamps; None where there is none."""
        if name:
            return times_of(self.column(name), name, self.source.shards[0])
        dated = [field.name for field in self.rows.schema if is_time(field.type)]
        return times_of(self.rows[dated[0]], dated[0], self.source.shards[0], missing=True) if dated else None

    @property
    def num_rows(self) -> int:
        return len(self.logits)

    @property
    def num_classes(self) -> int:
        return len(self.classes)


def read_table(
    path: str | Path,
    kind: str | None = None,
    layout: str | None = None,
    classes: str | Sequence[str] | None = None,
    labels: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    split: str | Path | None = None,
    source: str | None = None,
) -> PredictionTable:
    """Read predictions, a file or a folder of shards, with their labels and their split.

    ``kind`` is logits, log-probs or probs, where the columns' names do not say it. ``classes`` names the classes in the order of
    the scores. ``labels`` is a table of id, label and, if it likes, split. ``split`` is a column or a file of ids. ``columns``
    gives columns of other names: {"id": "paper", "label": "topic"}. ``source`` is the engine that wrote the files.
    """
    try:
        return _read_table(path, kind, layout, classes, labels, columns, split, source)
    except Exception as fault:  # of any class: a broken file decides what a library raises
        if isinstance(fault, ValueError | OSError) and not isinstance(fault, pa.ArrowException):
            raise
        raise ValueError(
            f"{path}: cannot be read as a table of predictions ({type(fault).__name__}: {fault})"
        ) from fault


def _read_table(
    path: str | Path,
    kind: str | None,
    layout: str | None,
    classes: str | Sequence[str] | None,
    labels: str | Path | None,
    columns: Mapping[str, str] | None,
    split: str | Path | None,
    source: str | None,
) -> PredictionTable:
    files = source_of(path, source)
    tables = [files.read(shard) for shard in files.shards]
    names = declared(classes)
    check_shards(tables, files, names is not None)
    schema = next(table.schema for table in tables if table.num_rows)
    our_classes, numbered, our_columns = remembered(schema)
    given = {**files.columns, **our_columns, **(columns or {})}
    found = find_layout(schema, kind or files.kind, layout, given, names, files.shards[0])
    check_kind(found, kind, files.shards[0])
    if names is None and is_calibrated(found) and (found.names is None or numbered):
        names = our_classes
    check_classes(tables, found, files.shards)
    check_columns_given(columns or {}, schema, labels, split, files.shards[0])
    notes = list(files.notes)
    scores, order, rows = assembled(tables, found, names, files.shards, label_names(tables, found, labels, columns))
    what = kind_of(found.kind, scores, path)
    logits = torch.from_numpy(np.ascontiguousarray(what.logits(scores, path).T))
    ids, has_ids = ids_of(rows, found, path, len(logits))
    if has_ids and duplicates(ids):
        notes.append(f"{duplicates(ids):,} rows repeat an id")
    check_predictions(rows, found, scores, order, path)
    y, parts = labels_and_split(rows, found, order, path, columns or {})
    joined = []
    if labels is not None:
        joined.append("label")
        y, labels_parts, said = joined_labels(Path(labels), ids, has_ids, order, columns or {})
        if labels_parts is not None:
            joined.append("split")
            parts = labels_parts
        notes += said
    if split is not None:
        joined.append("split")
        parts, said = chosen_split(split, rows, parts, ids, y, labels, columns or {})
        notes += said
    notes += remark_on_order(logits, y)
    return PredictionTable(
        ids, logits, None if y is None else torch.from_numpy(y), order.names, parts, what, found, files, rows, tuple(notes),
        tuple(joined), order.declared,
    )  # fmt: skip


def assembled(
    tables: Sequence[pa.Table],
    layout: TableLayout,
    names: tuple[str, ...] | None,
    shards: Sequence[Path],
    labels: Sequence[pa.ChunkedArray],
) -> tuple[np.ndarray, Classes, pa.Table]:
    """Scores (C, N), the classes in their order, and the table's other columns, one row per prediction."""
    if layout.form == "long":
        whole = one_table(tables)
        scores, order = long_block(whole, layout, names, shards[0])
        return scores, order, long_rows(whole, layout)
    scored = set(layout.scores) if layout.form != "top-label" else set()
    others = [name for name in tables[0].column_names if name not in scored]
    rows = one_table([table.select(others) for table in tables])
    if layout.form == "top-label":
        order = top_label_classes(rows, layout, names, labels, shards[0])
        return top_label_block(rows, layout, order, shards[0]), order, rows
    blocks, width = [], None
    for shard, table in zip(shards, tables):
        blocks.append(scores_of(table, layout, shard, width))
        width = len(blocks[-1]) if table.num_rows else width
    scores = np.concatenate([block for block in blocks if block.size], axis=1)
    if len(scores) < 2:
        raise ValueError(f"{shards[0]}: {layout.scores[0]} needs two classes or more, got scores for {len(scores)}")
    return scores, class_order(len(scores), layout.names, names, shards[0]), rows


def ids_of(rows: pa.Table, layout: TableLayout, where: str | Path, count: int) -> tuple[pa.Array, bool]:
    found = row_ids(rows, layout.roles, where)
    return (pa.array(np.arange(count)), False) if found is None else (found, True)
