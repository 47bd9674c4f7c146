"""What a Parquet file unpacks to, read off its page headers, without asking pyarrow.

A page of a few bytes can announce 2 GB, or a hundred million equal values. Footer and page headers are Thrift structures in the
compact protocol; here they are walked, and what a column takes in memory is held against the limits of `files`:

    fixed width    values x width
    text           the unpacked pages; where an encoding repeats texts (a dictionary, shared prefixes), values x longest possible

Files so large that 256 bytes for each of theirs are more than the 2 GB that a page can have are not walked.
Format: https://parquet.apache.org/docs/file-format
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from graphcal.containers.batches import checked, is_text, refuse_repeats
from graphcal.files import PER_BYTE, check_memory

WALKED = 2**31 // PER_BYTE  # bytes of a file
WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # of the physical types; 6 is text, 7 of a width of its own
TEXT, FIXED = 6, 7
REPEATING = (2, 7, 8)  # encodings: PLAIN_DICTIONARY, DELTA_BYTE_ARRAY, RLE_DICTIONARY
DEPTH = 16  # of structures in structures


def read_parquet(path: Path, columns: list[str] | None = None) -> pa.Table:
    """A whole file, in one go where it is large."""
    if os.path.getsize(path) <= WALKED:
        found = list(parquet_batches(path, columns))
        if found:
            return pa.Table.from_batches(found).replace_schema_metadata(pq.read_schema(path).metadata)
    with pq.ParquetFile(path) as file:
        refuse_repeats(file.schema_arrow.names, path)
        check_memory(path, 8 * file.metadata.num_rows, f"its {file.metadata.num_rows:,} rows")
        return file.read(columns)


def parquet_batches(
    path: Path, columns: list[str] | None = None, row_groups: range | None = None, size: int = 1 << 17
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches, each proved sound; refused as soon as they take more than the file may."""
    check_pages(path)
    small = os.path.getsize(path) <= WALKED
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        refuse_repeats(schema.names, path)
        check_memory(path, 8 * file.metadata.num_rows, f"its {file.metadata.num_rows:,} rows")
    texts = [name for name in schema.names if small and is_text(schema.field(name).type)]
    with pq.ParquetFile(path, read_dictionary=texts) as file:  # equal texts are counted before each has a copy
        groups = list(row_groups if row_groups is not None else range(file.metadata.num_row_groups))
        for batch in checked(file.iter_batches(size, groups, columns, use_threads=not small), path):
            found = set(texts).intersection(batch.schema.names)
            yield _with_texts(batch, schema, found) if found else batch


def _with_texts(batch: pa.RecordBatch, schema: pa.Schema, texts: set[str]) -> pa.RecordBatch:
    columns = {
        name: column.cast(schema.field(name).type) if name in texts else column
        for name, column in zip(batch.schema.names, batch.columns)
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def check_pages(path: Path) -> None:
    """Refuse a file whose pages announce more than it may fill."""
    if os.path.getsize(path) > WALKED:
        return
    content = Path(path).read_bytes()
    try:
        wanted = sum(chunk.memory(content) for chunk in _chunks(content))
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as fault:
        raise ValueError(f"{path}: not a readable Parquet file (its footer or a page header is broken)") from fault
    check_memory(path, wanted, "what its pages announce")


@dataclass(frozen=True)
class ColumnChunk:
    """One column of one row group."""

    kind: int
    width: int  # of a value of fixed width
    nested: bool  # texts inside lists or structures: pyarrow makes a copy of each
    start: int
    size: int
    values: int

    def memory(self, content: bytes) -> int:
        """Bytes that its values and its largest page take."""
        taken = largest = seen = dictionary = 0
        at, end = self.start, min(self.start + self.size, len(content))
        while at < end and seen < self.values:
            header, body = _structure(memoryview(content)[:end], at)
            unpacked, packed = int(header[2]), int(header[3])
            if unpacked < 0 or packed < 0:
                raise IndexError("a size below zero")
            if 7 in header:
                dictionary = max(dictionary, unpacked)
            else:
                about = header.get(5) or header.get(8) or {1: 0}
                encoding = about.get(2 if 5 in header else 4, 0)
                taken += self._values(int(about[1]), unpacked, dictionary, encoding)
                seen += int(about[1])
            largest, at = max(largest, unpacked), body + packed
        return taken + largest + dictionary

    def _values(self, count: int, unpacked: int, dictionary: int, encoding: int) -> int:
        if self.kind != TEXT:
            return count * self.width
        if encoding not in REPEATING:
            return 8 * count + unpacked
        if encoding == 7:
            return 8 * count + count * unpacked
        return 8 * count + (
            count * dictionary if self.nested else 0
        )  # at the top, texts are read as numbers of a dictionary


def _chunks(content: bytes) -> Iterator[ColumnChunk]:
    if content[:4] != b"PAR1" or content[-4:] != b"PAR1":
        raise IndexError("no mark of a Parquet file")
    length = int.from_bytes(content[-8:-4], "little")
    start = len(content) - 8 - length
    if start < 4:
        raise IndexError("a footer longer than the file")
    footer, _ = _structure(memoryview(content)[: len(content) - 8], start)
    leaves = [element for element in footer[2][1:] if not element.get(5)]
    for group in footer.get(4, []):
        for leaf, column in zip(leaves, group[1], strict=False):
            about = column[3]
            first, second = int(about[9]), int(about.get(11) or 0)
            begin = second if 0 < second < first else first
            width = int(leaf.get(2) or 0) if about[1] == FIXED else WIDTHS.get(about[1], 8)
            if begin < 0 or width < 0:
                raise IndexError("a place before the file")
            yield ColumnChunk(about[1], width, len(about[3]) > 1, begin, int(about[7]), int(about[5]))


def _structure(data: memoryview, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """A structure of the compact protocol as {field: value}, and where it ends."""
    if depth > DEPTH:
        raise RecursionError("structures in structures without end")
    found: dict[int, Any] = {}
    field = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return found, at
        step, kind = head >> 4, head & 15
        if step:
            field += step
        else:
            number, at = _varint(data, at)
            field = _signed(number)
        if kind in (1, 2):
            found[field] = kind == 1
        else:
            found[field], at = _value(data, at, kind, depth)


def _value(data: memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2, 3):
        return data[at], at + 1
    if kind in (4, 5, 6):
        number, at = _varint(data, at)
        return _signed(number), at
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return None, at + length
    if kind in (9, 10):
        head = data[at]
        count, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
        values = []
        for _ in range(count):
            value, at = _value(data, at, head & 15, depth) if head & 15 != 12 else _structure(data, at, depth + 1)
            values.append(value)
        return values, at
    if kind == 12:
        return _structure(data, at, depth + 1)
    raise KeyError(f"a value of type {kind}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise IndexError("a number without end")


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
