"""Read a column of times: dates, timestamps, numbers, or text that holds one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


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
