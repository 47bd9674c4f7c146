"""A graph as two tables: nodes.parquet|csv and edges.parquet|csv.

Node ids and labels may be text or numbers; they are mapped to 0..N-1 and 0..C-1 and kept (`node_ids`, `class_names`).
Every fault has its own error that names the file, the column and the row; rows count from 1, without the header.
Features are one numeric column each, or one column of lists. Parquet is read within the budget of `graphcal.tables.files`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import scipy.sparse as sp
import torch

from graphcal.files import FEATURES, WORKING, check_memory, check_regular, file_errors
from graphcal.lab.datasets.loading import Parts, feature_tensor
from graphcal.lab.datasets.protocols import Split
from graphcal.tables.files import check_width, is_text, parquet_fragment, read_parquet, refuse_repeats
from graphcal.tables.labels import split_from_words

MARKS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class TableFile:
    """A table whose columns are known and not yet read."""

    path: Path
    names: tuple[str, ...]
    delimiter: str

    def read(self, names: list[str], each: int = WORKING) -> pa.Table:
        """These columns; ``each`` is the memory that one of their values will take."""
        missing = sorted(set(names).difference(self.names))
        if missing:
            columns = ", ".join(self.names)
            raise ValueError(
                f"{self.path}: no column {missing[0]!r}; its columns are {columns}. Name yours: --columns id=NAME, in Python "
                "id_column=NAME"
            )
        with file_errors(self.path, "a sound table"):
            if self.path.suffix == ".parquet":
                return _read_parquet(self.path, names, each)
            convert = pyarrow.csv.ConvertOptions(include_columns=names, null_values=[""], strings_can_be_null=True)
            parse = pyarrow.csv.ParseOptions(delimiter=self.delimiter)
            return pyarrow.csv.read_csv(self.path, parse_options=parse, convert_options=convert)


def _read_parquet(path: Path, names: list[str], each: int) -> pa.Table:
    """Read these columns; texts of more than 2 GB in all fit too."""
    table = read_parquet(path, names, each)
    for at, field in enumerate(table.schema):
        if is_text(field.type):
            table = table.set_column(at, field.name, table[field.name].cast(pa.large_string()))
    return table


def open_table(folder: Path, stem: str, delimiter: str) -> TableFile:
    """nodes or edges, whichever of the two formats is there."""
    candidates = [path for path in (folder / f"{stem}.parquet", folder / f"{stem}.csv") if path.exists()]
    if len(candidates) != 1:
        what = "both are there, remove one" if candidates else "neither is there"
        raise ValueError(f"{folder}: expected {stem}.parquet or {stem}.csv; {what}")
    path = check_regular(candidates[0])
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty")
    if path.suffix == ".parquet":
        with file_errors(path, "a readable Parquet file"):
            names = tuple(parquet_fragment(path).physical_schema.names)
    else:
        names = _csv_names(path, delimiter)
    refuse_repeats(names, path)
    return TableFile(path, names, delimiter)


def _csv_names(path: Path, delimiter: str) -> tuple[str, ...]:
    """The columns of a CSV file, as the reader of its rows sees them."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ValueError(f"a delimiter is one character, such as {', '.join(map(repr, MARKS))}; got {delimiter!r}")
    try:
        with open(path, encoding="utf-8-sig") as file:
            header = file.readline(1 << 24).rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8 text; save the table again with the encoding UTF-8") from None
    check_width(path, header.encode(), delimiter)
    with file_errors(path, "a readable CSV file"):
        parse = pyarrow.csv.ParseOptions(delimiter=delimiter)
        with pyarrow.csv.open_csv(path, parse_options=parse) as file:
            names = tuple(file.schema.names)
    other = next((mark for mark in MARKS if mark != delimiter and mark in header), None)
    if len(names) == 1 and other:
        raise ValueError(
            f"{path}: wrong delimiter: the header {header[:80]!r} has no {delimiter!r} but has {other!r}; "
            f"give it: --delimiter {other!r}, in Python delimiter={other!r}"
        )
    return names


