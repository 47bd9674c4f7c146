"""What a graph-aware calibration reads off the graph around every row, computed once for a whole table.

Ids become row numbers by Arrow's hash tables, edges a sparse matrix: no loop over edges, no edge list in Python. The whole graph
is in memory for this step: logits (N, C) in single precision, both ends of E edges as 64 bit numbers. The result (N, K) lies in
a file that workers map.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch_geometric.data import Data

from graphcal.core import Outputs
from graphcal.files import atomic_file
from graphcal.tables.joining import edge_rows, match_ids, plain_ids
from graphcal.tables.layouts import roles_of
from graphcal.tables.scorer import Scorer
from graphcal.tables.shards import read_shard, shards_of
from graphcal.tables.sources import Source


def read_edges(path: str | Path, ids: pa.Array, columns: Mapping[str, str] | None = None) -> torch.Tensor:
    """(2, E) the edges of a table of source and target ids, as rows of ``ids``."""
    ends: dict[str, list[pa.Array]] = {"source": [], "target": []}
    for shard in shards_of(path):
        table = read_shard(shard)
        roles = roles_of(table.column_names, columns or {}, shard)
        for role, found in ends.items():
            if role not in roles:
                raise ValueError(
                    f"{shard}: no column for the {role} of an edge; the columns are {', '.join(table.column_names)}. Name yours: "
                    f"--columns {role}=NAME"
                )
            found.append(plain_ids(table[roles[role]], shard, roles[role]))
    source, target = (pa.concat_arrays(_one_type(found)) for found in ends.values())
    return torch.from_numpy(edge_rows(source, target, ids, path))


def _one_type(arrays: list[pa.Array]) -> list[pa.Array]:
    return arrays if len({a.type for a in arrays}) == 1 else [a.cast(pa.string()) for a in arrays]


def read_ids(path: str | Path, ids: pa.Array) -> torch.Tensor:
    """(N,) bool: the rows whose id is in a table of ids."""
    tables = [read_shard(shard) for shard in shards_of(path)]
    table = pa.concat_tables(tables, promote_options="permissive")
    name = roles_of(table.column_names, {}, path).get("id", table.column_names[0])
    others = plain_ids(table[name], path, name)
    found = match_ids(ids, others, path)
    if found.unknown:
        raise ValueError(f"{path}: {found.unknown:,} ids have no prediction (first: {found.example!r})")
    return torch.from_numpy(found.rows >= 0)


def edges_context(
    scorer: Scorer,
    files: Source,
    edges: str | Path | None,
    train_ids: str | Path | None,
    out: Path,
    columns: Mapping[str, str],
    key: str,
) -> tuple[Path, str]:
    """A file with the context (N, K) of all rows, and the key of what it was made from."""
    if edges is None:
        raise ValueError(
            f"the calibration reads the graph around every node ({type(scorer.calibration).__name__}): give its edges with "
            "--edges, a table of source and target ids"
        )
    name = scorer.layout.roles.get("id")
    if name is None or scorer.layout.form == "long":
        raise ValueError("edges name nodes by id: the predictions need a column of ids, one row per node")
    ids, blocks = [], []
    for shard in files.shards:
        for batch in files.batches(shard):
            ids.append(plain_ids(batch[name], shard, name))
            blocks.append(np.stack(list(scorer.logits(batch, shard, 0)), axis=1).astype(np.float32))
    all_ids, logits = pa.concat_arrays(_one_type(ids)), torch.from_numpy(np.concatenate(blocks))
    graph = Data(edge_index=read_edges(edges, all_ids, columns), num_nodes=len(logits))
    if train_ids is not None:
        graph.train_mask = read_ids(train_ids, all_ids)
    with torch.no_grad():
        context = scorer.calibration.context(Outputs(logits, graph)).numpy()
    path = out / ".context.npy"
    with atomic_file(path) as file:
        np.save(file, np.ascontiguousarray(context))
    return path, f"{key} {hash_of(context)}"


def hash_of(values: np.ndarray) -> str:
    import hashlib

    return hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()
