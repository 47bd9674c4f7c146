"""Read tables from files: Parquet, CSV, Arrow, npz and pt, as Arrow tables and batches.

    .parquet .pq      .csv .tsv .csv.gz .tsv.gz      .arrow .feather .ipc      .npz      .pt .pth

A path is a file or a folder of shards; a shard is one file. Parquet and Arrow files are fragments of `pyarrow.dataset`.

*Budget.* A compressed file can hold far more than its size. Every batch is validated (offsets inside their buffers, text in
UTF-8) and counted while it is read: a file is refused once it holds more rows than it declares, or takes more memory than a
file of its size may fill (`graphcal.files`).

*Ids.* An id in a CSV file is what is written: leading zeros stay, and ids with leading zeros are text. Columns named like ids and
columns of whole numbers are read as text and become numbers where every value is written as one; 17.0, as data frames write
whole numbers, is 17 in a column of ids.

In npz and pt files a one-dimensional array is a column and a two-dimensional one a column of lists; a bare tensor in a pt file is
the column ``scores``. Nothing in a file can run code.
"""

from __future__ import annotations

import gzip
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.ipc

from graphcal.files import PER_BYTE, check_memory, file_errors, sha256_of
from graphcal.tables.array_files import check_tensor, load_safely, read_arrays

FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".arrow": "arrow", ".feather": "arrow",
    ".ipc": "arrow", ".npz": "npz", ".pt": "pt", ".pth": "pt", ".csv.gz": "csv", ".tsv.gz": "csv",
}  # fmt: skip
BATCH = 1 << 17  # rows
WHOLE_FILE = 1 << 62  # rows of a batch: all of them
VALUE = 8  # bytes of memory for each value, at least
COLUMN = 1 << 14  # bytes that pyarrow takes for a column of CSV, whatever is in it
PART = 1 << 24  # bytes of a CSV file that are read at a time
SMALL = 2**31 // PER_BYTE  # bytes of a Parquet file; a larger one may fill the 2 GB that a page can hold
FEW = 1 << 10  # rows of text that are read without a dictionary
FOOTER_ITEMS = 10**6  # of a list in a Parquet footer; pyarrow's default
FOOTER_TEXT = 10**8  # bytes of a text in a Parquet footer; pyarrow's default
ARROW_MARK = b"ARROW1"
IDS = re.compile(r"(id|entity|node|src|dst|source|target)$", re.IGNORECASE)  # how names of ids end
WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"
WHOLE_AS_FLOAT = r"^-?[0-9]{1,15}\.0$"
PADDED = r"^-?0[0-9]"


# Files and folders


def format_of(path: Path) -> str | None:
    """Return the format of a file by the end of its name; None where it is none of a table."""
    ending = "".join(path.suffixes[-2:]) if path.suffix.lower() == ".gz" else path.suffix
    return FORMATS.get(ending.lower())


def shards_of(path: str | Path) -> list[Path]:
    """List the files of a table, sorted by name, without hidden files and those that start with _."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"no predictions at {path}: the file does not exist")
    if not path.is_dir():
        if format_of(path) is None:
            came = path.suffix or "a file without a suffix"
            raise ValueError(f"{path}: cannot read {came}; use {', '.join(FORMATS)}")
        return [path]
    visible = sorted(
        file
        for file in path.rglob("*")
        if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    )
    unread = next((file for file in visible if file.suffix.lower() in (".avro", ".orc")), None)
    if unread is not None:
        raise ValueError(
            f"{unread}: cannot read {unread.suffix} files, and its rows would be missing; write it as Parquet"
        )
    shards = [file for file in visible if format_of(file) is not None]
    if not shards:
        raise ValueError(f"{path} holds no table: expected files that end in {', '.join(FORMATS)}")
    return shards


def partition_columns(shard: Path, root: Path) -> dict[str, str]:
    """Return the columns that folders between ``root`` and a shard stand for, as Hive and Spark write them: split=val/."""
    between = shard.relative_to(root).parts[:-1] if root.is_dir() else ()
    return dict(part.split("=", 1) for part in between if re.fullmatch(r"[^=]+=[^=]+", part))


def read_table_file(path: Path) -> pa.Table:
    """Read one file."""
    with file_errors(path):
        form = format_of(path)
        if form == "parquet":
            return read_parquet(path)
        if form == "csv":
            return read_csv(path)
        if form == "arrow":
            return pa.Table.from_batches(list(arrow_batches(path)), _arrow_schema(path))
        if form == "npz":
            return _from_arrays(read_arrays(path)[0])
        return _read_pt(path)


def read_tables(path: str | Path) -> pa.Table:
    """Read a file, or all shards of a folder, as one table."""
    return concat([read_table_file(shard) for shard in shards_of(path)])


def read_batches(path: Path, row_groups: range | None = None, size: int = BATCH) -> Iterator[pa.RecordBatch]:
    """Read one file in batches: Parquet and Arrow as they lie on the disk, other formats after they are read whole.

    The size `WHOLE_FILE` gives one batch, whatever the format.
    """
    with file_errors(path):
        form = format_of(path)
        if size >= WHOLE_FILE or form not in ("parquet", "arrow"):
            yield from read_table_file(path).combine_chunks().to_batches(max_chunksize=size)
        elif form == "parquet":
            yield from parquet_batches(path, None, row_groups, size)
        else:
            for batch in arrow_batches(path):
                yield from (batch.slice(at, size) for at in range(0, batch.num_rows, size))


def count_rows(path: Path) -> int:
    """Count the rows of a file, by its footer where it has one."""
    with file_errors(path):
        if format_of(path) == "parquet":
            return int(parquet_fragment(path).metadata.num_rows)
        return int(read_table_file(path).num_rows)


def fingerprints(paths: Sequence[Path], workers: int) -> dict[Path, str]:
    """Compute the SHA-256 of the content of every file."""
    with ThreadPoolExecutor(max(workers, 1)) as pool:
        return dict(zip(paths, pool.map(sha256_of, paths)))


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Put tables one after the other."""
    return pa.concat_tables(align(tables))


