"""The features of a node table: one numeric column each, or one column of lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
import torch

from graphcal.files import FEATURES, check_memory
from graphcal.lab.datasets.loading import feature_tensor
from graphcal.lab.datasets.table_files import TableFile

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
