"""Files of any format as Arrow: a path is a file or a folder of shards, a shard is one table.

    .parquet .pq      .csv .tsv      .arrow .feather .ipc      .npz      .pt .pth      .avro (with fastavro)

In .npz and .pt files a one-dimensional array is a column, a two-dimensional one a column of lists; a bare tensor in a .pt file
is the column ``scores``. Nothing that is read can run code: npz without pickles, tensors with ``weights_only``.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from graphcal.files import check_archive

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
    except (OSError, KeyError, IndexError, TypeError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile) as fault:
        raise ValueError(f"{path} cannot be read: {_line(fault)}") from None
    except pa.ArrowException as fault:
        raise ValueError(f"{path} cannot be read: {_line(fault)}") from None


def _line(fault: BaseException) -> str:
    return (str(fault).strip() or type(fault).__name__).splitlines()[0]


def read_shard(path: Path, columns: list[str] | None = None) -> pa.Table:
    """One file as a table; ``columns`` are all it needs to hold in memory, where the format allows."""
    with naming(path):
        form = FORMATS[path.suffix.lower()]
        if form == "parquet":
            with pq.ParquetFile(path) as file:
                refuse_repeats(file.schema_arrow.names, path)
                return file.read(columns)
        if form == "arrow":
            return pa.Table.from_batches(list(arrow_batches(path)))
        readers = {"csv": read_csv, "npz": read_npz, "pt": read_pt, "avro": read_avro}
        table: pa.Table = readers[form](path)
        return table


def batches_of(path: Path, row_groups: range | None = None, size: int = BATCH) -> Iterator[pa.RecordBatch]:
    """One file batch by batch, Parquet row groups and Arrow batches as they lie on the disk; other formats are read whole."""
    with naming(path):
        form = FORMATS[path.suffix.lower()]
        if form == "parquet":
            with pq.ParquetFile(path) as file:
                groups = list(row_groups if row_groups is not None else range(file.metadata.num_row_groups))
                yield from file.iter_batches(batch_size=size, row_groups=groups)
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


def arrow_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Of an Arrow file or stream."""
    with pa.memory_map(str(path)) as source:
        try:
            file = pa.ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            yield from pa.ipc.open_stream(source)
            return
        yield from (file.get_batch(k) for k in range(file.num_record_batches))


def refuse_repeats(names: list[str], path: Path) -> None:
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"{path}: two columns are called {twice[0]!r}; the columns are {', '.join(names)}")


def read_csv(path: Path) -> pa.Table:
    """A CSV file. Columns of whole numbers written with leading zeros, as ids are, stay text."""
    parse = pa.csv.ParseOptions(delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    head = pa.csv.open_csv(path, parse_options=parse).schema.names
    refuse_repeats(head, path)
    ids = {name: pa.string() for name in head if re.search(r"(id|entity|node|src|dst|source|target)$", name, re.I)}
    convert = pa.csv.ConvertOptions(column_types=ids, null_values=[""], strings_can_be_null=True)
    table = pa.csv.read_csv(path, parse_options=parse, convert_options=convert)
    for name in ids:
        plain = pc.match_substring_regex(table[name], r"^(0|-?[1-9][0-9]{0,17})$")
        if table.num_rows and pc.all(plain).as_py():
            table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.int64()))
    return table


def read_npz(path: Path) -> pa.Table:
    with zipfile.ZipFile(path) as archive:
        check_archive(path, archive)
    with np.load(path, allow_pickle=False) as arrays:
        if not hasattr(arrays, "files"):
            raise ValueError("it holds one bare array, not named arrays")
        return from_arrays({name: arrays[name] for name in arrays.files})


def read_pt(path: Path) -> pa.Table:
    import torch

    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as fault:  # torch raises whatever its unpickler meets
        raise ValueError(f"not a file of tensors that can be loaded safely: {_line(fault)}") from None
    named = content if isinstance(content, dict) else {"scores": content}
    wrong = [name for name, value in named.items() if not isinstance(value, torch.Tensor)]
    if wrong or not named:
        raise ValueError(f"expected a tensor or a dictionary of tensors; {wrong[0] if wrong else 'it'} is none")
    return from_arrays({str(name): tensor.detach().to_dense().numpy() for name, tensor in named.items()})


def read_avro(path: Path) -> pa.Table:
    try:
        import fastavro
    except ImportError:
        raise ValueError("Avro files need fastavro: pip install 'graphcal[avro]'") from None
    with open(path, "rb") as file:
        return pa.Table.from_pylist(list(fastavro.reader(file)))


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
