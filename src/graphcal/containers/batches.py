"""Batches of Arrow within a budget of rows and bytes.

`checked` is the budget of every reader. Each batch is proved sound (offsets inside their buffers, texts in UTF-8) and counted.
A file is refused as soon as its batches hold more rows than it declares, or take more memory than a file of its size may fill.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphcal.files import check_memory

COLUMN = 1 << 14  # bytes that pyarrow takes for a column of CSV, whatever is in it
VALUE = 8  # bytes of memory for each value, at least


def checked(
    batches: Iterable[pa.RecordBatch], path: Path, rows: int | None = None, each: int = VALUE
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file that declares ``rows`` rows; ``each`` is the memory that one value will take."""
    taken = count = 0
    for batch in batches:
        batch.validate(full=True)
        count += batch.num_rows
        if rows is not None and count > rows:
            raise ValueError(f"{path}: its footer declares {rows:,} rows, its pages hold more; write the file again")
        taken += memory_of(batch, each)
        check_memory(path, taken, f"its {len(batch.schema.names):,} columns")
        yield batch
    if rows is not None and count < rows:
        raise ValueError(f"{path}: its footer declares {rows:,} rows, its pages hold {count:,}; write the file again")


def memory_of(batch: pa.RecordBatch, each: int = VALUE) -> int:
    """Bytes of a batch when every row has its own values: ``each`` for every one, and its texts."""
    return sum(int(column.nbytes) + each * len(column) + _repeated(column) for column in batch.columns)


def _repeated(column: pa.Array) -> int:
    """Bytes of texts that a column only points to, in a dictionary or by views, when each row has a copy."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        texts = column.dictionary
        if not (is_text(texts.type) or is_binary(texts.type)):
            return len(column) * int(texts.nbytes // max(len(texts), 1))
        return int(pc.sum(pc.binary_length(texts).take(column.indices)).as_py() or 0)
    if str(kind).endswith("_view") and not pa.types.is_nested(kind):
        views = np.frombuffer(column.buffers()[1], dtype="<i4").reshape(-1, 4)
        return int(views[column.offset : column.offset + len(column), 0].astype(np.int64).clip(0).sum())
    return 0


def is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def holds_text(kind: pa.DataType) -> bool:
    """Text of any type of Arrow's: short, large, by views, or in a dictionary."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_text(kind) or bool(pa.types.is_string_view(kind))


def check_width(path: Path, head: bytes, delimiter: str) -> None:
    """Refuse a CSV file whose header has more columns than the file may fill memory for: a comma makes one."""
    header = re.search(rb"[^\r\n]+", head)
    columns = 1 + (header[0].count(delimiter.encode()) if header else 0)
    check_memory(path, COLUMN * columns, f"its {columns:,} columns")


def refuse_repeats(names: list[str], path: Path) -> None:
    """Refuse columns of the same name."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ValueError(f"{path}: two columns are called {twice[0]!r}; the columns are {shown}")
