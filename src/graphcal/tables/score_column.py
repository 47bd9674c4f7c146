"""Look at a table with one score per row before torch is imported: its score column, the kind of score, its two classes.

`look` refuses what cannot be a table of alerts; `graphcal.tables.reading.read_table` then reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphcal.tables.classes import canonical, distinct
from graphcal.tables.files import is_number, one_array, read_tables
from graphcal.text import plural

NAMED = re.compile(
    r"(calibrated_)?(prob|proba|probability|logit|log_prob)s?(_1)?", re.IGNORECASE
)  # the name says the kind
KINDS = {"probs": "probabilities", "logits": "log-odds", "scores": "scores of any scale"}
LABELS = ("label", "y", "true_label", "labels")
UNITS = {"h": "h", "d": "D", "w": "W"}
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
    inclusion: str = "",
) -> ScoreColumn:
    """Find the scores and the classes of a table; ``inclusion`` and ``others`` are further columns that must be there."""
    if kind is not None and kind not in KINDS:
        raise ValueError(f"--kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    table = read_tables(path)
    if not table.num_rows:
        raise ValueError(f"{path}: the table has no rows.")
    given = (*others, inclusion, "" if labels is not None else label, score)
    for name in filter(None, given):
        if name not in table.column_names:
            raise ValueError(f"{path}: no column {name!r}; the columns are {', '.join(table.column_names)}.")
    column = score or _score_column(table, path)
    low, high = _range(table, column, path)
    if low == high:
        raise ValueError(f"{path}: all scores in column {column!r} are equal ({low:g}): there is nothing to rank.")
    if inclusion:
        least, most = _range(table, inclusion, path)
        if least <= 0 or most > 1:
            raise ValueError(
                f"{path}: column {inclusion!r} holds {least if least <= 0 else most:g}; the chance with which a row was drawn "
                "lies above 0 and is at most 1. Leave out rows that could not be drawn."
            )
    named, notes = NAMED.fullmatch(column) is not None, []
    if kind is None and not named:
        kind = kind_of(low, high)
        notes.append(
            f"column {column!r} ({low:.3g} to {high:.3g}) is read as {KINDS[kind]}; pass --kind if that is wrong"
        )
    probable = "prob" in column.lower() and "log" not in column.lower() if named else kind == "probs"
    if probable and (low < 0 or high > 1):
        raise ValueError(f"{path}: column {column!r} holds {low:.3g} to {high:.3g}; probabilities lie between 0 and 1.")
    rows = table if labels is None else read_tables(labels)
    return ScoreColumn(column, None if named else kind, _classes(rows, label, positive, labels or path), tuple(notes))


def kind_of(low: float, high: float) -> str:
    """The kind of scores with this range, as one of `KINDS`."""
    return "probs" if low >= 0 and high <= 1 else "logits" if low < 0 else "scores"


def _range(table: pa.Table, name: str, path: str | Path) -> tuple[float, float]:
    """Least and largest number of a column without gaps."""
    column = table[name]
    if not is_number(column.type):
        raise ValueError(f"{path}: column {name!r} holds {column.type}, not numbers.")
    finite = pc.is_finite(column.cast(pa.float64()))
    gaps = len(column) - int(pc.sum(finite).as_py() or 0)
    if gaps:
        row = pc.index(pc.fill_null(finite, False), False).as_py()
        raise ValueError(
            f"{path}: {plural(gaps, 'row')} without a finite number in column {name!r} (first: row {row}). Fill them or leave "
            "them out."
        )
    low, high = (float(value.as_py()) for value in pc.min_max(column).values())
    return low, high


def _score_column(table: pa.Table, path: str | Path) -> str:
    numbers = [name for name in table.column_names if is_number(table.schema.field(name).type)]
    scores = [name for name in table.column_names if NAMED.fullmatch(name) or name.lower() == "score"]
    fits = [name for name in numbers if NAMED.fullmatch(name)] or [name for name in numbers if name in scores] or scores
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
    if not names:
        raise ValueError(f"{path}: no row has a label in column {column!r}. Label some rows drawn at random.")
    if not positive and names[0] in OPPOSITE.values() and len(names) == 1:
        positive = next(name for name in OPPOSITE if OPPOSITE[name] == names[0])
    if not positive:
        fits = [name for name in names if name in OPPOSITE]
        if len(fits) != 1 or not set(names) <= {fits[0], OPPOSITE[fits[0]]}:
            raise ValueError(f"{path}: name the class that alerts look for with --class, of {', '.join(names)}.")
        return OPPOSITE[fits[0]], fits[0]
    if positive not in names:
        raise ValueError(
            f"{path}: no row is labelled {positive!r}; the labels are {', '.join(map(repr, names))}. Its "
            f"share cannot be estimated without some rows labelled {positive!r}."
        )
    rest = [name for name in names if name != positive]
    if not rest:
        raise ValueError(f"{path}: every label is {positive!r}. Label rows of the other class, too.")
    return rest[0], positive


def duration(text: str) -> np.timedelta64:
    """A time span from "30d", "2w" or "12h".

    >>> duration("30d")
    np.timedelta64(30,'D')
    """
    match = re.fullmatch(r"\s*(\d+)\s*([hdw])\w*\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"Cannot read the time span {text!r}. Write it as 30d, 2w or 12h.")
    return np.timedelta64(int(match[1]), UNITS[match[2].lower()])  # type: ignore[call-overload, no-any-return]