def align(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Give all tables the columns of each, with one type: numbers in one table and text in another become text."""
    names = list(dict.fromkeys(name for table in tables for name in table.column_names))
    types = {name: {t.schema.field(name).type for t in tables if name in t.column_names} for name in names}
    text = [name for name, kinds in types.items() if len(kinds) > 1 and any(holds_text(kind) for kind in kinds)]
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


# Types


def is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def holds_text(kind: pa.DataType) -> bool:
    """Return whether a column holds text: short, large, by views, or in a dictionary."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_text(kind) or bool(pa.types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ChunkedArray):  # still chunked when it has no rows
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def plain_ids(column: pa.ChunkedArray | pa.Array, where: str | Path, name: str) -> pa.Array:
    """Return ids as int64 or text; refuse a missing one."""
    column = one_array(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise ValueError(f"{where}: row {row} has no id in column {name!r}")
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            if pa.types.is_integer(column.type):  # of 64 bits without a sign
                return column.cast(pa.string())
            raise ValueError(f"{where}: the ids in column {name!r} must be whole numbers or text") from None
    try:
        return column.cast(pa.string())
    except pa.ArrowException:  # lists, structures, bytes that are no text
        raise ValueError(
            f"{where}: the ids in column {name!r} must be whole numbers or text; got {column.type}"
        ) from None


# Budget


def within_budget(
    batches: Iterable[pa.RecordBatch], path: Path, rows: int | None = None, each: int = VALUE
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file that declares ``rows`` rows; ``each`` is the memory that one value will take."""
    taken = count = 0
    for batch in batches:
        batch.validate(full=True)
        count += batch.num_rows
        if rows is not None and count > rows:
            raise ValueError(f"{path}: its footer declares {rows:,} rows, its pages hold more; write the file again")
        taken += memory_of(batch, each)
        check_memory(path, taken, f"its {len(batch.schema.names):,} columns")
        yield batch
    if rows is not None and count < rows:
        raise ValueError(f"{path}: its footer declares {rows:,} rows, its pages hold {count:,}; write the file again")


def memory_of(batch: pa.RecordBatch, each: int = VALUE) -> int:
    """Count the bytes of a batch when every row has its own values: ``each`` for every one, and its texts."""
    return sum(int(column.nbytes) + each * len(column) + _repeated(column) for column in batch.columns)


def _repeated(column: pa.Array) -> int:
    """Count the bytes of texts that a column only points to, in a dictionary or by views, when each row has a copy."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        texts = column.dictionary
        if not (is_text(texts.type) or is_binary(texts.type)):
            return len(column) * int(texts.nbytes // max(len(texts), 1))
        return int(pc.sum(pc.binary_length(texts).take(column.indices)).as_py() or 0)
    if str(kind).endswith("_view") and not pa.types.is_nested(kind):
        views = np.frombuffer(column.buffers()[1], dtype="<i4").reshape(-1, 4)
        return int(views[column.offset : column.offset + len(column), 0].astype(np.int64).clip(0).sum())
    return 0


def check_width(path: Path, head: bytes, delimiter: str) -> None:
    """Refuse a CSV file whose header has more columns than the file may fill memory for."""
    header = re.search(rb"[^\r\n]+", head)
    columns = 1 + (header[0].count(delimiter.encode()) if header else 0)
    check_memory(path, COLUMN * columns, f"its {columns:,} columns")


def refuse_repeats(names: Sequence[str], path: Path) -> None:
    """Refuse columns of the same name."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ValueError(f"{path}: two columns are called {twice[0]!r}; the columns are {shown}")


# Parquet


def parquet_fragment(path: Path, row_groups: Sequence[int] | None = None, codes: Sequence[str] = ()) -> ds.FileFragment:
    """Open a Parquet file, or some of its row groups; texts in ``codes`` are read as dictionaries.

    A footer that announces longer lists or texts than the file holds is refused before memory is taken.
    """
    size = os.path.getsize(path)
    limits = ds.ParquetFragmentScanOptions(
        thrift_string_size_limit=max(1, min(size, FOOTER_TEXT)),
        thrift_container_size_limit=max(1, min(size, FOOTER_ITEMS)),
        pre_buffer=False,
    )
    reading = ds.ParquetReadOptions(dictionary_columns=set(codes))
    form = ds.ParquetFileFormat(read_options=reading, default_fragment_scan_options=limits)
    return form.make_fragment(str(path), filesystem=pa.fs.LocalFileSystem(), row_groups=row_groups)


def read_parquet(path: Path, columns: list[str] | None = None, each: int = VALUE) -> pa.Table:
    """Read a whole file, or some columns of it; ``each`` is the memory that one value will take."""
    batches = list(parquet_batches(path, columns, each=each))
    schema = parquet_fragment(path).physical_schema
    if not batches:
        return schema.empty_table().select(columns or schema.names)
    return pa.Table.from_batches(batches).replace_schema_metadata(schema.metadata)


def parquet_batches(
    path: Path,
    columns: list[str] | None = None,
    row_groups: range | None = None,
    size: int = BATCH,
    each: int = VALUE,
) -> Iterator[pa.RecordBatch]:
    """Read a file in batches of at most ``size`` rows.

    Texts of a small file are read as codes of a dictionary and copied after they are counted: a text of 1 MB that a million
    rows repeat takes a few bytes in the file.
    """
    fragment = parquet_fragment(path)
    schema, about = fragment.physical_schema, fragment.metadata
    refuse_repeats(schema.names, path)
    groups = list(range(about.num_row_groups) if row_groups is None else row_groups)
    rows = sum(about.row_group(k).num_rows for k in groups)
    if row_groups is None and rows != about.num_rows:
        more = "more" if rows > about.num_rows else f"{rows:,}"
        raise ValueError(
            f"{path}: its footer declares {about.num_rows:,} rows, its pages hold {more}; write the file again"
        )
    check_memory(path, each * len(columns or schema.names) * rows, f"its {rows:,} rows")
    if not groups:
        return
    small = os.path.getsize(path) <= SMALL
    texts = [field.name for field in schema if small and (is_text(field.type) or is_binary(field.type))]
    size = max(1, min(size, rows))  # pages may hold more rows than were declared
    batches = (
        _with_codes(path, texts, groups, columns, size) if texts else _scan(path, groups, columns, size, not small)
    )
    for batch in within_budget(batches, path, rows, each):
        yield _with_types(batch, schema) if texts else batch


def _scan(
    path: Path,
    groups: list[int],
    columns: list[str] | None,
    size: int,
    use_threads: bool = False,
    codes: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    fragment = parquet_fragment(path, groups, codes)
    ahead = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": use_threads}
    for batch in fragment.to_batches(columns=columns, batch_size=size, **ahead):
        if batch.num_rows:
            yield batch


def _with_codes(
    path: Path, texts: list[str], groups: list[int], columns: list[str] | None, size: int
) -> Iterator[pa.RecordBatch]:
    """Read texts as codes; from where pyarrow cannot (pages in a delta encoding), read them as they are, a few rows at a time."""
    done = 0
    try:
        for batch in _scan(path, groups, columns, size, codes=texts):
            done += batch.num_rows
            yield batch
        return
    except OSError:
        pass
    for batch in _scan(path, groups, columns, min(size, FEW)):
        if batch.num_rows > done:
            yield batch.slice(done)
        done = max(0, done - batch.num_rows)


def _with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if column.type == schema.field(name).type else column.cast(schema.field(name).type)
        for name, column in zip(batch.schema.names, batch.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


# Arrow: a file is a stream between marks and is read as one, because its footer could point anywhere


def arrow_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Read an Arrow file or stream batch by batch."""
    with pa.memory_map(str(path)) as source:
        stream = _open_stream(source)
        refuse_repeats(stream.schema.names, path)
        yield from within_budget(stream, path)


def _arrow_schema(path: Path) -> pa.Schema:
    with pa.memory_map(str(path)) as source:
        return _open_stream(source).schema


def _open_stream(source: pa.NativeFile) -> pa.RecordBatchStreamReader:
    source.seek(8 if source.read(len(ARROW_MARK)) == ARROW_MARK else 0)
    return pa.ipc.open_stream(source)


# CSV


def is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _parse(path: Path) -> pa.csv.ParseOptions:
    return pa.csv.ParseOptions(delimiter="\t" if ".tsv" in path.name.lower()[-7:] else ",")


def csv_columns(path: Path) -> list[str]:
    """Return the names of the columns; refuse what is no table, or unpacks to more than the file may fill."""
    mark = _parse(path).delimiter
    with cast(BinaryIO, gzip.open(path, "rb")) if is_packed(path) else open(path, "rb") as file:
        head = file.read(PART)
        if is_packed(path):
            part, taken = head, 0
            while part:
                taken += len(part) + VALUE * (part.count(mark.encode()) + part.count(b"\n"))
                check_memory(path, taken, "its unpacked content")
                part = file.read(PART)
    check_width(path, head, mark)
    first = re.split(rb"[\r\n]", head, maxsplit=1)[0]
    other = next((sign for sign in ";\t|" if mark.encode() not in first and sign.encode() in first), None)
    if other is not None:
        raise ValueError(
            f"{path}: its columns are separated by {other!r}; write it with commas (.csv) or tabs (.tsv), and numbers with "
            "decimal points"
        )
    names = list(pa.csv.open_csv(path, parse_options=_parse(path)).schema.names)
    refuse_repeats(names, path)
    return names


def read_csv(path: Path) -> pa.Table:
    """Read a CSV file with the types of its values."""
    names = csv_columns(path)
    schema = pa.csv.open_csv(path, parse_options=_parse(path)).schema  # of its first part
    ids = [name for name in names if IDS.search(name)]
    text = {name: pa.string() for name in names if name in ids or pa.types.is_integer(schema.field(name).type)}
    convert = pa.csv.ConvertOptions(column_types=text, null_values=[""], strings_can_be_null=True)
    table = pa.csv.read_csv(path, parse_options=_parse(path), convert_options=convert)
    columns = {
        name: _numbers(column, name in ids) if name in text else column for name, column in zip(names, table.columns)
    }
    return pa.table(columns) if text else table


def csv_text_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Read a CSV file in parts, every column as text."""
    names = csv_columns(path)
    text = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
    )
    blocks = pa.csv.ReadOptions(block_size=PART)
    for batch in pa.csv.open_csv(path, parse_options=_parse(path), convert_options=text, read_options=blocks):
        yield pa.RecordBatch.from_arrays([_without_points(column) for column in batch.columns], names=names)


def _numbers(column: pa.ChunkedArray, is_id: bool) -> pa.ChunkedArray:
    """Convert text to whole numbers where each is written as one; of a column that is no id, to numbers where each is one."""
    column = _without_points(column) if is_id else column
    if _all(column, WHOLE):
        return column.cast(pa.int64())
    if is_id or pc.any(pc.match_substring_regex(column, PADDED)).as_py():
        return column
    try:
        return column.cast(pa.float64())  # whole numbers at first, others later
    except pa.ArrowInvalid:
        return column


def _without_points(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Write 17.0 as 17, where all are written so."""
    return pc.replace_substring_regex(column, r"\.0$", "") if _all(column, WHOLE_AS_FLOAT) else column


def _all(column: pa.ChunkedArray | pa.Array, pattern: str) -> bool:
    return bool(len(column)) and bool(pc.all(pc.match_substring_regex(column, pattern)).as_py())


# Arrays


def _read_pt(path: Path) -> pa.Table:
    content = load_safely(path)
    named = content if isinstance(content, dict) else {"scores": content}
    if not named:
        raise ValueError(f"{path}: expected a tensor or a dictionary of tensors; it is empty")
    tensors = {str(name): check_tensor(value, str(name), path) for name, value in named.items()}
    bfloat16 = [name for name, tensor in tensors.items() if str(tensor.dtype) == "torch.bfloat16"]
    return _from_arrays({name: (t.float() if name in bfloat16 else t).numpy() for name, t in tensors.items()})


def _from_arrays(arrays: dict[str, np.ndarray]) -> pa.Table:
    """Make columns of arrays (N,) and (N, 1), lists of arrays (N, C)."""
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
