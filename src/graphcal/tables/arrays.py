"""Scores in memory, whatever holds them: NumPy, torch, pandas, Arrow; and probabilities in the same container."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from graphcal.tables.blocks import both_classes, scores_of
from graphcal.tables.classes import class_numbers, class_order, declared
from graphcal.tables.kinds import Kind, kind_named, kind_of
from graphcal.tables.layouts import TableLayout, find_layout
from graphcal.tables.table_checks import check_kind

WHERE = "scores"


@dataclass(frozen=True, eq=False)
class Arrays:
    """Scores and labels as numbers."""

    logits: Tensor  # (N, C)
    y: np.ndarray  # (N,) -1 where there is no label
    kind: Kind
    classes: tuple[str, ...]
    layout: TableLayout | None  # of tables


def arrays_of(scores: Any, y: Any, kind: str | None, classes: Sequence[str] | None) -> Arrays:
    names, layout = declared(classes), None
    table = table_of(scores)
    if table is not None:
        layout = find_layout(table.schema, kind, None, {}, names, WHERE)
        check_kind(layout, kind, WHERE)
        if layout.form not in ("wide", "list", "binary"):
            raise ValueError(f"scores in the {layout.form} layout come from a file: graphcal.tables.reading.read_table")
        block, name = scores_of(table, layout, WHERE), layout.kind
    else:
        if kind is None:
            raise ValueError("an array does not say what it holds: give kind='logits', 'log-probs' or 'probs'")
        name = kind_named(kind)
        values = as_numpy(scores)
        values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        block = both_classes(values, name) if values.ndim == 1 else np.ascontiguousarray(values.T)
        if block.ndim != 2 or len(block) < 2:
            raise ValueError(
                f"scores must be (N, C) with two classes or more, or (N,) of the second; got {values.shape}"
            )
    order = class_order(len(block), layout.names if layout else None, names, WHERE)
    what = kind_of(name, block, WHERE)
    logits = torch.from_numpy(np.ascontiguousarray(what.logits(block, WHERE).T))
    refuse_other_order(scores, y, "y")
    labels = as_numpy(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.shape != (len(logits),):
        raise ValueError(f"y must have shape ({len(logits)},) to match the scores, got {labels.shape}")
    column = pa.array(labels.tolist() if labels.dtype == object else labels, from_pandas=True)
    return Arrays(logits, class_numbers(column, order, "y", "y"), what, order.names, layout)


def as_numpy(values: Any) -> np.ndarray:
    """An array or a tensor of any precision as NumPy has it."""
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return np.asarray(values.float() if values.dtype == torch.bfloat16 else values)


def refuse_other_order(rows: Any, values: Any, name: str) -> None:
    """Refuse ``values`` (N,) whose index has a row of ``rows`` at another place: values are taken by their place."""
    mine, theirs = getattr(rows, "index", None), getattr(values, "index", None)
    if mine is None or theirs is None or callable(mine) or callable(theirs) or mine.equals(theirs):
        return
    if len(mine) != len(theirs):
        return
    moved = theirs.isin(mine) & (np.asarray(theirs, dtype=object) != np.asarray(mine, dtype=object))
    if moved.any():
        raise ValueError(
            f"{name} has {int(moved.sum()):,} labels of the scores' index at another place, and rows are taken by place: give "
            f"{name}.loc[scores.index], or {name}.to_numpy() if the places are right"
        )


def table_of(scores: Any) -> pa.Table | None:
    """An Arrow table of an Arrow table or a data frame; None for an array."""
    if isinstance(scores, pa.Table | pa.RecordBatch):
        return scores if isinstance(scores, pa.Table) else pa.Table.from_batches([scores])
    if type(scores).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(scores, preserve_index=False)
    return None


def like(scores: Any, probs: Tensor, given: Arrays) -> Any:
    """Probabilities (N, C) in the container of ``scores``."""
    if isinstance(scores, torch.Tensor):
        return probs
    if table_of(scores) is None:
        return probs.numpy()
    columns = {f"prob_{name}": column for name, column in zip(given.classes, probs.numpy().T)}
    if isinstance(scores, pa.Table | pa.RecordBatch):
        return pa.table({name: np.ascontiguousarray(column) for name, column in columns.items()})
    return type(scores)(columns, index=scores.index)  # a data frame
