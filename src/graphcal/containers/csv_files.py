"""CSV files as Arrow, also packed by gzip (.csv.gz). An id is what is written: leading zeros stay, and ids with them stay text.

Columns named as ids are, and columns of whole numbers, are read as text and become numbers where each is written as one. Whole
numbers that a data frame has written as floats, 17.0, are whole numbers again in columns of ids.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from graphcal.containers.batches import VALUE, check_width, refuse_repeats
from graphcal.files import check_memory

IDS = re.compile(r"(id|entity|node|src|dst|source|target)$", re.IGNORECASE)  # how names of ids end
WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"
WHOLE_AS_FLOAT = r"^-?[0-9]{1,15}\.0$"
PADDED = r"^-?0[0-9]"
PART = 1 << 24  # bytes


def delimiter_of(path: Path) -> str:
    return "\t" if ".tsv" in path.name.lower()[-7:] else ","


def is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def opened(path: Path) -> BinaryIO:
    """The file as it was before it was packed."""
    return cast(BinaryIO, gzip.open(path, "rb")) if is_packed(path) else open(path, "rb")


def check_csv(path: Path) -> list[str]:
    """The names of the columns; refuses what is no table, or unpacks to more than the file may fill."""
    mark = delimiter_of(path)
    with opened(path) as file:
        head = file.read(PART)
        if is_packed(path):
            part, taken = head, 0
            while part:
                taken += len(part) + VALUE * (part.count(mark.encode()) + part.count(b"\n"))
                check_memory(path, taken, "its unpacked content")
                part = file.read(PART)
    check_width(path, head, mark)
    first = re.split(rb"[\r\n]", head, maxsplit=1)[0]
    other = next((sign for sign in ";\t|" if mark.encode() not in first and sign.encode() in first), None)
    if other is not None:
        raise ValueError(
            f"{path}: its columns are separated by {other!r}; write it with commas (.csv) or tabs (.tsv), and numbers with "
            "decimal points"
        )
    names = list(pa.csv.open_csv(path, parse_options=_parse(path)).schema.names)
    refuse_repeats(names, path)
    return names


def _parse(path: Path) -> pa.csv.ParseOptions:
    return pa.csv.ParseOptions(delimiter=delimiter_of(path))


def read_csv(path: Path) -> pa.Table:
    """A CSV file."""
    names = check_csv(path)
    seen = pa.csv.open_csv(path, parse_options=_parse(path)).schema  # as its first part has it
    ids = [name for name in names if IDS.search(name)]
    text = {name: pa.string() for name in names if name in ids or pa.types.is_integer(seen.field(name).type)}
    convert = pa.csv.ConvertOptions(column_types=text, null_values=[""], strings_can_be_null=True)
    table = pa.csv.read_csv(path, parse_options=_parse(path), convert_options=convert)
    columns = {
        name: numbers(column, name in ids) if name in text else column for name, column in zip(names, table.columns)
    }
    return pa.table(columns) if text else table


def text_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """A CSV file in parts, every column as text."""
    names = check_csv(path)
    text = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
    )
    blocks = pa.csv.ReadOptions(block_size=PART)
    for batch in pa.csv.open_csv(path, parse_options=_parse(path), convert_options=text, read_options=blocks):
        yield pa.RecordBatch.from_arrays([without_points(column) for column in batch.columns], names=names)


def numbers(column: pa.ChunkedArray, is_id: bool) -> pa.ChunkedArray:
    """Text as whole numbers where each is written as one; of a column that is no id, as numbers where each is one."""
    column = without_points(column) if is_id else column
    if _all(column, WHOLE):
        return column.cast(pa.int64())
    if is_id or pc.any(pc.match_substring_regex(column, PADDED)).as_py():
        return column
    try:
        return column.cast(pa.float64())  # whole numbers at first, others later
    except pa.ArrowInvalid:
        return column


def without_points(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """17.0 as 17, where all are written so."""
    return pc.replace_substring_regex(column, r"\.0$", "") if _all(column, WHOLE_AS_FLOAT) else column


def _all(column: pa.ChunkedArray | pa.Array, pattern: str) -> bool:
    return bool(len(column)) and bool(pc.all(pc.match_substring_regex(column, pattern)).as_py())
