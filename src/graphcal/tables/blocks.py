"""Blocks of scores (C, n), the classes along the first axis: columns are that already, a list column is turned once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from graphcal.containers.batches import holds_text
from graphcal.tables.layouts import TableLayout, is_number

Array = NDArray[Any]
NEEDED = {"long": ("id", "class"), "top-label": ("prediction",)}  # roles, beside the scores


def scores_of(
    batch: pa.RecordBatch | pa.Table, layout: TableLayout, where: str | Path, width: int | None = None
) -> Array:
    """The scores of a wide, list or binary batch, (C, n); ``width`` is the number of classes it must have."""
    check_columns(batch, layout, where)
    if layout.form == "list":
        scores = list_block(batch[layout.scores[0]], where, layout.scores[0])
    else:
        scores = np.stack([numbers_of(batch[name], where, name) for name in layout.scores])
    if layout.form == "binary":
        scores = both_classes(scores[0], layout.kind)
    if width is not None and len(scores) != width and scores.shape[1]:
        raise ValueError(f"{where}: scores for {len(scores)} classes, expected {width}")
    return scores


def check_columns(batch: pa.RecordBatch | pa.Table, layout: TableLayout, where: str | Path) -> None:
    """Refuse a batch that lacks a column of scores, or one that its layout stands on."""
    needed = [*layout.scores, *(layout.roles[r] for r in NEEDED.get(layout.form, ()) if r in layout.roles)]
    there = set(batch.schema.names)
    missing = [name for name in needed if name not in there]
    if missing:
        raise ValueError(f"{where}: no column {missing[0]!r}; the columns are {', '.join(batch.schema.names)}")


def numbers_of(column: pa.ChunkedArray | pa.Array, where: str | Path, name: str) -> Array:
    """A column of numbers, float32 where it is that on the disk, else float64; null becomes NaN."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if holds_text(column.type):
        column = numbers_in_text(column, where, name)
    if not is_number(column.type):
        raise ValueError(f"{where}: column {name!r} must hold numbers, found {column.type}")
    if not pa.types.is_floating(column.type) or column.type.bit_width < 32:
        column = column.cast(pa.float32() if pa.types.is_float16(column.type) else pa.float64())
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def numbers_in_text(column: pa.ChunkedArray | pa.Array, where: str | Path, name: str) -> pa.ChunkedArray | pa.Array:
    """Numbers that are written as text."""
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    try:
        return text.cast(pa.float64())
    except pa.ArrowInvalid as fault:
        raise ValueError(f"{where}: column {name!r} must hold numbers ({str(fault).splitlines()[0]})") from None


def list_block(column: pa.ChunkedArray | pa.Array, where: str | Path, name: str) -> Array:
    """(C, n) of a list column, its values taken without copying and turned once; text is split at ';'."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ChunkedArray):  # still chunked when it has no rows
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise ValueError(f"{where}: row {row} of column {name!r} is empty; was the engine told to write probabilities?")
    if holds_text(column.type):
        plain = pc.replace_substring(pc.utf8_trim(column.cast(pa.string()), "[] "), ",", ";")  # [0.1, 0.9] as well
        parts = pc.split_pattern(plain, ";")
        try:
            column = pa.ListArray.from_arrays(parts.offsets, pc.utf8_trim_whitespace(parts.values).cast(pa.float64()))
        except pa.ArrowInvalid as fault:
            raise ValueError(f"{where}: column {name!r} must hold numbers joined by ';' ({fault})") from None
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
    else:
        widths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(widths) > 1:
            raise ValueError(
                f"{where}: the lists in column {name!r} have different lengths, {', '.join(map(str, sorted(widths)[:5]))}"
            )
        width = widths[0] if widths else 0
    flat = numbers_of(column.flatten(), where, name)
    return np.ascontiguousarray(flat.reshape(len(column), width).T)


def both_classes(second: Array, kind: str) -> Array:
    """(2, n) from the score of the second class."""
    if kind == "logits":
        return np.stack([np.zeros_like(second), second])
    if kind == "probs":
        return np.stack([1 - second, second])
    second = np.minimum(second, 0)
    with np.errstate(divide="ignore"):
        return np.stack([np.log(-np.expm1(second)), second])
