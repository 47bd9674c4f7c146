"""Tables of edges, batch by batch: the ids at both ends. CSV files are read as text, in parts; so an id is what is written.
Arrays ``edge_index`` of .npz and .pt files are (2, E)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from graphcal.containers.csv_files import is_packed, text_batches
from graphcal.containers.parquet import open_parquet
from graphcal.tables.joining import edge_rows, plain_ids
from graphcal.tables.layouts import is_list, roles_of
from graphcal.tables.shards import BATCH, batches_of, format_of, naming, read_shard, shards_of
from graphcal.tables.table_checks import check_given

ENDS = ("source", "target")
CSV_BYTES_PER_EDGE = 8  # at least
FEW = 0.05  # of the edges
UNPACKED = 20  # bytes of a packed one, at most about
PAIRS = ("edge_index", "scores")  # arrays (2, E) or (E, 2): by its name, or the bare tensor of a .pt file


def edge_batches(path: str | Path, columns: Mapping[str, str] | None = None) -> Iterator[list[pa.Array]]:
    """Source and target ids of the edges, whole numbers or text, of a file or a folder of shards."""
    for shard in shards_of(path):
        named: list[str] | None = None
        for batch in shard_batches(shard):
            named = named or end_columns(batch.schema.names, columns or {}, shard)
            yield [plain_ids(batch[name], shard, name) for name in named]
        if named is None:  # no rows, and so no batches
            empty = read_shard(shard)
            yield [
                plain_ids(empty[name], shard, name) for name in end_columns(empty.column_names, columns or {}, shard)
            ]


def shard_batches(shard: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a file; those of an array edge_index as source and target."""
    form = format_of(shard)
    if form == "csv":
        with naming(shard):
            yield from text_batches(shard)
    elif form in ("npz", "pt") and (pairs := pairs_of(read_shard(shard))) is not None:
        yield pairs
    else:
        yield from batches_of(shard, size=8 * BATCH)


def pairs_of(table: pa.Table) -> pa.RecordBatch | None:
    """Both ends of the edges of an array (2, E), as PyG has it, or (E, 2); None where there is no such array."""
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
    """(2, E) the edges of a table of source and target ids, as rows of ``ids``, all in memory."""
    batches = list(edge_batches(path, columns))
    source, target = (pa.concat_arrays(_one_type([batch[k] for batch in batches])) for k in range(len(ENDS)))
    return torch.from_numpy(edge_rows(source, target, ids, path))


def remark_on_direction(edge_index: Tensor) -> list[str]:
    """A remark on edges of which hardly any has its reverse."""
    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    nodes = int(edge_index.max()) + 1 if len(source) else 0
    if not len(source) or float(torch.isin(source * nodes + target, target * nodes + source).float().mean()) > FEW:
        return []
    return [
        "edges are there in one direction only: the neighbours of a node are the targets of its edges. If edges have no "
        "direction, give each in both"
    ]


def _one_type(arrays: list[pa.Array]) -> list[pa.Array]:
    return arrays if len({a.type for a in arrays}) == 1 else [a.cast(pa.string()) for a in arrays]


def end_columns(names: list[str], columns: Mapping[str, str], shard: Path) -> list[str]:
    """The columns of both ends."""
    check_given(columns, names, shard, ENDS)
    roles = roles_of(names, columns, shard)
    for role in ENDS:
        if role not in roles:
            raise ValueError(
                f"{shard}: no column for the {role} of an edge; the columns are {', '.join(names)}. Name yours: --columns "
                f"{role}=NAME"
            )
    return [roles[role] for role in ENDS]


def about_how_many(path: str | Path) -> int:
    """The number of edges, from footers; of other formats an upper bound by their size."""
    total = 0
    for shard in shards_of(path):
        if format_of(shard) == "parquet":
            with naming(shard), open_parquet(shard) as file:
                total += int(file.metadata.num_rows)
        else:
            total += shard.stat().st_size * (UNPACKED if is_packed(shard) else 1) // CSV_BYTES_PER_EDGE
    return total
