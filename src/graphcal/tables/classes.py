"""Class names, and labels as class numbers.

The order of the classes comes from numbers, from column names or from ``--classes``; never from the labels that occur.

    columns numbered, labels numbers (also as text: '10' is ten)      class k is column k
    columns numbered or a list, labels text                           --classes a,b,c in the order of the columns
    columns named after the classes                                   by name; numbers only with --classes, number 0 first
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphcal.tables.files import holds_text, one_array

WHOLE = r"^[+-]?[0-9]{1,18}$"
NONE = "-1"  # no label


@dataclass(frozen=True)
class Classes:
    """The classes of a table, in the order of its scores."""

    names: tuple[str, ...]
    declared: bool = False  # in this order by --classes: labels may then be numbers, 0 the first

    @classmethod
    def numbered(cls, count: int) -> Classes:
        return cls(tuple(str(k) for k in range(count)))

    @property
    def are_numbers(self) -> bool:
        """Named 0, 1, 2, ... in this order."""
        return self.names == tuple(str(k) for k in range(len(self.names)))

    def shown(self) -> str:
        return ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")


def number_type(classes: int) -> type[np.signedinteger[Any]]:
    """The type of a column of predicted classes."""
    return np.int16 if classes <= 1 << 15 else np.int32


def declared(names: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """--classes a,b,c as names, each once."""
    if names is None:
        return None
    given = names.split(",") if isinstance(names, str) else names
    classes = tuple(canonical_name(name) for name in given if str(name).strip())
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise ValueError(f"--classes must name two classes or more, each once; got {', '.join(classes) or 'none'}")
    return classes


def class_order(
    count: int, columns: tuple[str, ...] | None, names: tuple[str, ...] | None, where: str | Path
) -> Classes:
    """The classes of ``count`` scores: those that the columns are named after, else those that --classes ``names``."""
    if names is not None and len(names) != count:
        raise ValueError(f"{where}: scores for {count} classes, but --classes names {len(names)}: {', '.join(names)}")
    if columns is None:
        return Classes.numbered(count) if names is None else Classes(names, declared=True)
    if names is not None and set(names) != set(columns):
        raise ValueError(f"{where}: the columns are named {', '.join(columns)}, --classes says {', '.join(names)}")
    if names is not None and names != columns:  # the scores of several columns are in the order of --classes already
        raise ValueError(
            f"{where}: one column of scores is that of the second class, {columns[1]}: say --classes {','.join(columns)}"
        )
    return Classes(columns, declared=names is not None)


def canonical_name(value: object) -> str:
    """A class's name as text: whole numbers without leading zeros."""
    text = str(value).strip()
    return str(int(text)) if re.match(WHOLE, text) else text


def distinct(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Return the distinct values of a column and the position (N,) of each row's value, -1 where there is none."""
    column = one_array(column)
    if pa.types.is_dictionary(column.type):  # may hold values that no row has
        column = column.dictionary_decode()
    if pa.types.is_null(column.type) or pa.types.is_nested(column.type):
        return column, np.where(column.is_null().to_numpy(zero_copy_only=False), -1, np.arange(len(column)))
    codes = (column.cast(pa.string()) if holds_text(column.type) else column).dictionary_encode()
    return codes.dictionary, pc.fill_null(codes.indices, -1).to_numpy(zero_copy_only=False)


def canonical(column: pa.Array, where: str | Path, name: str) -> pa.Array:
    """Class names as text, null where there is none: empty text and NaN count as none."""
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, "True", "False")
    if pa.types.is_decimal(column.type):  # as warehouses write whole numbers
        column = column.cast(pa.float64())
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            example = next(v for v in column.to_pylist() if v is not None and v % 1)
            raise ValueError(f"{where}: column {name!r} must hold class numbers or names, got {example}") from None
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if not (holds_text(column.type) or pa.types.is_null(column.type)):
        raise ValueError(f"{where}: column {name!r} must hold class numbers or names, found {column.type}")
    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pa.array([canonical_name(v) if v else None for v in text.to_pylist()], pa.string())


