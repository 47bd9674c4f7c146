"""Rows of several tables brought together by id: labels, splits, ends of edges. By Arrow, never by a loop over rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ARROW = " -> "  # between the ends of an edge, in its id


def plain_ids(column: pa.ChunkedArray | pa.Array, where: str | Path, name: str) -> pa.Array:
    """Ids as int64 or text, none missing."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise ValueError(f"{where}: row {row} has no id in column {name!r}")
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            if pa.types.is_integer(column.type):  # of 64 bits without a sign
                return column.cast(pa.string())
            raise ValueError(f"{where}: the ids in column {name!r} must be whole numbers or text") from None
    try:
        return column.cast(pa.string())
    except pa.ArrowException:  # lists, structures, bytes that are no text
        raise ValueError(
            f"{where}: the ids in column {name!r} must be whole numbers or text; got {column.type}"
        ) from None


def row_ids(table: pa.Table | pa.RecordBatch, roles: Mapping[str, str], where: str | Path) -> pa.Array | None:
    """What the rows of a table are called: its ids; where it has none but source and target, as predictions of edges have, the
    pair of them, as text; None where it has neither."""
    if "id" in roles:
        return plain_ids(table[roles["id"]], where, roles["id"])
    if is_of_edges(roles):
        ends = (plain_ids(table[roles[end]], where, roles[end]).cast(pa.string()) for end in ("source", "target"))
        return pc.binary_join_element_wise(*ends, ARROW)
    return None


def is_of_edges(roles: Mapping[str, str]) -> bool:
    """Whether the rows of a table are edges."""
    return "id" not in roles and {"source", "target"} <= set(roles)


def same_type(a: pa.Array, b: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both as whole numbers, or both as text: an id written as '17' in one file is 17 in the other."""
    return (a, b) if a.type == b.type else (a.cast(pa.string()), b.cast(pa.string()))


@dataclass(frozen=True, eq=False)
class Match:
    """Where the rows of one table are in another."""

    rows: np.ndarray  # (N,) row of the other table for each id, -1 where it has none
    missing: int  # ids without a row in the other table
    unknown: int  # rows of the other table whose id is not among the ids
    example: object = None  # one of those


def match_ids(ids: pa.Array, others: pa.Array, where: str | Path) -> Match:
    """The row in ``others`` of every id; refuses ids that ``others`` has twice."""
    ids, others = same_type(ids, others)
    refuse_duplicates(others, where)
    rows = pc.fill_null(pc.index_in(ids, value_set=others), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    strange = pc.invert(pc.is_in(others, value_set=ids))
    unknown = int(pc.sum(strange).as_py() or 0)
    example = others[pc.index(strange, True).as_py()].as_py() if unknown else None
    return Match(rows, int((rows < 0).sum()), unknown, example)


def duplicates(ids: pa.Array) -> int:
    """How many rows repeat an id that is there before."""
    return len(ids) - int(pc.count_distinct(ids).as_py())


def refuse_duplicates(ids: pa.Array, where: str | Path) -> None:
    again = duplicates(ids)
    if not again:
        return
    counts = pc.value_counts(ids)
    example = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()
    refuse_repeats(where, again, example)


def refuse_repeats(where: str | Path, again: int, example: object) -> NoReturn:
    raise ValueError(f"{where}: {again:,} rows repeat an id (first: {example!r}); an id must be there once")


def edge_rows(source: pa.Array, target: pa.Array, ids: pa.Array, where: str | Path) -> np.ndarray:
    """(2, E) the rows of both ends of every edge; an end that has no row is refused."""
    refuse_duplicates(ids, "the predictions")
    ends = []
    for column in (source, target):
        wanted, known = same_type(column, ids)
        rows = pc.index_in(wanted, value_set=known)
        if rows.null_count:
            strange = pc.unique(wanted.filter(rows.is_null()))
            refuse_unknown_ends(where, rows.null_count, len(strange), strange[0].as_py())
        ends.append(rows.to_numpy(zero_copy_only=False).astype(np.int64))
    return np.stack(ends)


def refuse_unknown_ends(where: str | Path, ends: int, nodes: int, example: object) -> NoReturn:
    raise ValueError(
        f"{where}: {ends:,} ends of edges name {nodes:,} nodes without a prediction (first: {example!r}). A neighbourhood that "
        "is cut off misleads a graph-aware calibration: predict all nodes (GraphStorm: infer_all_target_nodes), or leave the "
        "edges to such nodes out of the file on purpose"
    )
