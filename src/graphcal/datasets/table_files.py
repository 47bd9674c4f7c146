"""One table on disk, Parquet or CSV, of which columns can be read.

What a Parquet file announces is held against `limits` before it is read: a run of equal values takes a few bytes there, whatever
its length.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from graphcal.files import reading
from graphcal.limits import WORKING, check_memory, check_regular

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
            raise ValueError(f"{self.path}: no column {missing[0]!r}; its columns are {found}; name yours by option")
        with reading(self.path, "a sound table"):
            if self.path.suffix == ".parquet":
                return self._read_parquet(names, each)
            convert = pyarrow.csv.ConvertOptions(include_columns=names, null_values=[""], strings_can_be_null=True)
            parse = pyarrow.csv.ParseOptions(delimiter=self.delimiter)
            return pyarrow.csv.read_csv(self.path, parse_options=parse, convert_options=convert)

    def _read_parquet(self, names: list[str], each: int) -> pa.Table:
        with pyarrow.parquet.ParquetFile(self.path) as file:
            about, schema = file.metadata, file.schema_arrow
        check_memory(self.path, each * _announced(about, set(names)), f"its {about.num_rows:,} rows")
        words = [name for name in names if _is_text(schema.field(name).type)]
        table = pyarrow.parquet.read_table(self.path, columns=names, read_dictionary=words, use_threads=False)
        for name in words:  # equal texts were read once: held against the limit before each row has its own
            longest = max((pc.max(pc.binary_length(c.dictionary)).as_py() or 0 for c in table[name].chunks), default=0)
            check_memory(self.path, longest * table.num_rows, f"column {name!r}")
            table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.large_string()))
        table.validate(full=True)
        return table


def _announced(about: pyarrow.parquet.FileMetaData, names: set[str]) -> int:
    """How many values the columns of that name hold, those inside lists included."""
    groups = (about.row_group(number) for number in range(about.num_row_groups))
    parts = (group.column(k) for group in groups for k in range(group.num_columns))
    return sum(part.num_values for part in parts if part.path_in_schema.split(".")[0] in names)


def _is_text(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_large_string))


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
    with reading(path, "a readable CSV file"):
        parse = pyarrow.csv.ParseOptions(delimiter=delimiter)
        with pyarrow.csv.open_csv(path, parse_options=parse) as file:
            names = tuple(file.schema.names)
    other = next((mark for mark in MARKS if mark != delimiter and mark in header), None)
    if len(names) == 1 and other:
        raise ValueError(
            f"{path}: wrong delimiter: the header {header[:80]!r} has no {delimiter!r} but has {other!r}; "
            f"pass delimiter={other!r}"
        )
    return names
