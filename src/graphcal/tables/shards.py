"""Files of any format as Arrow: a path is a file or a folder of shards, a shard is one table.

    .parquet .pq      .csv .tsv      .arrow .feather .ipc      .npz      .pt .pth      .avro (with fastavro)

In .npz and .pt files a one-dimensional array is a column, a two-dimensional one a column of lists; a bare tensor in a .pt file
is the column ``scores``. Nothing that is read can run code: npz without pickles, tensors with ``weights_only``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from graphcal.containers.arrow import arrow_batches, arrow_schema
from graphcal.containers.avro import read_avro
from graphcal.containers.batches import check_width, refuse_repeats
from graphcal.containers.parquet import parquet_batches, read_parquet

FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".arrow": "arrow", ".feather": "arrow",
    ".ipc": "arrow", ".npz": "npz", ".pt": "pt", ".pth": "pt", ".avro": "avro",
}  # fmt: skip
BATCH = 1 << 17  # rows


def shards_of(path: str | Path) -> list[Path]:
    """The files of a table, in the order of their names; hidden files and those that start with _ are not part of it."""
    path = Path(path)
    if path.is_dir():
        found = sorted(
            file
            for file in path.rglob("*")
            if file.suffix.lower() in FORMATS
            and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        )
        if not found:
            raise ValueError(f"{path} holds no table: expected files that end in {', '.join(FORMATS)}")
        return found
    if not path.exists():
        raise ValueError(f"no predictions at {path}: the file does not exist")
    if path.suffix.lower() not in FORMATS:
        came = path.suffix or "a file without a suffix"
        raise ValueError(f"{path}: cannot read {came}; use {', '.join(FORMATS)}")
    return [path]


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Whatever goes wrong while a file is read is a refusal that names it."""
    try:
        yield
    except ValueError as fault:  # Arrow's faults are ValueErrors too, mostly without the file's name
        raise fault if str(path) in str(fault) else ValueError(f"{path} cannot be read: {_line(fault)}") from None
    except Exception as fault:  # of any class: the file decides what a library raises
        raise ValueError(f"{path} cannot be read: {_line(fault)}") from None


def _line(fault: BaseException) -> str:
    return (str(fault).strip() or type(fault).__name__).splitlines()[0]


def read_shard(path: Path, columns: list[str] | None = None) -> pa.Table:
    """One file as a table; ``columns`` are all it needs to hold in memory, where the format allows."""
    with naming(path):
        form = FORMATS[path.suffix.lower()]
        if form == "parquet":
            return read_parquet(path, columns)
        if form == "arrow":
            return pa.Table.from_batches(list(arrow_batches(path)), arrow_schema(path))
        readers = {"csv": read_csv, "npz": read_npz, "pt": read_pt, "avro": read_avro}
        table: pa.Table = readers[form](path)
        return table


def batches_of(path: Path, row_groups: range | None = None, size: int = BATCH) -> Iterator[pa.RecordBatch]:
    """One file batch by batch, Parquet row groups and Arrow batches as they lie on the disk; other formats are read whole."""
    with naming(path):
        form = FORMATS[path.suffix.lower()]
        if form == "parquet":
            yield from parquet_batches(path, None, row_groups, size)
        elif form == "arrow":
            for batch in arrow_batches(path):
                yield from (batch.slice(at, size) for at in range(0, batch.num_rows, size))
        else:
            yield from read_shard(path).combine_chunks().to_batches(max_chunksize=size)


def rows_of(path: Path) -> int:
    """How many rows a file has, from its footer where it has one."""
    with naming(path):
        if FORMATS[path.suffix.lower()] == "parquet":
            with pq.ParquetFile(path) as file:
                return int(file.metadata.num_rows)
        return int(read_shard(path).num_rows)


def read_csv(path: Path) -> pa.Table:
    """A CSV file. Columns of whole numbers written with leading zeros, as ids are, stay text."""
    mark = "\t" if path.suffix.lower() == ".tsv" else ","
    check_width(path, mark)
    parse = pa.csv.ParseOptions(delimiter=mark)
    head = pa.csv.open_csv(path, parse_options=parse).schema.names
    refuse_repeats(head, path)
    ids = {name: pa.string() for name in head if re.search(r"(id|entity|node|src|dst|source|target)$", name, re.I)}
    convert = pa.csv.ConvertOptions(column_types=ids, null_values=[""], strings_can_be_null=True)
    table = pa.csv.read_csv(path, parse_options=parse, convert_options=convert)
    columns = {name: _numbers(column) if name in ids else column for name, column in zip(head, table.columns)}
    return pa.table(columns) if ids else table


def _numbers(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids as whole numbers where each is written as one."""
    plain = pc.match_substring_regex(ids, r"^(0|-?[1-9][0-9]{0,17})$")
    return ids.cast(pa.int64()) if len(ids) and pc.all(plain).as_py() else ids


def read_npz(path: Path) -> pa.Table:
    from graphcal.datasets.arrays import read_arrays

    return from_arrays(read_arrays(path)[0])


def read_pt(path: Path) -> pa.Table:
    import torch

    from graphcal.containers.tensors import check_tensor, load_safely

    content = load_safely(path)
    named = content if isinstance(content, dict) else {"scores": content}
    if not named:
        raise ValueError(f"{path}: expected a tensor or a dictionary of tensors; it is empty")
    tensors = {str(name): check_tensor(value, str(name), path) for name, value in named.items()}
    return from_arrays(
        {name: t.float().numpy() if t.dtype == torch.bfloat16 else t.numpy() for name, t in tensors.items()}
    )


def from_arrays(arrays: dict[str, np.ndarray]) -> pa.Table:
    """Columns of arrays (N,), lists of arrays (N, C)."""
    lengths = {name: (len(a) if a.ndim else 0) for name, a in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError("the arrays have different lengths: " + ", ".join(f"{k} {n}" for k, n in lengths.items()))
    columns = {}
    for name, a in arrays.items():
        if a.ndim == 1:
            columns[name] = pa.array(a)
        elif a.ndim == 2:
            flat = pa.array(np.ascontiguousarray(a).reshape(-1))
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, a.shape[1])
        else:
            raise ValueError(f"array {name!r} has shape {a.shape}: a column is (N,) or (N, C)")
    return pa.table(columns)
