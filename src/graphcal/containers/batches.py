"""Batches of Arrow, proved sound and counted: offsets lie inside their buffers, texts are UTF-8, and all of them together take no
more memory than the file they come from may fill."""

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


def checked(batches: Iterable[pa.RecordBatch], path: Path) -> Iterator[pa.RecordBatch]:
    """The same batches; a broken one is refused, and so is what unpacks to more than the file may fill."""
    taken = 0
    for batch in batches:
        batch.validate(full=True)
        taken += memory_of(batch)
        check_memory(path, taken, f"its {len(batch.schema.names):,} columns")
        yield batch


def memory_of(batch: pa.RecordBatch) -> int:
    """Bytes of a batch when every row has its own values: 8 for each, and its texts."""
    return sum(int(column.nbytes) + 8 * len(column) + _repeated(column) for column in batch.columns)


def _repeated(column: pa.Array) -> int:
    """Bytes of texts that a column only points to, in a dictionary or by views, when each row has a copy."""
    if isinstance(column, pa.DictionaryArray):
        texts = column.dictionary
        if not (is_text(texts.type) or pa.types.is_binary(texts.type)) or not len(texts):
            return len(column) * int(texts.nbytes // max(len(texts), 1))
        return int(pc.max(pc.binary_length(texts)).as_py() or 0) * len(column)
    if str(column.type).endswith("_view") and not pa.types.is_nested(column.type):
        views = np.frombuffer(column.buffers()[1], dtype="<i4").reshape(-1, 4)
        return int(views[column.offset : column.offset + len(column), 0].astype(np.int64).clip(0).sum())
    return 0


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
