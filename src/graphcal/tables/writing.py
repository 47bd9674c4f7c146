"""Parquet files of predictions: all of a file or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from graphcal.files import atomic_file


def parquet_writer(path: str, schema: pa.Schema) -> pq.ParquetWriter:
    """Float columns without dictionaries and statistics: neither tells anything of probabilities."""
    plain = [field.name for field in schema if pa.types.is_floating(field.type) or pa.types.is_list(field.type)]
    tabled = [field.name for field in schema if field.name not in plain]
    return pq.ParquetWriter(path, schema, use_dictionary=tabled or False, write_statistics=tabled or False)


def write_table(path: Path, tables: Iterable[pa.Table | pa.RecordBatch]) -> Path:
    """Tables of one schema, one after the other, as one Parquet file."""
    writer = None
    with atomic_file(path) as file:
        for table in tables:
            writer = writer or parquet_writer(file.name, table.schema)
            writer.write(table)
        if writer is not None:
            writer.close()
    return path
