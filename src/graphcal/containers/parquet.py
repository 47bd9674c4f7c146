"""Read Parquet files with pyarrow, within a budget of rows and bytes.

The footer is parsed with limits: no list and no text in it may be longer than the file. The rows that it declares are held
against the limits of `files` before a page is read, and the rows that come are counted by `checked`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from graphcal.containers.batches import VALUE, checked, is_binary, is_text, refuse_repeats
from graphcal.files import PER_BYTE, check_memory

SMALL = 2**31 // PER_BYTE  # bytes of a file; a larger one may fill the 2 GB that a page can hold
FEW = 1 << 10  # rows of texts that are read without a dictionary
FOOTER_ITEMS = 10**6  # of a list in a footer; pyarrow's default
FOOTER_TEXT = 10**8  # bytes of a text in a footer; pyarrow's default


def open_parquet(path: Path, read_dictionary: list[str] | None = None) -> pq.ParquetFile:
    """Open a Parquet file. A footer that announces more than the file holds is refused before memory is taken."""
    size = os.path.getsize(path)
    return pq.ParquetFile(
        path,
        read_dictionary=read_dictionary,
        thrift_string_size_limit=max(1, min(size, FOOTER_TEXT)),
        thrift_container_size_limit=max(1, min(size, FOOTER_ITEMS)),
    )


def read_parquet(path: Path, columns: list[str] | None = None, each: int = VALUE) -> pa.Table:
    """Read a whole file, or some columns of it; ``each`` is the memory that one value will take."""
    batches = list(parquet_batches(path, columns, each=each))
    with open_parquet(path) as file:
        schema = file.schema_arrow
    if not batches:
        return schema.empty_table().select(columns or schema.names)
    return pa.Table.from_batches(batches).replace_schema_metadata(schema.metadata)


def parquet_batches(
    path: Path,
    columns: list[str] | None = None,
    row_groups: range | None = None,
    size: int = 1 << 17,
    each: int = VALUE,
) -> Iterator[pa.RecordBatch]:
    """Read a file in batches of at most ``size`` rows.

    Texts of a small file are read as codes of a dictionary and copied after they are counted: a text of 1 MB that a million
    rows repeat takes a few bytes in the file.
    """
    with open_parquet(path) as file:
        schema, about = file.schema_arrow, file.metadata
        refuse_repeats(schema.names, path)
        groups = list(range(about.num_row_groups) if row_groups is None else row_groups)
        rows = about.num_rows if row_groups is None else sum(about.row_group(k).num_rows for k in groups)
        check_memory(path, each * len(columns or schema.names) * rows, f"its {rows:,} rows")
        small = os.path.getsize(path) <= SMALL
        texts = [field.name for field in schema if small and (is_text(field.type) or is_binary(field.type))]
    size = max(1, min(size, rows))  # pages may hold more rows than were declared
    batches = (
        _with_codes(path, texts, groups, columns, size) if texts else _plain(path, groups, columns, size, not small)
    )
    for batch in checked(batches, path, rows, each):
        yield _with_types(batch, schema) if texts else batch


def _plain(
    path: Path, groups: list[int], columns: list[str] | None, size: int, use_threads: bool
) -> Iterator[pa.RecordBatch]:
    with open_parquet(path) as file:
        yield from file.iter_batches(size, groups, columns, use_threads=use_threads)


def _with_codes(
    path: Path, texts: list[str], groups: list[int], columns: list[str] | None, size: int
) -> Iterator[pa.RecordBatch]:
    """Read texts as codes; from where pyarrow cannot (pages in a delta encoding), read them as they are, a few rows at a time."""
    done = 0
    try:
        with open_parquet(path, texts) as file:
            for batch in file.iter_batches(size, groups, columns, use_threads=False):
                done += batch.num_rows
                yield batch
        return
    except OSError:
        pass
    for batch in _plain(path, groups, columns, min(size, FEW), False):
        if batch.num_rows > done:
            yield batch.slice(done)
        done = max(0, done - batch.num_rows)


def _with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if column.type == schema.field(name).type else column.cast(schema.field(name).type)
        for name, column in zip(batch.schema.names, batch.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
