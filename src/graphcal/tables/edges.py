"""Tables of edges: the ids at both ends, and ids as row numbers for any number of rows and edges.

CSV files are read as text, in parts, so that an id is what is written. Arrays ``edge_index`` of npz and pt files are (2, E).

`RowNumbers` writes the ids of a table with their row numbers to Parquet files while the table is read. Where ids are 0, 1, 2, ...
in order, they are the row numbers. Otherwise DuckDB joins the edges with them: it spills to the disk what does not fit into
`MEMORY`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcal.files import file_errors
from graphcal.tables.files import (
    BATCH,
    WHOLE,
    count_rows,
    csv_text_batches,
    format_of,
    is_list,
    is_packed,
    plain_ids,
    read_batches,
    read_table_file,
    shards_of,
)
from graphcal.tables.labels import ENDS, refuse_duplicates, refuse_repeated_ids, same_type
from graphcal.tables.layouts import roles_of
from graphcal.tables.reading import check_given

CSV_BYTES_PER_EDGE = 8  # at least
FEW = 0.05  # of the edges
UNPACKED = 20  # bytes of a packed one, at most about
PAIRS = ("edge_index", "scores")  # arrays (2, E) or (E, 2): by its name, or the bare tensor of a pt file
MEMORY = "400MB"  # of DuckDB
FETCH = 1 << 18  # rows

Array = NDArray[Any]
Refuse = Callable[[str | Path, int, int, object], NoReturn]  # where, how many, how many different, one of them


def edge_batches(path: str | Path, columns: Mapping[str, str] | None = None) -> Iterator[list[pa.Array]]:
    """Read the source and target ids of edges, whole numbers or text, from a file or a folder of shards."""
    for shard in shards_of(path):
        named: list[str] | None = None
        for batch in shard_batches(shard):
            named = named or end_columns(batch.schema.names, columns or {}, shard)
            yield [plain_ids(batch[name], shard, name) for name in named]
        if named is None:  # no rows, and so no batches
            empty = read_table_file(shard)
            yield [
                plain_ids(empty[name], shard, name) for name in end_columns(empty.column_names, columns or {}, shard)
            ]


def shard_batches(shard: Path) -> Iterator[pa.RecordBatch]:
    """Read the batches of a file; an array edge_index as source and target."""
    form = format_of(shard)
    if form == "csv":
        with file_errors(shard):
            yield from csv_text_batches(shard)
    elif form in ("npz", "pt") and (pairs := pairs_of(read_table_file(shard))) is not None:
        yield pairs
    else:
        yield from read_batches(shard, size=8 * BATCH)


def pairs_of(table: pa.Table) -> pa.RecordBatch | None:
    """Return both ends of the edges of an array (2, E), as PyG has it, or (E, 2); None where there is no such array."""
    name = next((n for n in PAIRS if n in table.column_names and is_list(table.schema.field(n).type)), None)
    if name is None:
        return None
    column = table[name].combine_chunks()
    flat = np.asarray(column.flatten()).reshape(len(column), -1)
    ends = flat if len(flat) == 2 else flat.T
    if len(ends) != 2:
        raise ValueError(f"an array of edges is (2, E) or (E, 2); {name!r} has shape {flat.shape}")
    return pa.RecordBatch.from_arrays([pa.array(end) for end in np.ascontiguousarray(ends)], names=list(ENDS))


def read_edges(path: str | Path, ids: pa.Array, columns: Mapping[str, str] | None = None) -> Tensor:
    """Read the edges (2, E) of a table of source and target ids, as rows of ``ids``, all in memory."""
    batches = list(edge_batches(path, columns))
    source, target = (pa.concat_arrays(_one_type([batch[k] for batch in batches])) for k in range(len(ENDS)))
    return torch.from_numpy(edge_rows(source, target, ids, path))


def remark_on_edges(edge_index: Tensor) -> list[str]:
    """Note edges that join no two nodes, or of which hardly any has its reverse."""
    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    if not len(source):
        return ["the edges join no two different rows: no row has a neighbour, and every row is a community of its own"]
    nodes = int(edge_index.max()) + 1
    if float(torch.isin(source * nodes + target, target * nodes + source).float().mean()) > FEW:
        return []
    return [
        "edges are there in one direction only: the neighbours of a node are the targets of its edges. If edges have no "
        "direction, give each in both"
    ]


def _one_type(arrays: list[pa.Array]) -> list[pa.Array]:
    return arrays if len({a.type for a in arrays}) == 1 else [a.cast(pa.string()) for a in arrays]


def end_columns(names: list[str], columns: Mapping[str, str], shard: Path) -> list[str]:
    """Return the columns of both ends."""
    check_given(columns, names, shard, ENDS)
    roles = roles_of(names, columns, shard)
    for role in ENDS:
        if role not in roles:
            raise ValueError(
                f"{shard}: no column for the {role} of an edge; the columns are {', '.join(names)}. Call it "
                f"{'src' if role == 'source' else 'dst'}, or name it: --columns {role}=NAME"
            )
    return [roles[role] for role in ENDS]


def edge_count_bound(path: str | Path) -> int:
    """Return the number of edges, from footers; of other formats an upper bound by their size."""
    total = 0
    for shard in shards_of(path):
        if format_of(shard) == "parquet":
            total += count_rows(shard)
        else:
            total += shard.stat().st_size * (UNPACKED if is_packed(shard) else 1) // CSV_BYTES_PER_EDGE
    return total


def edge_rows(source: pa.Array, target: pa.Array, ids: pa.Array, where: str | Path) -> np.ndarray:
    """Return the rows (2, E) of both ends of every edge; refuse an end that has no row."""
    refuse_duplicates(ids, "the predictions")
    ends = []
    for column in (source, target):
        wanted, all_ids = same_type(column, ids)
        rows = pc.index_in(wanted, value_set=all_ids)
        if rows.null_count:
            strange = pc.unique(wanted.filter(rows.is_null()))
            refuse_unknown_ends(where, rows.null_count, len(strange), strange[0].as_py())
        ends.append(rows.to_numpy(zero_copy_only=False).astype(np.int64))
    return np.stack(ends)


def refuse_unknown_ends(where: str | Path, ends: int, nodes: int, example: object) -> NoReturn:
    raise ValueError(
        f"{where}: {ends:,} ends of edges name {nodes:,} nodes without a prediction (first: {example!r}). A neighbourhood that "
        "is cut off misleads a graph-aware calibration: predict all nodes (GraphStorm: infer_all_target_nodes), or leave the "
        "edges to such nodes out of the file on purpose"
    )


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
        """Add the ids of the next rows."""
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
        with self._database() as database, _duckdb_errors():
            twice = "SELECT id, count(*) AS times FROM ids GROUP BY id HAVING times > 1"
            again, first = database.execute(f"SELECT sum(times - 1), min(id) FROM ({twice})").fetchone()
        if again:
            refuse_repeated_ids("the predictions", int(again), first)

    def of(
        self, batches: Iterable[list[pa.Array]], width: int, where: str | Path, refuse: Refuse = refuse_unknown_ends
    ) -> Iterator[list[Array]]:
        """Return the row numbers of ids that come in batches of ``width`` columns; refuse ids without a row at the end."""
        unknown = UnknownIds()
        typed = (unknown.of_type(columns, self.type) for columns in batches)
        yield from (self._in_order(typed, unknown) if self.in_order else self._joined(typed, width, unknown))
        if unknown.ends:
            refuse(where, unknown.ends, len(unknown.names), unknown.first)

    def _in_order(self, batches: Iterable[list[pa.Array]], unknown: UnknownIds) -> Iterator[list[Array]]:
        for columns in batches:
            numbers = [column.to_numpy() for column in columns]
            inside = np.logical_and.reduce([(n >= 0) & (n < self.rows) for n in numbers])
            if not inside.all():
                for n, column in zip(numbers, columns):
                    unknown.add(column.filter(pa.array((n < 0) | (n >= self.rows))))
            yield [n[inside] for n in numbers]

    def _joined(self, batches: Iterable[list[pa.Array]], width: int, unknown: UnknownIds) -> Iterator[list[Array]]:
        names = [f"c{k}" for k in range(width)]
        schema = pa.schema([(name, self.type) for name in names])
        source = Stream(pa.RecordBatch.from_arrays(columns, schema=schema) for columns in batches)
        joins = " ".join(f"LEFT JOIN ids AS t{k} ON {name} = t{k}.id" for k, name in enumerate(names))
        rows_sql = ", ".join(f"t{k}.row AS r{k}" for k in range(width))
        strange = ", ".join(f"CASE WHEN t{k}.row IS NULL THEN {name} END AS u{k}" for k, name in enumerate(names))
        with self._database() as database, _duckdb_errors():
            database.register("given", pa.RecordBatchReader.from_batches(schema, source))
            answer = database.sql(f"SELECT {rows_sql}, {strange} FROM given {joins}")
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
def _duckdb_errors() -> Iterator[None]:
    """Report an error of DuckDB, mostly a full disk, in one line."""
    import duckdb

    try:
        yield
    except duckdb.Error as fault:
        raise ValueError(f"DuckDB cannot join the ids: {str(fault).splitlines()[0]}") from None


class Stream:
    """Batches for another library; an error of ours ends them and is kept, to be raised as it is."""

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
            pc.match_substring_regex(c, WHOLE) if c.type != wanted else pa.array(np.ones(len(c), bool)) for c in columns
        ]
        for column, number in zip(columns, numbers):
            self.add(column.filter(pc.invert(number)))
        keep = numbers[0]
        for number in numbers[1:]:
            keep = pc.and_(keep, number)
        return [column.filter(keep).cast(wanted) for column in columns]
