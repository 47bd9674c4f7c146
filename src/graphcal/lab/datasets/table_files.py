"""One table on disk, Parquet or CSV, of which columns can be read.

Parquet is read within the budget of `graphcal.tables.files`: equal values take a few bytes in a file, however many they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from graphcal.files import WORKING, check_regular, reading
from graphcal.tables.files import check_width, is_text, parquet_fragment, read_parquet, refuse_repeats

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
            columns = ", ".join(self.names)
            raise ValueError(
                f"{self.path}: no column {missing[0]!r}; its columns are {columns}. Name yours: --columns id=NAME, in Python "
                "id_column=NAME"
            )
        with reading(self.path, "a sound table"):
            if self.path.suffix == ".parquet":
                return _read_parquet(self.path, names, each)
            convert = pyarrow.csv.ConvertOptions(include_columns=names, null_values=[""], strings_can_be_null=True)
            parse = pyarrow.csv.ParseOptions(delimiter=self.delimiter)
            return pyarrow.csv.read_csv(self.path, parse_options=parse, convert_options=convert)


def _read_parquet(path: Path, names: list[str], each: int) -> pa.Table:
    """Read these columns; texts of more than 2 GB in all fit too."""
    table = read_parquet(path, names, each)
    for at, field in enumerate(table.schema):
        if is_text(field.type):
            table = table.set_column(at, field.name, table[field.name].cast(pa.large_string()))
    return table


def open_table(folder: Path, stem: str, delimiter: str) -> TableFile:
    """nodes or edges, whichever of the two formats is there."""
    candidates = [path for path in (folder / f"{stem}.parquet", folder / f"{stem}.csv") if path.exists()]
    if len(candidates) != 1:
        what = "both are there, remove one" if candidates else "neither is there"
        raise ValueError(f"{folder}: expected {stem}.parquet or {stem}.csv; {what}")
    path = check_regular(candidates[0])
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty")
    if path.suffix == ".parquet":
        with reading(path, "a readable Parquet file"):
            names = tuple(parquet_fragment(path).physical_schema.names)
    else:
        names = _csv_names(path, delimiter)
    refuse_repeats(names, path)
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
