"""Which rows were trained on, which are fitted on, which measure: by a column, by a file of ids, or by a draw that is said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphcal.datasets.graph_tables import encode_split
from graphcal.tables.joining import is_of_edges, match_ids, row_ids
from graphcal.tables.layouts import roles_of
from graphcal.tables.shards import read_shard, shards_of

PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class RowSplit:
    """Boolean masks (N,)."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def from_words(column: pa.ChunkedArray, where: str | Path, name: str) -> RowSplit:
    """A column of the words train, val, test; an empty one is in no part."""
    found = encode_split(column, Path(where), name)
    masks = []
    for rows in (found.train, found.val, found.test):
        mask = np.zeros(len(column), dtype=bool)
        mask[rows] = True
        masks.append(mask)
    return RowSplit(*masks)


def placed(split: RowSplit, rows: np.ndarray) -> RowSplit:
    """The split of a table for the rows of another: ``rows`` (N,) is where each is in the first, -1 for nowhere."""
    there = rows >= 0
    return RowSplit(*(np.where(there, getattr(split, part)[rows], False) for part in PARTS))


def from_file(path: Path, ids: pa.Array, y: np.ndarray) -> tuple[RowSplit, list[str]]:
    """A table of id and split; or of ids alone: those are fitted on, all other labelled rows measure."""
    table = pa.concat_tables([read_shard(shard) for shard in shards_of(path)])
    roles = roles_of(table.column_names, {}, path)
    others = row_ids(table, roles if is_of_edges(roles) else {"id": roles.get("id", table.column_names[0])}, path)
    found = match_ids(ids, others, path)
    notes = [f"{path}: {found.unknown:,} ids have no prediction"] if found.unknown else []
    if "split" in roles:
        return placed(from_words(table[roles["split"]], path, roles["split"]), found.rows), notes
    if table.num_columns > (2 if is_of_edges(roles) else 1):
        raise ValueError(
            f"{path}: expected a column 'split', or ids alone; the columns are {', '.join(table.column_names)}"
        )
    val = found.rows >= 0
    return RowSplit(np.zeros_like(val), val, ~val & (y >= 0)), notes


def drawn(y: np.ndarray, seed: int) -> tuple[RowSplit, str]:
    """Half of the labelled rows to fit on, the others to measure."""
    labelled = np.flatnonzero(y >= 0)
    chosen = np.random.default_rng(seed).permutation(labelled)[: len(labelled) // 2]
    val = np.zeros(len(y), dtype=bool)
    val[chosen] = True
    test = (y >= 0) & ~val
    return RowSplit(np.zeros_like(val), val, test), (
        f"no split was given: {val.sum():,} of {len(labelled):,} labelled rows, drawn with seed {seed}, are fitted on; the other "
        f"{test.sum():,} measure. If the model was trained on some of them, say so with --split"
    )
