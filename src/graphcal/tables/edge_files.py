"""Tables of edges, batch by batch: the ids at both ends. CSV files are read as text, in parts; so an id is what is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from torch import Tensor

from graphcal.containers.batches import refuse_repeats
from graphcal.tables.joining import edge_rows, plain_ids
from graphcal.tables.layouts import roles_of
from graphcal.tables.shards import BATCH, FORMATS, batches_of, naming, read_shard, shards_of

ENDS = ("source", "target")
CSV_BYTES_PER_EDGE = 8  # at least


def edge_batches(path: str | Path, columns: Mapping[str, str] | None = None) -> Iterator[list[pa.Array]]:
    """Source and target ids of the edges, whole numbers or text, of a file or a folder of shards."""
    for shard in shards_of(path):
        named: list[str] | None = None
        for batch in (
            csv_batches(shard) if FORMATS[shard.suffix.lower()] == "csv" else batches_of(shard, size=8 * BATCH)
        ):
            named = named or end_columns(batch.schema.names, columns or {}, shard)
            yield [plain_ids(batch[name], shard, name) for name in named]
        if named is None:  # no rows, and so no batches
            empty = read_shard(shard)
            yield [
                plain_ids(empty[name], shard, name) for name in end_columns(empty.column_names, columns or {}, shard)
            ]


def read_edges(path: str | Path, ids: pa.Array, columns: Mapping[str, str] | None = None) -> Tensor:
    """(2, E) the edges of a table of source and target ids, as rows of ``ids``, all in memory."""
    batches = list(edge_batches(path, columns))
    source, target = (pa.concat_arrays(_one_type([batch[k] for batch in batches])) for k in range(len(ENDS)))
    return torch.from_numpy(edge_rows(source, target, ids, path))


def _one_type(arrays: list[pa.Array]) -> list[pa.Array]:
    return arrays if len({a.type for a in arrays}) == 1 else [a.cast(pa.string()) for a in arrays]


def end_columns(names: list[str], columns: Mapping[str, str], shard: Path) -> list[str]:
    """The columns of both ends."""
    roles = roles_of(names, columns, shard)
    for role in ENDS:
        if role not in roles:
            raise ValueError(
                f"{shard}: no column for the {role} of an edge; the columns are {', '.join(names)}. Name yours: --columns "
                f"{role}=NAME"
            )
    return [roles[role] for role in ENDS]


def csv_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """A CSV file in parts, every column as text."""
    parse = pa.csv.ParseOptions(delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    with naming(path):
        names = pa.csv.open_csv(path, parse_options=parse).schema.names
        refuse_repeats(names, path)
        text = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True)
        blocks = pa.csv.ReadOptions(block_size=1 << 24)
        yield from pa.csv.open_csv(path, parse_options=parse, convert_options=text, read_options=blocks)


def about_how_many(path: str | Path) -> int:
    """The number of edges, from footers; of other formats an upper bound by their size."""
    total = 0
    for shard in shards_of(path):
        if FORMATS[shard.suffix.lower()] == "parquet":
            with naming(shard), pq.ParquetFile(shard) as file:
                total += int(file.metadata.num_rows)
        else:
            total += shard.stat().st_size // CSV_BYTES_PER_EDGE
    return total
