"""Files of any format as Arrow: a path is a file or a folder of shards, a shard is one table.

    .parquet .pq      .csv .tsv .csv.gz .tsv.gz      .arrow .feather .ipc      .npz      .pt .pth

In .npz and .pt files a one-dimensional array is a column, a two-dimensional one a column of lists; a bare tensor in a .pt file
is the column ``scores``. Nothing that is read can run code: npz without pickles, tensors with ``weights_only``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphcal.containers.arrow import arrow_batches, arrow_schema
from graphcal.containers.batches import holds_text
from graphcal.containers.csv_files import read_csv
from graphcal.containers.parquet import open_parquet, parquet_batches, read_parquet

FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".arrow": "arrow", ".feather": "arrow",
    ".ipc": "arrow", ".npz": "npz", ".pt": "pt", ".pth": "pt", ".csv.gz": "csv", ".tsv.gz": "csv",
}  # fmt: skip
BATCH = 1 << 17  # rows


def format_of(path: Path) -> str | None:
    """The format of a file by the end of its name; None where it is none of a table."""
    ending = "".join(path.suffixes[-2:]) if path.suffix.lower() == ".gz" else path.suffix
    return FORMATS.get(ending.lower())


def shards_of(path: str | Path) -> list[Path]:
    """The files of a table, in the order of their names; hidden files and those that start with _ are not part of it."""
    path = Path(path)
    if path.is_dir():
        visible = sorted(
            file
            for file in path.rglob("*")
            if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        )
        for file in visible:
            refuse_avro(file)
        shards = [file for file in visible if format_of(file) is not None]
        if not shards:
            raise ValueError(f"{path} holds no table: expected files that end in {', '.join(FORMATS)}")
        return shards
    if not path.exists():
        raise ValueError(f"no predictions at {path}: the file does not exist")
    refuse_avro(path)
    if format_of(path) is None:
        came = path.suffix or "a file without a suffix"
        raise ValueError(f"{path}: cannot read {came}; use {', '.join(FORMATS)}")
    return [path]


def refuse_avro(path: Path) -> None:
    """Refuse an Avro file, also among shards of other formats: its rows would be missing."""
    if path.suffix.lower() == ".avro":
        raise ValueError(
            f"{path}: Avro files are not read. Write the table as Parquet, for example with "
            "pandas.DataFrame(fastavro.reader(open(FILE, 'rb'))).to_parquet(NEW)"
        )


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
        form = format_of(path)
        if form == "parquet":
            return read_parquet(path, columns)
        if form == "arrow":
            return pa.Table.from_batches(list(arrow_batches(path)), arrow_schema(path))
        readers = {"csv": read_csv, "npz": read_npz, "pt": read_pt}
        table: pa.Table = readers[form or ""](path)
        return table


def aligned(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Tables with the columns of all of them, of one type each: numbers in one and text in another are text."""
    names = list(dict.fromkeys(name for table in tables for name in table.column_names))
    kinds = {name: {t.schema.field(name).type for t in tables if name in t.column_names} for name in names}
    text = [name for name, types in kinds.items() if len(types) > 1 and any(holds_text(kind) for kind in types)]
    tables = [_with_text(table, text) for table in tables]
    schema = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
    lists = [[t[f.name] if f.name in t.column_names else pa.nulls(len(t), f.type) for f in schema] for t in tables]
    return [pa.table(columns, names=schema.names).cast(schema) for columns in lists]


def _with_text(table: pa.Table, names: Sequence[str]) -> pa.Table:
    for at, name in enumerate(table.column_names):
        if name in names:
            column = table[name]
            column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            table = table.set_column(at, name, column.cast(pa.string()))
    return table


def one_table(tables: Sequence[pa.Table]) -> pa.Table:
    """One after the other."""
    return pa.concat_tables(aligned(tables))


def batches_of(path: Path, row_groups: range | None = None, size: int = BATCH) -> Iterator[pa.RecordBatch]:
    """One file batch by batch, Parquet row groups and Arrow batches as they lie on the disk; other formats are read whole."""
    with naming(path):
        form = format_of(path)
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
        if format_of(path) == "parquet":
            with open_parquet(path) as file:
                return int(file.metadata.num_rows)
        return int(read_shard(path).num_rows)


def read_npz(path: Path) -> pa.Table:
    from graphcal.lab.datasets.arrays import read_arrays

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
    """Columns of arrays (N,) and (N, 1), lists of arrays (N, C)."""
    arrays = {name: a.reshape(-1) if a.ndim == 2 and a.shape[1] == 1 else a for name, a in arrays.items()}
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