GROUP = 16  # columns read at a time, so that the table is never whole in memory beside the matrix
PASSES = 32  # at most: a CSV file is parsed whole for every group


def features_of(
    table: TableFile, taken: list[str], wanted: tuple[str, ...] | None, sparse: str, values: str
) -> torch.Tensor:
    """(N, D) the features of a node table, whichever way it has them; `taken` are the columns that are none."""
    if wanted is None and sparse in table.names:
        lists = table.read([sparse, values] if values in table.names else [sparse])
        weights = lists[values].combine_chunks() if values in table.names else None
        return from_lists(lists[sparse].combine_chunks(), weights, table.path, sparse, values)
    names = list(wanted) if wanted is not None else [name for name in table.names if name not in taken]
    if not names:
        raise ValueError(f"{table.path}: no features: no column beside {', '.join(taken)}, and no list {sparse!r}")
    return torch.from_numpy(from_columns(table, names))


def from_columns(table: TableFile, names: list[str]) -> np.ndarray:
    """(N, D) float32, one column after the other."""
    x: np.ndarray | None = None
    together = max(GROUP, -(-len(names) // PASSES))
    for at in range(0, len(names), together):
        group = table.read(names[at : at + together], each=8)
        if x is None:
            check_memory(table.path, 4 * group.num_rows * len(names), f"{len(names):,} columns of features")
            x = np.empty((group.num_rows, len(names)), dtype=np.float32)
        if group.num_rows != len(x):
            raise ValueError(f"{table.path}: columns of {len(x)} and of {group.num_rows} rows")
        for k, name in enumerate(names[at : at + together], start=at):
            x[:, k] = _numbers(group[name], table.path, name)
    assert x is not None
    return x


def _numbers(column: pa.ChunkedArray, path: Path, name: str) -> np.ndarray:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    if not any(is_kind(column.type) for is_kind in kinds):
        row, example = _first_not_a_number(column)
        raise ValueError(
            f"{path}, column {name!r}, row {row}: features are numbers, but here is {example!r}; "
            "mend it, or leave the column out by naming the feature columns"
        )
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py() + 1
        raise ValueError(f"{path}, column {name!r}, row {row}: the feature is missing; a feature must be finite")
    numbers: np.ndarray = column.cast(pa.float32(), safe=False).to_numpy()
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise ValueError(f"{path}, column {name!r}, row {bad[0] + 1}: {numbers[bad[0]]} is not a finite feature")
    return numbers


def _first_not_a_number(column: pa.ChunkedArray) -> tuple[int, object]:
    for row, value in enumerate(column.to_pylist(), start=1):
        try:
            float(value)
        except (TypeError, ValueError):
            return row, value
    return 1, column[0].as_py()


def from_lists(lists: pa.Array, weights: pa.Array | None, path: Path, name: str, weights_name: str) -> torch.Tensor:
    """(N, D) from a list for each node: word numbers, word numbers with weights, decimals, or "3:0.5 17" as text."""
    if pa.types.is_string(lists.type) or pa.types.is_large_string(lists.type) or pa.types.is_null(lists.type):
        lists, weights = _from_text(lists.cast(pa.string()), path, name)
    if not (
        pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type) or pa.types.is_fixed_size_list(lists.type)
    ):
        raise ValueError(f"{path}, column {name!r}: expected lists or text such as '3:0.5 17', found {lists.type}")
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = lists.flatten()
    if flat.null_count:
        row = np.searchsorted(np.cumsum(lengths), pc.index(flat.is_null(), True).as_py(), side="right") + 1
        raise ValueError(f"{path}, column {name!r}, row {row}: a list has a gap; every entry must be a number")
    if weights is None and pa.types.is_floating(flat.type):
        return torch.from_numpy(_dense(flat, lengths, path, name))
    if not pa.types.is_integer(flat.type):
        raise ValueError(f"{path}, column {name!r}: expected whole numbers (words) or decimals, found {flat.type}")
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    words = flat.to_numpy(zero_copy_only=False)
    if len(words) and words.min() < 0:
        row = np.searchsorted(pointers, int(words.argmin()), side="right")
        raise ValueError(f"{path}, column {name!r}, row {row}: {words.min()} is not a word number; they start at 0")
    data = np.ones(len(words), dtype=np.float32)
    if weights is not None:
        if not any(is_kind(weights.type) for is_kind in (pa.types.is_list, pa.types.is_large_list)):
            raise ValueError(f"{path}, column {weights_name!r}: expected lists of numbers, found {weights.type}")
        given = pc.fill_null(pc.list_value_length(weights), 0).to_numpy(zero_copy_only=False)
        uneven = np.flatnonzero(given != lengths)
        if len(uneven):
            at = int(uneven[0])
            raise ValueError(
                f"{path}, column {weights_name!r}, row {at + 1}: {given[at]} values for {lengths[at]} word numbers"
            )
        data = weights.flatten().cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
        _refuse_infinite(data, pointers, path, name)
    size = int(words.max(initial=0)) + 1
    if size > FEATURES:
        row = np.searchsorted(pointers, int(words.argmax()), side="right")
        raise ValueError(
            f"{path}, column {name!r}, row {row}: word number {words.max()}; at most {FEATURES:,} words are read: "
            "number them from 0"
        )
    matrix = sp.csr_matrix((data, words.astype(np.int32), pointers), shape=(len(lengths), size))
    matrix.sum_duplicates()
    return feature_tensor(matrix)


def _dense(flat: pa.Array, lengths: np.ndarray, path: Path, name: str) -> np.ndarray:
    uneven = np.flatnonzero(lengths != lengths[0])
    if len(uneven):
        row = int(uneven[0])
        raise ValueError(f"{path}, column {name!r}, row {row + 1}: {lengths[row]} numbers, but row 1 has {lengths[0]}")
    numbers: np.ndarray = flat.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    _refuse_infinite(numbers, np.concatenate([[0], np.cumsum(lengths)]), path, name)
    rows: np.ndarray = numbers.reshape(len(lengths), -1).copy()
    return rows


def _refuse_infinite(numbers: np.ndarray, pointers: np.ndarray, path: Path, name: str) -> None:
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        row = np.searchsorted(pointers, bad[0], side="right")
        raise ValueError(f"{path}, column {name!r}, row {row}: {numbers[bad[0]]} is not a finite feature")


def _from_text(text: pa.Array, path: Path, name: str) -> tuple[pa.Array, pa.Array]:
    """Lists of word numbers and of weights from "3:0.5 17:1" or "3 17"."""
    tokens = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(pc.fill_null(text, "")))
    flat = tokens.flatten()
    offsets = tokens.offsets
    empty = pc.equal(flat, "").to_numpy(zero_copy_only=False)
    if empty.any():  # an empty text splits into one empty token
        kept = np.concatenate([[0], np.cumsum(~empty)])
        offsets = pa.array(kept[offsets.to_numpy()], offsets.type)
        flat = flat.filter(pa.array(~empty))
    plain = pc.invert(pc.match_substring(flat, ":"))
    pairs = pc.split_pattern(pc.if_else(plain, pc.binary_join_element_wise(flat, "1", ":"), flat), ":", max_splits=1)
    try:
        words = pc.list_element(pairs, 0).cast(pa.int64())
        weights = pc.list_element(pairs, 1).cast(pa.float32())
    except pa.ArrowInvalid as fault:
        raise ValueError(f"{path}, column {name!r}: expected text such as '3:0.5 17:1' ({fault})") from fault
    build = pa.LargeListArray if pa.types.is_large_list(tokens.type) else pa.ListArray
    return build.from_arrays(offsets, words), build.from_arrays(offsets, weights)


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
    _refuse_repeated_ids(ids, nodes.path, columns.id)
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


def _refuse_repeated_ids(ids: pa.Array, path: Path, name: str) -> None:
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
