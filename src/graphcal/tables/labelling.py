"""What is known of rows beside their scores: the label and the part of the split, from the table itself or from other files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphcal.tables.classes import Classes, class_numbers
from graphcal.tables.joining import match_ids, row_ids, same_type
from graphcal.tables.layouts import TableLayout, roles_of
from graphcal.tables.shards import one_table, read_shard, shards_of
from graphcal.tables.splits import RowSplit, from_file, from_words, placed, split_in


def labels_and_split(
    rows: pa.Table, layout: TableLayout, order: Classes, where: str | Path, columns: Mapping[str, str]
) -> tuple[np.ndarray | None, RowSplit | None]:
    """What a table says itself."""
    roles = layout.roles
    if "label" in columns and "label" not in roles:
        raise ValueError(
            f"{where}: no column {columns['label']!r} with the labels; the columns are {', '.join(rows.column_names)}"
        )
    y = class_numbers(rows[roles["label"]], order, where, roles["label"]) if "label" in roles else None
    return y, split_in(rows, roles, where)


def table_of(path: str | Path) -> pa.Table:
    return one_table([read_shard(shard) for shard in shards_of(path)])


def joined_labels(
    path: Path, ids: pa.Array, has_ids: bool, order: Classes, columns: Mapping[str, str]
) -> tuple[np.ndarray, RowSplit | None, list[str]]:
    """Labels and split from a file of their own, and what did not fit."""
    table = table_of(path)
    roles = roles_of(table.column_names, columns, path)
    others = row_ids(table, roles, path)
    if "label" not in roles or (others is None) == has_ids:
        lacking = "label" if "label" not in roles else "id"
        raise ValueError(
            f"{path}: no column for the {lacking}; the columns are {', '.join(table.column_names)}. Name yours: --columns "
            f"{lacking}=NAME"
            if lacking == "label" or has_ids
            else f"{path} has ids, but the predictions have none: name their column with --columns id=NAME"
        )
    labels = class_numbers(table[roles["label"]], order, path, roles["label"])
    parts = split_in(table, roles, path)
    if not has_ids:
        if len(labels) != len(ids):
            raise ValueError(
                f"{path}: {len(labels)} labels for {len(ids)} rows of predictions, and no ids to join them by"
            )
        return labels, parts, []
    found = match_ids(ids, others, path)
    if others is not None and found.missing == len(ids):
        ours, theirs = (", ".join(map(repr, some[:3].to_pylist())) for some in same_type(ids, others))
        raise ValueError(
            f"{path}: none of its {len(others):,} ids is the id of a prediction. Ids of predictions are {ours}, ..., here they "
            f"are {theirs}, ...: are they written in two ways (leading zeros?), or in another column (--columns id=NAME)?"
        )
    y = np.where(found.rows >= 0, labels[found.rows], -1)
    notes = [f"{found.missing:,} of {len(ids):,} rows have no label in {path.name}"] if found.missing else []
    if empty := int((y < 0).sum()) - found.missing:
        notes.append(f"{empty:,} labels in {path.name} are empty")
    if found.unknown:
        notes.append(f"{found.unknown:,} labels are of ids without a prediction (first: {found.example!r})")
    return y, None if parts is None else placed(parts, found.rows), notes


def chosen_split(
    split: str | Path,
    rows: pa.Table,
    parts: RowSplit | None,
    ids: pa.Array,
    y: np.ndarray | None,
    labels: str | Path | None,
    columns: Mapping[str, str],
) -> tuple[RowSplit | None, list[str]]:
    """The split of a column of the predictions, of a column of the labels, or of a file of ids."""
    if str(split) in rows.column_names:
        return from_words(rows[str(split)], "the predictions", str(split)), []
    if labels is not None:
        table = table_of(labels)
        if str(split) in table.column_names:
            roles = roles_of(table.column_names, columns, labels)
            found = from_words(table[str(split)], labels, str(split))
            others = row_ids(table, roles, labels)
            return found if others is None else placed(found, match_ids(ids, others, labels).rows), []
    if Path(split).exists():
        return from_file(Path(split), ids, np.full(len(ids), -1) if y is None else y, columns)
    raise ValueError(f"--split {split}: neither a column ({', '.join(rows.column_names)}) nor a file of ids")


def label_names(
    tables: Sequence[pa.Table], layout: TableLayout, labels: str | Path | None, columns: Mapping[str, str] | None
) -> list[pa.ChunkedArray]:
    """The labels that occur, for layouts whose scores do not say how many classes there are."""
    if layout.form != "top-label":
        return []
    found = [table[layout.roles["label"]] for table in tables if "label" in layout.roles]
    if labels is not None:
        table = table_of(labels)
        role = roles_of(table.column_names, columns or {}, labels).get("label")
        found += [table[role]] if role else []
    return found
