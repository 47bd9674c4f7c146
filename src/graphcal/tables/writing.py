"""Parquet files of predictions: all of a file or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from graphcal.files import atomic_file


def parquet_writer(path: str, schema: pa.Schema) -> pq.ParquetWriter:
    """Probabilities without dictionaries and statistics, which tell nothing of them; whole numbers, ids mostly, without
    dictionaries, which would cost as much as all else that is written. Text and predicted classes repeat: they have them."""
    scores = [field.name for field in schema if pa.types.is_floating(field.type) or pa.types.is_list(field.type)]
    others = [field for field in schema if field.name not in scores]
    repeated = [f.name for f in others if not pa.types.is_integer(f.type) or f.name == "calibrated_prediction"]
    told = [field.name for field in others]
    return pq.ParquetWriter(path, schema, use_dictionary=repeated or False, write_statistics=told or False)


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