def class_numbers(column: pa.ChunkedArray | pa.Array, classes: Classes, where: str | Path, name: str) -> np.ndarray:
    """Convert labels to class numbers (N,), -1 where there is none; the label -1 is none, unless a class is called so."""
    values, positions = distinct(column)
    labels = canonical(values, where, name)
    expected, names = set(classes.names), list(classes.names)
    present = [v for v in pc.unique(labels).to_pylist() if v is not None]
    if NONE in present and NONE not in expected:
        present.remove(NONE)
        refuse_signs(present, classes, where, name)
        labels = pc.if_else(pc.equal(labels, NONE), pa.scalar(None, pa.string()), labels)
    if not set(present) <= expected:
        lower = {v.lower() for v in expected}
        if {v.lower() for v in present} <= lower and len(lower) == len(expected):
            labels, names = pc.utf8_lower(labels), [v.lower() for v in names]  # true for True
        elif _are_opposites(classes) and set(present) <= {"True", "False"}:
            names = ["False", "True"]
        elif _are_opposites(classes) and set(present) <= {"0", "1"}:
            names = ["0", "1"]
        elif classes.declared and not any(re.match(WHOLE, v) for v in names) and _within(present, len(names)):
            names = [str(k) for k in range(len(names))]
        else:
            refuse(present, classes, where, name)
    codes = pc.fill_null(pc.index_in(labels, value_set=pa.array(names, pa.string())), -1)
    of_values = np.append(codes.to_numpy(zero_copy_only=False), -1).astype(np.int64)  # the last is that of no value
    numbers: np.ndarray = of_values[positions]
    return numbers


def _are_opposites(classes: Classes) -> bool:
    """Two classes of which the second is what the table is about: 0 and 1, False and True, not fraud and fraud."""
    first, second = classes.names if len(classes.names) == 2 else ("", "")
    return (first.lower(), second.lower()) in (("0", "1"), ("false", "true")) or first == f"not {second}"


def refuse_signs(present: Sequence[str], classes: Classes, where: str | Path, name: str) -> None:
    """Labels -1 and 1 of two classes: taken for "no label", the -1 would leave one class alone."""
    if len(classes.names) == 2 and set(present) <= {"1"}:
        raise ValueError(
            f"{where}: column {name!r} holds -1 and 1. If they are the two classes, say so with --classes -1,1, the class of the "
            "first score first. If -1 means no label, class 0 has none, and nothing can be fitted"
        )


def _within(present: Sequence[str], count: int) -> bool:
    return all(re.match(WHOLE, v) and 0 <= int(v) < count for v in present)


def refuse(present: Sequence[str], classes: Classes, where: str | Path, name: str) -> None:
    strange = sorted(set(present) - set(classes.names))
    count = len(classes.names)
    if classes.are_numbers:
        numbers = [int(v) for v in strange if re.match(WHOLE, v)]
        if len(numbers) == len(strange):
            raise ValueError(f"{where}: labels must lie in 0..{count - 1}, got {max(numbers, key=abs)}")
        raise ValueError(
            f"{where}: column {name!r} holds names ({', '.join(strange[:4])}), but the scores are numbered 0..{count - 1}: which "
            f"column is which class? Say --classes with the {count} names in the order of the scores, or name the columns after "
            f"them (prob_{strange[0]})"
        )
    if all(re.match(WHOLE, v) for v in strange) and not any(re.match(WHOLE, v) for v in classes.names):
        raise ValueError(
            f"{where}: column {name!r} holds numbers ({', '.join(strange[:4])}), but the classes are {classes.shown()}: which "
            f"number is which class? Say --classes with all {count} names, number 0 first"
        )
    raise ValueError(f"{where}: label {strange[0]!r} in column {name!r} is none of the classes {classes.shown()}")


def sorted_names(names: Collection[str]) -> tuple[str, ...]:
    """Sort class names: numbers by value, text by name."""
    whole = all(re.match(WHOLE, name) for name in names)
    return tuple(sorted(names, key=int) if whole else sorted(names))


def classes_in(column: pa.ChunkedArray | pa.Array, where: str | Path, name: str) -> set[str]:
    """Collect the classes that occur in a column."""
    return {v for v in canonical(distinct(column)[0], where, name).to_pylist() if v not in (None, NONE)}
