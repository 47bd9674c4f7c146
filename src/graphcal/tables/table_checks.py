"""What a table of predictions must not contradict: its own shards, the options given with it, its column of predictions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from torch import Tensor

from graphcal.tables.classes import Classes, class_numbers
from graphcal.tables.kinds import kind_named
from graphcal.tables.labelling import table_of
from graphcal.tables.layouts import ROLES, TableLayout, find_layout, is_calibrated, is_list
from graphcal.tables.sources import Source

SURE = 3.0  # standard errors below chance
TIE = 1e-6  # two scores nearer than this are a tie, and a prediction may be either


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
    """Refuse a --kind that says another thing than the columns' names do."""
    if kind is None or layout.kind == kind_named(kind) or is_calibrated(layout):
        return
    raise ValueError(
        f"{where}: the column {layout.scores[0]!r} is called {layout.kind}, --kind says {kind}: which is it? Rename the column "
        "or leave out --kind"
    )


def check_classes(tables: Sequence[pa.Table], layout: TableLayout, shards: Sequence[Path]) -> None:
    """Refuse a shard of a wide table that has scores of more classes than the others."""
    if layout.form != "wide":
        return
    first = set(tables[0].column_names)
    for shard, table in zip(shards, tables):
        more = [name for name in table.column_names if name not in first]
        whole = find_layout(table.schema, layout.kind, None, layout.roles, layout.names, shard) if more else layout
        strange = [name for name in whole.scores if name not in layout.scores]
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


def check_columns_given(
    columns: Mapping[str, str],
    schema: pa.Schema,
    labels: str | Path | None,
    split: str | Path | None,
    where: str | Path,
) -> None:
    """Refuse names in --columns that neither the predictions nor their labels nor their split have."""
    others = [path for path in (labels, split) if path is not None and Path(path).exists()]
    names = dict.fromkeys([*schema.names, *(name for path in others for name in table_of(path).column_names)])
    check_given(columns, names, where, set(ROLES) - {"source", "target"})  # those are of edges, and checked there


def check_predictions(
    rows: pa.Table, layout: TableLayout, scores: np.ndarray, order: Classes, where: str | Path
) -> None:
    """A column of predictions must name the class of the highest score: else the order of the classes is another one."""
    name = "calibrated_prediction" if is_calibrated(layout) else layout.roles.get("prediction")
    if (
        name is None
        or name not in rows.column_names
        or layout.form in ("long", "top-label")
        or layout.names is not None
    ):
        return
    if is_list(rows.schema.field(name).type):
        return
    try:
        said = class_numbers(rows[name], order, where, name)
    except ValueError as fault:
        raise ValueError(f"{fault}. It is the column of predictions, beside the scores") from None
    top = scores.max(0)
    at_said = np.take_along_axis(scores, np.maximum(said, 0)[None], 0)[0]
    wrong = (said >= 0) & (top - at_said > TIE)
    if wrong.mean() > 0.01 and not is_threshold(said, scores):
        row = int(wrong.argmax())
        raise ValueError(
            f"{where}: column {name!r} is not the class of the highest score in {wrong.mean():.0%} of the rows (first: row {row} "
            f"says {order.names[said[row]]}, the highest is that of {order.names[int(scores[:, row].argmax())]}): the classes "
            f"{order.shown()} are in another order than the scores"
        )


def remark_on_order(logits: Tensor, y: np.ndarray | None) -> list[str]:
    """A remark on labels (N,), -1 for none, that the scores (N, C) meet less often than chance would."""
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


def is_threshold(said: np.ndarray, scores: np.ndarray) -> bool:
    """Whether predictions of two classes say the second from some score on, be it another than the middle."""
    if len(scores) != 2:
        return False
    margin = scores[1] - scores[0]
    first, second = margin[said == 0], margin[said == 1]
    return not len(first) or not len(second) or bool(first.max() <= second.min())
