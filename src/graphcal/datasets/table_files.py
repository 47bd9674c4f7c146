"""One table on disk, Parquet or CSV, of which columns can be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet


@dataclass(frozen=True)
class TableFile:
    """A table whose columns are known and not yet read."""

    path: Path
    names: tuple[str, ...]
    delimiter: str

    def read(self, names: list[str]) -> pa.Table:
        missing = [name for name in names if name not in self.names]
        if missing:
            found = ", ".join(self.names)
            raise ValueError(f"{self.path}: no column {missing[0]!r}; its columns are {found}; name yours by option")
        try:
            if self.path.suffix == ".parquet":
                return pyarrow.parquet.read_table(self.path, columns=names)
            convert = pyarrow.csv.ConvertOptions(include_columns=names, null_values=[""], strings_can_be_null=True)
            parse = pyarrow.csv.ParseOptions(delimiter=self.delimiter)
            return pyarrow.csv.read_csv(self.path, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid as fault:
            raise ValueError(f"{self.path}: {fault}") from fault


def open_table(folder: Path, stem: str, delimiter: str) -> TableFile:
    """nodes or edges, whichever of the two formats is there."""
    found = [path for path in (folder / f"{stem}.parquet", folder / f"{stem}.csv") if path.exists()]
    if len(found) != 1:
        what = "both are there, remove one" if found else "neither is there"
        raise ValueError(f"{folder}: expected {stem}.parquet or {stem}.csv; {what}")
    path = found[0]
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty")
    if path.suffix == ".parquet":
        try:
            return TableFile(path, tuple(pyarrow.parquet.read_schema(path).names), delimiter)
        except pa.ArrowInvalid as fault:
            raise ValueError(f"{path}: not a readable Parquet file ({fault})") from fault
    with open(path, encoding="utf-8-sig") as file:
        header = file.readline().rstrip("\r\n")
    names = tuple(name.strip('"') for name in header.split(delimiter))
    if len(names) == 1:
        other = next((mark for mark in (",", ";", "\t", "|") if mark != delimiter and mark in header), None)
        if other:
            raise ValueError(
                f"{path}: wrong delimiter: the header {header!r} has no {delimiter!r} but has {other!r}; "
                f"pass delimiter={other!r}"
            )
    return TableFile(path, names, delimiter)
