"""Ids as row numbers, for tables and edges of any number.

The ids of a table are written to Parquet files with their row numbers while it is read. Where they are 0, 1, 2, ... in order,
they are the row numbers. Otherwise DuckDB joins the edges with them: it spills to the disk what does not fit into `MEMORY`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from graphcal.tables.joining import refuse_repeats, refuse_unknown_ends

MEMORY = "400MB"  # of DuckDB
NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"  # as text: what an id that is a number looks like
FETCH = 1 << 18  # rows

Array = NDArray[Any]
Refuse = Callable[[str | Path, int, int, object], NoReturn]  # where, how many, how many different, one of them


@dataclass
class RowNumbers:
    """The ids of a table, in files of a folder, in the order of its rows."""

    folder: Path
    threads: int = 1
    rows: int = 0
    in_order: bool = True  # every id is its row number
    files: list[Path] = field(default_factory=list)
    types: list[str] = field(default_factory=list)  # of the ids of each file

    def add(self, ids: pa.Array) -> None:
        """The ids of the next rows."""
        numbers = np.arange(self.rows, self.rows + len(ids))
        self.in_order = self.in_order and ids.type == pa.int64() and np.array_equal(ids.to_numpy(), numbers)
        self.types.append(str(ids.type))
        path = self.folder / f"ids-{len(self.files):06d}.parquet"
        pq.write_table(pa.table({"id": ids, "row": numbers}), path, compression="none", use_dictionary=False)
        self.files.append(path)
        self.rows += len(ids)

    @property
    def type(self) -> pa.DataType:
        return pa.int64() if set(self.types) == {"int64"} else pa.string()

    def refuse_duplicates(self) -> None:
        if self.in_order:
            return
        with self._database() as database, said_plainly():
            twice = "SELECT id, count(*) AS times FROM ids GROUP BY id HAVING times > 1"
            again, first = database.execute(f"SELECT sum(times - 1), min(id) FROM ({twice})").fetchone()
        if again:
            refuse_repeats("the predictions", int(again), first)

    def of(
        self, batches: Iterable[list[pa.Array]], width: int, where: str | Path, refuse: Refuse = refuse_unknown_ends
    ) -> Iterator[list[Array]]:
        """The row numbers of ids that come in batches of ``width`` columns; ids without a row are refused at the end."""
        unknown = UnknownIds()
        typed = (unknown.of_type(columns, self.type) for columns in batches)
        yield from (self._in_order(typed, unknown) if self.in_order else self._joined(typed, width, unknown))
        if unknown.ends:
            refuse(where, unknown.ends, len(unknown.names), unknown.first)

    def _in_order(self, batches: Iterable[list[pa.Array]], unknown: UnknownIds) -> Iterator[list[Array]]:
        for columns in batches:
            numbers = [column.to_numpy() for column in columns]
            known = np.logical_and.reduce([(n >= 0) & (n < self.rows) for n in numbers])
            if not known.all():
                for n, column in zip(numbers, columns):
                    unknown.add(column.filter(pa.array((n < 0) | (n >= self.rows))))
            yield [n[known] for n in numbers]

    def _joined(self, batches: Iterable[list[pa.Array]], width: int, unknown: UnknownIds) -> Iterator[list[Array]]:
        names = [f"c{k}" for k in range(width)]
        schema = pa.schema([(name, self.type) for name in names])
        source = Stream(pa.RecordBatch.from_arrays(columns, schema=schema) for columns in batches)
        joins = " ".join(f"LEFT JOIN ids AS t{k} ON {name} = t{k}.id" for k, name in enumerate(names))
        found = ", ".join(f"t{k}.row AS r{k}" for k in range(width))
        strange = ", ".join(f"CASE WHEN t{k}.row IS NULL THEN {name} END AS u{k}" for k, name in enumerate(names))
        with self._database() as database, said_plainly():
            database.register("given", pa.RecordBatchReader.from_batches(schema, source))
            answer = database.sql(f"SELECT {found}, {strange} FROM given {joins}")
            stream = getattr(answer, "to_arrow_reader", None) or answer.fetch_arrow_reader  # its name before DuckDB 1.5
            for batch in stream(FETCH):
                rows, lost = batch.columns[:width], batch.columns[width:]
                if any(column.null_count for column in rows):
                    for column in lost:
                        unknown.add(column.drop_null())
                    keep = pc.is_valid(rows[0]) if width == 1 else pc.and_(*(pc.is_valid(c) for c in rows))
                    rows = [column.filter(keep) for column in rows]
                yield [column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False) for column in rows]
        if source.fault is not None:
            raise source.fault

    def _database(self) -> Any:
        try:
            import duckdb
        except ImportError:
            raise ValueError(
                "ids that are not 0, 1, 2, ... in the order of the rows are joined by DuckDB: pip install duckdb"
            ) from None
        spill = str(self.folder / "spill").replace("'", "''")
        database = duckdb.connect()
        database.execute(f"SET temp_directory = '{spill}'")
        database.execute(f"SET memory_limit = '{MEMORY}'; SET threads = {self.threads}")
        database.execute("SET preserve_insertion_order = false; SET enable_progress_bar = false")
        parts = []
        for kind in sorted(set(self.types)):
            files = ", ".join(
                "'" + str(f).replace("'", "''") + "'" for f, t in zip(self.files, self.types) if t == kind
            )
            name = "id" if len(set(self.types)) == 1 else "id::VARCHAR AS id"  # numbers in some shards, text in others
            parts.append(f"SELECT {name}, row FROM read_parquet([{files}])")
        query = " UNION ALL ".join(parts)
        database.execute(f"CREATE VIEW ids AS {query}")
        return database


@contextmanager
def said_plainly() -> Iterator[None]:
    """A fault of DuckDB, a full disk mostly, in one line."""
    import duckdb

    try:
        yield
    except duckdb.Error as fault:
        raise ValueError(f"DuckDB cannot join the ids: {str(fault).splitlines()[0]}") from None


class Stream:
    """Batches for another library; a fault of ours ends them and is kept, to be raised as it is."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.batches = iter(batches)
        self.fault: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.batches
        except (ValueError, OSError) as fault:
            self.fault = fault


class UnknownIds:
    """Ids that have no row, as they are met."""

    def __init__(self) -> None:
        self.ends = 0
        self.first: Any = None
        self.names: set[Any] = set()

    def add(self, ids: pa.Array) -> None:
        if len(ids):
            self.first = ids[0].as_py() if self.first is None else self.first
            self.ends += len(ids)
            self.names.update(pc.unique(ids).to_pylist())

    def of_type(self, columns: list[pa.Array], wanted: pa.DataType) -> list[pa.Array]:
        """Ids as the table's; text that is not a number is unknown where those are numbers."""
        if all(column.type == wanted for column in columns):
            return columns
        if wanted == pa.string():
            return [column.cast(wanted) for column in columns]
        numbers = [
            pc.match_substring_regex(c, NUMBER) if c.type != wanted else pa.array(np.ones(len(c), bool))
            for c in columns
        ]
        for column, number in zip(columns, numbers):
            self.add(column.filter(pc.invert(number)))
        keep = numbers[0]
        for number in numbers[1:]:
            keep = pc.and_(keep, number)
        return [column.filter(keep).cast(wanted) for column in columns]
