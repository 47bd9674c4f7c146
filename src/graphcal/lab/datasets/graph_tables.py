"""A graph as two tables: nodes.parquet|csv and edges.parquet|csv.

Node ids and labels may be text or numbers; they are mapped to 0..N-1 and 0..C-1 and kept (`node_ids`, `class_names`).
Every fault has its own error that names the file, the column and the row; rows count from 1, without the header.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphcal.lab.datasets.assemble import Parts
from graphcal.lab.datasets.protocols import Split
from graphcal.lab.datasets.table_files import TableFile, open_table
from graphcal.lab.datasets.vectors import features_of
from graphcal.tables.labels import split_from_words


@dataclass(frozen=True)
class Columns:
    """Names of the columns."""

    id: str
    label: str
    split: str
    source: str
    target: str
    features: tuple[str, ...] | None
    sparse: str
    values: str


def read_tables(folder: Path, columns: Columns, delimiter: str) -> tuple[Parts, np.ndarray]:
    """The graph in a folder, and the ids its nodes have there."""
    nodes, edges = open_table(folder, "nodes", delimiter), open_table(folder, "edges", delimiter)
    has_split = columns.split in nodes.names
    named = [columns.id, columns.label, *([columns.split] if has_split else [])]
    table = nodes.read(named)
    if not table.num_rows:
        raise ValueError(f"{nodes.path}: the file is empty: it has a header and no rows")
    ids = plain_ids(table[columns.id], nodes.path, columns.id).combine_chunks()
    refuse_repeats(ids, nodes.path, columns.id)
    labels, class_names = encode_labels(table[columns.label], nodes.path, columns.label)
    split = encode_split(table[columns.split], nodes.path, columns.split) if has_split else None
    x = features_of(nodes, named, columns.features, columns.sparse, columns.values)
    rows, cols = (node_numbers(edges, name, ids) for name in (columns.source, columns.target))
    notes = unused(nodes, columns) + unused(edges, columns)
    where = f"{nodes.path}, column {columns.label!r}"
    return Parts(where, x, rows, cols, labels, class_names, split, notes), ids.to_numpy(zero_copy_only=False)


def unused(table: TableFile, columns: Columns) -> list[str]:
    """A remark on the columns that were not read, if there are any."""
    if table.path.stem == "edges":
        used = {columns.source, columns.target}
    else:
        used = {columns.id, columns.label, columns.split}
        if columns.features is not None:
            used |= set(columns.features)
        else:
            used |= {columns.sparse, columns.values} if columns.sparse in table.names else set(table.names)
    left = [name for name in table.names if name not in used]
    return [f"{table.path.name}: columns not used: {', '.join(left)}"] if left else []


def plain_ids(column: pa.ChunkedArray, path: Path, name: str) -> pa.ChunkedArray:
    """Whole numbers or text, without gaps."""
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py() + 1
        raise ValueError(f"{path}, column {name!r}, row {row}: there is no node id")
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return column.cast(pa.string())
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid as fault:
        raise ValueError(f"{path}, column {name!r}: node ids must be whole numbers or text ({fault})") from fault


def refuse_repeats(ids: pa.Array, path: Path, name: str) -> None:
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    codes = ids.dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    again = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    row = int(order[again + 1].min())
    first = int(np.flatnonzero(codes == codes[row])[0])
    raise ValueError(
        f"{path}, column {name!r}, row {row + 1}: node {ids[row].as_py()!r} is there twice, first in row {first + 1}"
    )


def node_numbers(edges: TableFile, name: str, ids: pa.Array) -> np.ndarray:
    """(E,) the row in the node table of one end of each edge; the ends are read one column at a time."""
    ends = plain_ids(edges.read([name])[name], edges.path, name)
    if not len(ends):
        raise ValueError(f"{edges.path}: the file is empty: it has a header and no rows")
    if ends.type != ids.type:
        ends, ids = ends.cast(pa.string()), ids.cast(pa.string())
    rows = pc.index_in(ends, value_set=ids)
    if rows.null_count:
        row = pc.index(rows.is_null(), True).as_py()
        end = ends[row].as_py()
        raise ValueError(f"{edges.path}, column {name!r}, row {row + 1}: node {end!r} is not in the node table")
    numbers: np.ndarray = rows.to_numpy()
    return numbers


def encode_labels(column: pa.ChunkedArray, path: Path, name: str) -> tuple[np.ndarray, list[str]]:
    """(N,) class numbers in sorted order of the labels, -1 where there is none; -1 and '' count as none."""
    if pa.types.is_floating(column.type):
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid as fault:
            raise ValueError(f"{path}, column {name!r}: labels are classes, not decimal numbers ({fault})") from fault
    if pa.types.is_integer(column.type):
        column = pc.if_else(pc.less(column, 0), pa.scalar(None, column.type), column)
    else:
        text = column.cast(pa.large_string())
        column = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.large_string()), text)
    classes = column.unique().drop_null()
    classes = classes.take(pc.sort_indices(classes))
    codes = pc.fill_null(pc.index_in(column, value_set=classes), -1)
    return codes.to_numpy().astype(np.int64), [str(value) for value in classes.to_pylist()]


def encode_split(column: pa.ChunkedArray, path: Path, name: str) -> Split:
    """Return the node numbers of train, val and test; a node without a word is in none."""
    masks = split_from_words(column, path, name)
    return Split(np.flatnonzero(masks.train), np.flatnonzero(masks.val), np.flatnonzero(masks.test))
