"""One table on disk, Parquet or CSV, of which columns can be read.

What a Parquet file announces is held against the limits in `files` before it is read: a run of equal values takes a few bytes
there, whatever its length.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from graphcal.containers.batches import check_width, is_text
from graphcal.containers.parquet import check_pages
from graphcal.files import WORKING, check_memory, check_regular, reading

BATCH = 8192  # rows of Parquet read at a time
MARKS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class TableFile:
    """A table whose columns are known and not yet read."""

    path: Path
    names: tuple[str, ...]
    delimiter: str

    def read(self, names: list[str], each: int = WORKING) -> pa.Table:
        """These columns; ``each`` is the memory that one of their values will take."""
        missing = sorted(set(names).difference(self.names))
        if missing:
            found = ", ".join(self.names)
            raise ValueError(
                f"{self.path}: no column {missing[0]!r}; its columns are {found}. Name yours: --columns id=NAME, in Python "
                "id_column=NAME"
            )
        with reading(self.path, "a sound table"):
            if self.path.suffix == ".parquet":
                return self._read_parquet(names, each)
            convert = pyarrow.csv.ConvertOptions(include_columns=names, null_values=[""], strings_can_be_null=True)
            parse = pyarrow.csv.ParseOptions(delimiter=self.delimiter)
            return pyarrow.csv.read_csv(self.path, parse_options=parse, convert_options=convert)

    def _read_parquet(self, names: list[str], each: int) -> pa.Table:
        """Batch after batch, so that a file that unpacks to more than it may is left before memory is full."""
        check_pages(self.path)
        with pyarrow.parquet.ParquetFile(self.path) as file:
            schema = file.schema_arrow
            words = [name for name in names if is_text(schema.field(name).type)]
            check_memory(self.path, each * len(names) * file.metadata.num_rows, f"its {file.metadata.num_rows:,} rows")
        batches, taken = [], 0
        with pyarrow.parquet.ParquetFile(self.path, read_dictionary=words) as file:  # equal texts are read once
            for batch in file.iter_batches(BATCH, columns=names, use_threads=False):
                taken += batch.nbytes + each * batch.num_rows + sum(_unpacked(batch[name]) for name in words)
                check_memory(self.path, taken, f"columns {', '.join(names[:3])}")
                batches.append(batch)
        if not batches:
            return schema.empty_table().select(names)
        table = pa.Table.from_batches(batches)
        for name in words:
            table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.large_string()))
        table.validate(full=True)
        return table


def _unpacked(column: pa.Array) -> int:
    """Bytes of a column of texts when every row has its own."""
    if not isinstance(column, pa.DictionaryArray):
        return 0
    longest = pc.max(pc.binary_length(column.dictionary)).as_py() if len(column.dictionary) else 0
    return int(longest or 0) * len(column)


def open_table(folder: Path, stem: str, delimiter: str) -> TableFile:
    """nodes or edges, whichever of the two formats is there."""
    found = [path for path in (folder / f"{stem}.parquet", folder / f"{stem}.csv") if path.exists()]
    if len(found) != 1:
        what = "both are there, remove one" if found else "neither is there"
        raise ValueError(f"{folder}: expected {stem}.parquet or {stem}.csv; {what}")
    path = check_regular(found[0])
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty")
    if path.suffix == ".parquet":
        with reading(path, "a readable Parquet file"):
            names = tuple(pyarrow.parquet.read_schema(path).names)
    else:
        names = _csv_names(path, delimiter)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{path}: column {twice[0]!r} is there twice; rename one of them")
    return TableFile(path, names, delimiter)


def _csv_names(path: Path, delimiter: str) -> tuple[str, ...]:
    """The columns of a CSV file, as the reader of its rows sees them."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ValueError(f"a delimiter is one character, such as {', '.join(map(repr, MARKS))}; got {delimiter!r}")
    try:
        with open(path, encoding="utf-8-sig") as file:
            header = file.readline(1 << 24).rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8 text; save the table again with the encoding UTF-8") from None
    check_width(path, header.encode(), delimiter)
    with reading(path, "a readable CSV file"):
        parse = pyarrow.csv.ParseOptions(delimiter=delimiter)
        with pyarrow.csv.open_csv(path, parse_options=parse) as file:
            names = tuple(file.schema.names)
    other = next((mark for mark in MARKS if mark != delimiter and mark in header), None)
    if len(names) == 1 and other:
        raise ValueError(
            f"{path}: wrong delimiter: the header {header[:80]!r} has no {delimiter!r} but has {other!r}; "
            f"give it: --delimiter {other!r}, in Python delimiter={other!r}"
        )
    return names
