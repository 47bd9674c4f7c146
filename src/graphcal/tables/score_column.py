"""Look at a table with one score per row before torch is imported: its score column, the kind of score, its two classes.

`look` refuses what cannot be a table of alerts; `graphcal.tables.reading.read_table` then reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from graphcal.tables.classes import canonical, distinct
from graphcal.tables.files import is_number, one_array, read_tables

NAMED = re.compile(
    r"(calibrated_)?(prob|proba|probability|logit|log_prob)s?(_1)?", re.IGNORECASE
)  # the name says the kind
LABELS = ("label", "y", "true_label", "labels")
OPPOSITE = {"1": "0", "True": "False"}


@dataclass(frozen=True)
class ScoreColumn:
    """Columns of scores and labels in a table, and their meaning."""

    column: str
    kind: str | None  # None: the name of the column says it
    classes: tuple[str, str]  # negative, positive
    notes: tuple[str, ...] = ()


def look(
    path: str | Path,
    score: str = "",
    label: str = "",
    labels: str | Path | None = None,
    positive: str = "",
    kind: str | None = None,
    others: Sequence[str] = (),
) -> ScoreColumn:
    """Find the scores and the classes of a table; ``others`` are further columns that must be there."""
    table = read_tables(path)
    for name in (*others, *([label] if label and labels is None else []), *([score] if score else [])):
        if name not in table.column_names:
            raise ValueError(f"{path}: no column {name!r}; the columns are {', '.join(table.column_names)}.")
    column = score or _score_column(table, path)
    if not is_number(table.schema.field(column).type):
        raise ValueError(f"{path}: column {column!r} holds {table.schema.field(column).type}, not numbers.")
    named, notes = NAMED.fullmatch(column) is not None, []
    if kind is None and not named:
        low, high = (float(value.as_py()) for value in pc.min_max(table[column]).values())
        kind = "probs" if low >= 0 and high <= 1 else "logits" if low < 0 else "scores"
        words = {"probs": "probabilities", "logits": "log-odds", "scores": "scores of any scale"}[kind]
        notes.append(f"column {column!r} ({low:.3g} to {high:.3g}) is read as {words}; pass --kind if that is wrong")
    rows = table if labels is None else read_tables(labels)
    return ScoreColumn(column, None if named else kind, _classes(rows, label, positive, labels or path), tuple(notes))


def _score_column(table: pa.Table, path: str | Path) -> str:
    numbers = [name for name in table.column_names if is_number(table.schema.field(name).type)]
    fits = [name for name in numbers if NAMED.fullmatch(name)] or [name for name in numbers if name.lower() == "score"]
    if len(fits) != 1:
        several = (
            f"several columns may be the score ({', '.join(fits)})" if fits else "no column is called score or prob"
        )
        raise ValueError(
            f"{path}: {several}. Name it with --score; numbers are in {', '.join(numbers) or 'no column'}."
        )
    return str(fits[0])


def _classes(table: pa.Table, label: str, positive: str, path: str | Path) -> tuple[str, str]:
    column = label or next((name for name in table.column_names if name.lower() in LABELS), "")
    if column not in table.column_names:
        raise ValueError(
            f"{path}: no column {column or 'label'!r} with the labels; name it with --label. The columns are "
            f"{', '.join(table.column_names)}."
        )
    values = canonical(distinct(one_array(table[column]))[0], path, column)
    names = sorted({str(name) for name in values.to_pylist() if name not in (None, "", "-1")})
    if len(names) > 2:
        raise ValueError(
            f"{path}: column {column!r} has {len(names)} classes ({', '.join(names[:5])}); alerts are about two."
        )
    if not positive:
        fits = [name for name in names if name in OPPOSITE]
        if len(fits) != 1 or not set(names) <= {fits[0], OPPOSITE[fits[0]]}:
            raise ValueError(
                f"{path}: name the class that alerts look for with --class, of {', '.join(names) or 'none'}."
            )
        return OPPOSITE[fits[0]], fits[0]
    if positive not in names:
        raise ValueError(f"{path}: no row is labelled {positive!r}; the labels are {', '.join(names) or 'empty'}.")
    rest = [name for name in names if name != positive]
    if not rest:
        raise ValueError(f"{path}: every label is {positive!r}. Label rows of the other class, too.")
    return rest[0], positive
