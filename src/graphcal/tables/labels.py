"""Labels and splits of the rows of a table, from the table itself or joined from other files by id.

Joins are done by Arrow. A split is a column of the words train, val, test, three columns of masks, a file of ids, or a random
half of the labelled rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphcal.tables.classes import Classes, class_numbers
from graphcal.tables.files import plain_ids, read_tables
from graphcal.tables.layouts import roles_of

ENDS = ("source", "target")
BETWEEN_ENDS = " -> "  # in the id of an edge
PARTS = ("train", "val", "test")
SPLIT_WORDS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


# Ids


def row_ids(table: pa.Table | pa.RecordBatch, roles: Mapping[str, str], where: str | Path) -> pa.Array | None:
    """Return the ids of rows; for edge tables "source -> target"; None if there are neither."""
    if "id" in roles:
        return plain_ids(table[roles["id"]], where, roles["id"])
    if is_of_edges(roles):
        ends = (plain_ids(table[roles[end]], where, roles[end]).cast(pa.string()) for end in ENDS)
        return pc.binary_join_element_wise(*ends, BETWEEN_ENDS)
    return None


def is_of_edges(roles: Mapping[str, str]) -> bool:
    """Return whether the rows of a table are edges."""
    return "id" not in roles and set(ENDS) <= set(roles)


def same_type(a: pa.Array, b: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return both as whole numbers, or both as text: an id written as '17' in one file is 17 in the other."""
    return (a, b) if a.type == b.type else (a.cast(pa.string()), b.cast(pa.string()))


@dataclass(frozen=True, eq=False)
class Match:
    """Positions of the rows of one table in another."""

    rows: np.ndarray  # (N,) row of the other table for each id, -1 where it has none
    missing: int  # ids without a row in the other table
    unknown: int  # rows of the other table whose id is not among the ids
    example: object = None  # one of those

    def split(self, parts: RowSplit) -> RowSplit:
        """Reindex the split of the other table to the rows of this one."""
        return RowSplit(*(np.where(self.rows >= 0, getattr(parts, part)[self.rows], False) for part in PARTS))


