"""Which rows were trained on, which are fitted on, which measure: by a column, by a file of ids, or by a draw that is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphcal.tables.joining import is_of_edges, match_ids, refuse_duplicates, row_ids
from graphcal.tables.layouts import roles_of
from graphcal.tables.shards import one_table, read_shard, shards_of

PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class RowSplit:
    """Boolean masks (N,)."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def from_words(column: pa.ChunkedArray, where: str | Path, name: str) -> RowSplit:
    """A column of the words train, val, test; an empty one is in no part."""
    from graphcal.lab.datasets.graph_tables import encode_split

    found = encode_split(column, Path(where), name)
    masks = []
    for rows in (found.train, found.val, found.test):
        mask = np.zeros(len(column), dtype=bool)
        mask[rows] = True
        masks.append(mask)
    return RowSplit(*masks)


def placed(split: RowSplit, rows: np.ndarray) -> RowSplit:
    """The split of a table for the rows of another: ``rows`` (N,) is where each is in the first, -1 for nowhere."""
    there = rows >= 0
    return RowSplit(*(np.where(there, getattr(split, part)[rows], False) for part in PARTS))


def split_in(table: pa.Table, roles: Mapping[str, str], where: str | Path) -> RowSplit | None:
    """The split that a table has: a column of words, or columns train_mask, val_mask and test_mask, as PyG has them."""
    if "split" in roles:
        return from_words(table[roles["split"]], where, roles["split"])
    there = [f"{part}_mask" in table.column_names for part in PARTS]
    if not there[1] or not all(
        pa.types.is_boolean(table.schema.field(f"{part}_mask").type) for part, has in zip(PARTS, there) if has
    ):
        return None
    masks = [
        np.asarray(pc.fill_null(table[f"{part}_mask"], False).combine_chunks().to_numpy(zero_copy_only=False), bool)
        if has
        else np.zeros(table.num_rows, bool)
        for part, has in zip(PARTS, there)
    ]
    train, val, test = masks
    if (train & val).any() or (train & test).any() or (val & test).any():
        raise ValueError(f"{where}: rows are in two of train_mask, val_mask and test_mask; a row has one part")
    return RowSplit(train, val, test if there[2] else ~train & ~val)


def from_file(path: Path, ids: pa.Array, y: np.ndarray, columns: Mapping[str, str]) -> tuple[RowSplit, list[str]]:
    """A table of id and split; or of ids alone: those are fitted on, all other labelled rows measure."""
    others, parts = ids_and_split(path, columns)
    found = match_ids(ids, others, path)
    notes = [f"{path}: {found.unknown:,} ids have no prediction"] if found.unknown else []
    if parts is not None:
        return placed(parts, found.rows), notes
    val = found.rows >= 0
    return RowSplit(np.zeros_like(val), val, ~val & (y >= 0)), notes


def ids_and_split(path: Path, columns: Mapping[str, str]) -> tuple[pa.Array, RowSplit | None]:
    """The ids of a table of rows and the part that each is in; no parts where the table is of ids alone."""
    table = one_table([read_shard(shard) for shard in shards_of(path)])
    roles = roles_of(table.column_names, columns, path)
    parts = split_in(table, roles, path)
    if not is_of_edges(roles) and "id" not in roles:
        others = [name for name in table.column_names if name != roles.get("split")]
        roles = {**roles, "id": others[0]} if len(others) == 1 else roles
    ids = row_ids(table, roles, path)
    if ids is None or (parts is None and table.num_columns > (2 if is_of_edges(roles) else 1)):
        raise ValueError(
            f"{path}: expected a column of ids with a column 'split', or ids alone; the columns are "
            f"{', '.join(table.column_names)}. Name yours: --columns id=NAME,split=NAME"
        )
    return ids, parts


def training_ids(path: Path, columns: Mapping[str, str]) -> pa.Array:
    """The ids in a table of training rows: those whose split is train, or all of a table of ids alone."""
    ids, parts = ids_and_split(path, columns)
    refuse_duplicates(ids, path)
    if parts is None:
        return ids
    if not parts.train.any():
        raise ValueError(f"{path}: no row has the split 'train', so there are no training rows")
    return ids.filter(pa.array(parts.train))


def drawn(y: np.ndarray, seed: int) -> tuple[RowSplit, str]:
    """Half of the labelled rows to fit on, the others to measure."""
    labelled = np.flatnonzero(y >= 0)
    chosen = np.random.default_rng(seed).permutation(labelled)[: len(labelled) // 2]
    val = np.zeros(len(y), dtype=bool)
    val[chosen] = True
    test = (y >= 0) & ~val
    return RowSplit(np.zeros_like(val), val, test), (
        f"no split was given: {val.sum():,} of {len(labelled):,} labelled rows, drawn with seed {seed}, are fitted on; the other "
        f"{test.sum():,} measure. If the model was trained on some of them, say so with --split"
    )
