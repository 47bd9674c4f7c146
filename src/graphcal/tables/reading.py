"""Read predictions of any engine, in any layout, with their labels and their split: `read_table`.

    table = read_table("preds/", source="graphstorm", labels="labels.parquet")
    table.logits (N, C), table.y (N,), table.ids, table.classes, table.split, table.notes

A row is a node. What is missing, repeated or unknown is counted in ``notes``; what would be a guess is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcal.files import file_errors
from graphcal.tables.classes import Classes, class_numbers, declared
from graphcal.tables.files import is_list, read_tables
from graphcal.tables.labels import LabelFile, RowSplit, duplicates, row_ids, split_from_words, split_in, split_of_file
from graphcal.tables.layouts import ROLES, TableLayout, find_layout
from graphcal.tables.metadata import table_metadata
from graphcal.tables.score_types import ScoreType, infer_score_type, score_type_name
from graphcal.tables.sources import Source, source_of

SURE = 3.0  # standard errors below chance
TIE = 1e-6  # two scores nearer than this are a tie, and a prediction may be either


@dataclass(frozen=True, eq=False)
class PredictionTable:
    """Predictions with their labels and split. Row k of every field is row k of the files."""

    ids: pa.Array  # (N,) int64 or text; of edges both ends, "a -> b"; row numbers where the table has none
    logits: Tensor  # (N, C) probabilities and log-probabilities as log p
    y: Tensor | None  # (N,) class numbers, -1 where there is no label
    classes: tuple[str, ...]
    split: RowSplit | None
    kind: ScoreType
    layout: TableLayout
    source: Source
    rows: pa.Table  # the other columns, one row per prediction
    tables: tuple[pa.Table, ...]  # the shards as read
    notes: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()  # label, split: those that came from other files
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

    def flags(self, name: str) -> np.ndarray:
        """Booleans (N,) from a column of true and false or of 1 and 0; empty cells are false."""
        column = self.column(name)
        try:
            return np.asarray(pc.fill_null(column.cast(pa.bool_()), False).to_numpy())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise ValueError(f"Column {name!r} must hold true and false, or 1 and 0; got {column.type}.") from None

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
    """Read predictions with their labels and their split.

    Parameters
    ----------
    path : path
        A file, or a folder of shards.
    kind : logits, log-probs or probs, optional
        Type of the scores, where column names do not say it.
    layout : str, optional
        Name of the layout, where two are possible.
    classes : names, optional
        Classes in the order of the scores.
    labels : path, optional
        Table of id and label and, optionally, split.
    columns : mapping, optional
        Columns of other names by role: {"id": "paper", "label": "topic"}.
    split : column or path, optional
        A column of train, val, test, or a file of ids.
    source : str, optional
        Engine that wrote the files.
    """
    with file_errors(path, "a table of predictions", others=True):
        return _read_table(path, kind, layout, declared(classes), labels, columns or {}, split, source)


def _read_table(
    path: str | Path,
    kind: str | None,
    layout: str | None,
    names: tuple[str, ...] | None,
    labels: str | Path | None,
    columns: Mapping[str, str],
    split: str | Path | None,
    source: str | None,
) -> PredictionTable:
    files = source_of(path, source)
    where = files.shards[0]
    tables = [files.read(shard) for shard in files.shards]
    check_shards(tables, files, names is not None)
    schema = next(table.schema for table in tables if table.num_rows)
    stored = table_metadata(schema)
    given = {**files.columns, **stored.columns, **columns}
    form = find_layout(schema, kind or files.kind, layout, given, names, where)
    check_kind(form, kind, where)
    if names is None and form.is_calibrated and (form.names is None or stored.numbered):
        names = stored.classes
    check_score_columns(tables, form, files.shards)
    label_file = None if labels is None else LabelFile.read(labels, columns)
    split_path = None if split is None or not Path(split).exists() else Path(split)
    split_table = None if split_path is None else read_tables(split_path)
    others = [*([label_file.table] if label_file else []), *([split_table] if split_table else [])]
    all_names = dict.fromkeys([*schema.names, *(name for table in others for name in table.column_names)])
    check_given(columns, all_names, where, set(ROLES) - {"source", "target"})  # those are of edges, and checked there

    occurring = [] if form.all_classes else [table[form.roles["label"]] for table in tables if "label" in form.roles]
    if label_file is not None and label_file.labels is not None and not form.all_classes:
        occurring.append(label_file.labels)
    scores, order, rows = form.read_tables(tables, files.shards, names, occurring)
    score_type = infer_score_type(form.kind, scores, path)
    logits = torch.from_numpy(np.ascontiguousarray(score_type.logits(scores, path).T))
    ids = row_ids(rows, form.roles, path)
    has_ids = ids is not None
    ids = pa.array(np.arange(len(logits))) if ids is None else ids
    notes = []
    if has_ids and duplicates(ids):
        notes.append(f"{duplicates(ids):,} rows repeat an id")
    check_predictions(rows, form, scores, order, path)

    if "label" in columns and "label" not in form.roles and label_file is None:
        raise ValueError(
            f"{path}: no column {columns['label']!r} with the labels; the columns are {', '.join(rows.column_names)}"
        )
    label = form.roles.get("label")
    y = None if label is None else class_numbers(rows[label], order, path, label)
    parts, joined = split_in(rows, form.roles, path), []
    if label_file is not None:
        y, label_parts, remarks = label_file.join(ids, has_ids, order)
        joined += ["label"] + ["split"] * (label_parts is not None)
        parts = parts if label_parts is None else label_parts
        notes += remarks
    if split is not None:
        joined.append("split")
        if str(split) in rows.column_names:
            parts = split_from_words(rows[str(split)], "the predictions", str(split))
        elif label_file is not None and str(split) in label_file.table.column_names:
            parts = label_file.split(str(split), ids)
        elif split_table is not None and split_path is not None:
            parts, remarks = split_of_file(split_table, split_path, ids, y, columns)
            notes += remarks
        else:
            raise ValueError(f"--split {split}: neither a column ({', '.join(rows.column_names)}) nor a file of ids")
    notes += remark_on_order(logits, y)
    labels_y = None if y is None else torch.from_numpy(y)
    return PredictionTable(
        ids, logits, labels_y, order.names, parts, score_type, form, files, rows, tuple(tables), tuple(notes), tuple(joined),
        order.declared,
    )  # fmt: skip


# Checks


def check_shards(tables: Sequence[pa.Table], files: Source, classes: bool) -> None:
    """Refuse shards that do not have the columns of the first, and what the engine wrote without a confidence."""
    first = tables[0].schema
    for shard, table in zip(files.shards, tables):
        there = set(table.column_names)
        missing = [name for name in first.names if name not in there]
        if missing:
            raise ValueError(f"{shard}: no column {missing[0]!r}, which {files.shards[0].name} has")
    if files.check is not None:
        files.check(first, files.shards[0], classes)
    if not sum(table.num_rows for table in tables):
        raise ValueError(f"{files.shards[0]}: the table has no rows")


def check_kind(layout: TableLayout, kind: str | None, where: str | Path) -> None:
    """Refuse a --kind that contradicts the names of the columns."""
    if kind is None or layout.kind == score_type_name(kind) or layout.is_calibrated:
        return
    raise ValueError(
        f"{where}: the column {layout.scores[0]!r} is called {layout.kind}, --kind says {kind}. Rename the column or leave out "
        "--kind"
    )


def check_score_columns(tables: Sequence[pa.Table], layout: TableLayout, shards: Sequence[Path]) -> None:
    """Refuse a shard that has scores of more classes than the first one."""
    first = set(tables[0].column_names)
    for shard, table in zip(shards, tables):
        if set(table.column_names) <= first:
            continue
        strange = [name for name in layout.score_columns(table.schema, shard) if name not in layout.scores]
        if strange:
            raise ValueError(f"{shard}: a column {strange[0]!r} of scores, which {shards[0].name} does not have")


def check_given(given: Mapping[str, str], names: Collection[str], where: str | Path, roles: Collection[str]) -> None:
    """Refuse a column that --columns names and no file has."""
    for role in (role for role in given if role in roles):
        if given[role] not in names:
            raise ValueError(
                f"{where}: no column {given[role]!r}, which --columns {role}={given[role]} names; the columns are "
                f"{', '.join(names)}"
            )


def check_predictions(
    rows: pa.Table, layout: TableLayout, scores: np.ndarray, order: Classes, where: str | Path
) -> None:
    """Refuse a column of predictions that is not the class of the highest score: the order of the classes is another one."""
    name = "calibrated_prediction" if layout.is_calibrated else layout.roles.get("prediction")
    if name is None or name not in rows.column_names or not layout.all_classes or layout.names is not None:
        return
    if is_list(rows.schema.field(name).type):
        return
    try:
        pred = class_numbers(rows[name], order, where, name)
    except ValueError as fault:
        raise ValueError(f"{fault}. It is the column of predictions, beside the scores") from None
    top = scores.max(0)
    at_pred = np.take_along_axis(scores, np.maximum(pred, 0)[None], 0)[0]
    wrong = (pred >= 0) & (top - at_pred > TIE)
    if wrong.mean() > 0.01 and not is_threshold(pred, scores):
        row = int(wrong.argmax())
        raise ValueError(
            f"{where}: column {name!r} is not the class of the highest score in {wrong.mean():.0%} of the rows (first: row {row} "
            f"says {order.names[pred[row]]}, the highest is that of {order.names[int(scores[:, row].argmax())]}): the classes "
            f"{order.shown()} are in another order than the scores"
        )


def remark_on_order(logits: Tensor, y: np.ndarray | None) -> list[str]:
    """Note an accuracy of scores (N, C) on labels (N,), -1 for none, that is below chance."""
    labelled = np.zeros(0, dtype=bool) if y is None else y >= 0
    if y is None or not labelled.any():
        return []
    count, chance = int(labelled.sum()), 1 / logits.shape[1]
    accuracy = float((logits.argmax(-1).numpy() == y)[labelled].mean())
    if accuracy >= chance - SURE * np.sqrt(chance * (1 - chance) / count):
        return []
    return [
        f"accuracy is {accuracy:.1%} on {count:,} labelled rows, that of a guess among {logits.shape[1]} classes is "
        f"{chance:.1%}: are the classes in the right order?"
    ]


def is_threshold(pred: np.ndarray, scores: np.ndarray) -> bool:
    """Return whether predictions of two classes are the second from some score on, be it another than the middle."""
    if len(scores) != 2:
        return False
    margin = scores[1] - scores[0]
    first, second = margin[pred == 0], margin[pred == 1]
    return not len(first) or not len(second) or bool(first.max() <= second.min())


# Times


def is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def times_of(column: pa.ChunkedArray, name: str, where: Any, missing: bool = False) -> NDArray[Any]:
    """Times (N,) that sort as time does: datetime64 in UTC, or numbers. Empty cells are refused unless ``missing`` is allowed.

    Text must hold numbers or ISO 8601 times (2026-10-01, 2026-10-01T00:30+02:00): other text does not sort as time does.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _parsed(column, name, where)
    if column.null_count and not missing:
        row = int(pc.index(pc.is_null(column), True).as_py())
        raise ValueError(
            f"{where}: {column.null_count:,} rows have no time in column {name!r} (first: row {row}); fill them or leave them out"
        )
    if is_time(column.type):
        return np.asarray(column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False), dtype="datetime64[us]")
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64 if column.null_count else None)
    raise ValueError(
        f"{where}: column {name!r} is {column.type}, not a time; give dates, timestamps or numbers that grow"
    )


def _parsed(column: pa.ChunkedArray, name: str, where: Any) -> pa.ChunkedArray:
    for kind in (pa.int64(), pa.float64()):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    values = pc.utf8_trim_whitespace(column)
    zoned = pc.match_substring_regex(values, r"[T ]\d{2}:\d{2}.*(Z|[+-]\d{2}:?\d{2})$")
    try:
        kind = pa.timestamp("us", "UTC") if pc.all(zoned).as_py() else pa.timestamp("us")
        return values.cast(kind).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        pass
    bad = next(text for text in values.to_pylist() if text is not None and not _iso(text, pc.all(zoned).as_py()))
    raise ValueError(
        f"{where}: column {name!r} holds text such as {bad!r}, which does not sort as time does; give dates or timestamps "
        "(2026-10-01, 2026-10-01T00:30+02:00), all of them with a zone or none, or numbers"
    )


def _iso(text: str, zoned: bool) -> bool:
    try:
        pa.scalar(text).cast(pa.timestamp("us", "UTC") if zoned else pa.timestamp("us"))
    except pa.ArrowInvalid:
        return False
    return True