def match_ids(ids: pa.Array, others: pa.Array, where: str | Path) -> Match:
    """Look up every id in ``others``; refuse ids that ``others`` has twice."""
    ids, others = same_type(ids, others)
    refuse_duplicates(others, where)
    rows = pc.fill_null(pc.index_in(ids, value_set=others), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    strange = pc.invert(pc.is_in(others, value_set=ids))
    unknown = int(pc.sum(strange).as_py() or 0)
    example = others[pc.index(strange, True).as_py()].as_py() if unknown else None
    return Match(rows, int((rows < 0).sum()), unknown, example)


def duplicates(ids: pa.Array) -> int:
    """Count the rows that repeat an earlier id."""
    return len(ids) - int(pc.count_distinct(ids).as_py())


def refuse_duplicates(ids: pa.Array, where: str | Path) -> None:
    again = duplicates(ids)
    if not again:
        return
    counts = pc.value_counts(ids)
    example = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()
    refuse_repeated_ids(where, again, example)


def refuse_repeated_ids(where: str | Path, again: int, example: object) -> NoReturn:
    raise ValueError(f"{where}: {again:,} rows repeat an id (first: {example!r}); an id must be there once")


# Splits


@dataclass(frozen=True, eq=False)
class RowSplit:
    """Boolean masks (N,) of the rows that were trained on, are fitted on, and measure."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def split_from_words(column: pa.ChunkedArray, where: str | Path, name: str) -> RowSplit:
    """Return the split of a column of the words train, val, test; a row without a word is in no part."""
    text = pc.utf8_lower(column.cast(pa.large_string()))
    words = pa.array([word for words in SPLIT_WORDS.values() for word in words] + [""], pa.large_string())
    strange = pc.and_(text.is_valid(), pc.invert(pc.is_in(text, value_set=words)))
    if pc.any(strange).as_py():
        row = pc.index(strange, True).as_py()
        raise ValueError(
            f"{where}, column {name!r}, row {row + 1}: {column[row].as_py()!r} is no part of a split; choose train, val or test, "
            "or leave it empty"
        )
    return RowSplit(
        *(
            np.asarray(pc.is_in(text, value_set=pa.array(words, pa.large_string())).to_numpy(), bool)
            for words in SPLIT_WORDS.values()
        )
    )


def split_in(table: pa.Table, roles: Mapping[str, str], where: str | Path) -> RowSplit | None:
    """Return the split of a table: a column of words, or columns train_mask, val_mask and test_mask, as PyG has them."""
    if "split" in roles:
        return split_from_words(table[roles["split"]], where, roles["split"])
    there = [f"{part}_mask" in table.column_names for part in PARTS]
    if not there[1] or not all(
        pa.types.is_boolean(table.schema.field(f"{part}_mask").type) for part, has in zip(PARTS, there) if has
    ):
        return None
    train, val, test = (
        np.asarray(pc.fill_null(table[f"{part}_mask"], False).combine_chunks().to_numpy(zero_copy_only=False), bool)
        if has
        else np.zeros(table.num_rows, bool)
        for part, has in zip(PARTS, there)
    )
    if (train & val).any() or (train & test).any() or (val & test).any():
        raise ValueError(f"{where}: rows are in two of train_mask, val_mask and test_mask; a row has one part")
    return RowSplit(train, val, test if there[2] else ~train & ~val)


def random_split(y: np.ndarray, seed: int) -> tuple[RowSplit, str]:
    """Draw half of the labelled rows to fit on, the others to measure."""
    labelled = np.flatnonzero(y >= 0)
    val = np.zeros(len(y), dtype=bool)
    val[np.random.default_rng(seed).permutation(labelled)[: len(labelled) // 2]] = True
    test = (y >= 0) & ~val
    return RowSplit(np.zeros_like(val), val, test), (
        f"no split was given: {val.sum():,} of {len(labelled):,} labelled rows, drawn with seed {seed}, are fitted on; the other "
        f"{test.sum():,} measure. If the model was trained on some of them, name them with --split"
    )


def ids_and_split(table: pa.Table, path: str | Path, columns: Mapping[str, str]) -> tuple[pa.Array, RowSplit | None]:
    """Return the ids of a table of rows and the part that each is in; no parts where the table is of ids alone."""
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
    """Return the ids in a table of training rows: those whose split is train, or all of a table of ids alone."""
    ids, parts = ids_and_split(read_tables(path), path, columns)
    refuse_duplicates(ids, path)
    if parts is None:
        return ids
    if not parts.train.any():
        raise ValueError(f"{path}: no row has the split 'train', so there are no training rows")
    return ids.filter(pa.array(parts.train))


# Labels


@dataclass(frozen=True, eq=False)
class LabelFile:
    """A file of labels, read once."""

    path: Path
    table: pa.Table
    roles: Mapping[str, str]

    @classmethod
    def read(cls, path: str | Path, columns: Mapping[str, str]) -> LabelFile:
        table = read_tables(path)
        return cls(Path(path), table, roles_of(table.column_names, columns, path))

    @property
    def labels(self) -> pa.ChunkedArray | None:
        return self.table[self.roles["label"]] if "label" in self.roles else None

    def join(self, ids: pa.Array, has_ids: bool, order: Classes) -> tuple[np.ndarray, RowSplit | None, list[str]]:
        """Return class numbers (N,) and split of the rows with these ids, and notes on what did not match."""
        path, others = self.path, row_ids(self.table, self.roles, self.path)
        if "label" not in self.roles or (others is None) == has_ids:
            lacking = "label" if "label" not in self.roles else "id"
            raise ValueError(
                f"{path}: no column for the {lacking}; the columns are {', '.join(self.table.column_names)}. Name yours: "
                f"--columns {lacking}=NAME"
                if lacking == "label" or has_ids
                else f"{path} has ids, but the predictions have none: name their column with --columns id=NAME"
            )
        labels = class_numbers(self.table[self.roles["label"]], order, path, self.roles["label"])
        parts = split_in(self.table, self.roles, path)
        if others is None:
            if len(labels) != len(ids):
                raise ValueError(
                    f"{path}: {len(labels)} labels for {len(ids)} rows of predictions, and no ids to join them by"
                )
            return labels, parts, []
        match = match_ids(ids, others, path)
        if match.missing == len(ids):
            ours, theirs = (", ".join(map(repr, some[:3].to_pylist())) for some in same_type(ids, others))
            raise ValueError(
                f"{path}: none of its {len(others):,} ids is the id of a prediction. Ids of predictions are {ours}, ..., here "
                f"they are {theirs}, ...: are they written in two ways (leading zeros?), or in another column (--columns "
                "id=NAME)?"
            )
        y = np.where(match.rows >= 0, labels[match.rows], -1)
        notes = [f"{match.missing:,} of {len(ids):,} rows have no label in {path.name}"] if match.missing else []
        if empty := int((y < 0).sum()) - match.missing:
            notes.append(f"{empty:,} labels in {path.name} are empty")
        if match.unknown:
            notes.append(f"{match.unknown:,} labels are of ids without a prediction (first: {match.example!r})")
        return y, None if parts is None else match.split(parts), notes

    def split(self, column: str, ids: pa.Array) -> RowSplit:
        """Return the split in one of its columns, for the rows with these ids."""
        parts = split_from_words(self.table[column], self.path, column)
        others = row_ids(self.table, self.roles, self.path)
        return parts if others is None else match_ids(ids, others, self.path).split(parts)


def split_of_file(
    table: pa.Table, path: Path, ids: pa.Array, y: np.ndarray | None, columns: Mapping[str, str]
) -> tuple[RowSplit, list[str]]:
    """Return the split of a table of id and split; ids alone are fitted on, and all other labelled rows measure."""
    others, parts = ids_and_split(table, path, columns)
    match = match_ids(ids, others, path)
    notes = [f"{path}: {match.unknown:,} ids have no prediction"] if match.unknown else []
    if parts is not None:
        return match.split(parts), notes
    val = match.rows >= 0
    labelled = np.zeros(len(ids), bool) if y is None else y >= 0
    return RowSplit(np.zeros_like(val), val, ~val & labelled), notes
