"""Files that hold more than their size: each kind of bomb is refused by name before it is unpacked; sound files come back."""

from __future__ import annotations

import io
import json
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from graphcal import files
from graphcal.containers.arrow import arrow_batches
from graphcal.containers.avro import read_avro
from graphcal.containers.batches import memory_of, refuse_repeats
from graphcal.containers.parquet import check_pages, parquet_batches, read_parquet
from graphcal.containers.tensors import check_tensor, load_safely
from graphcal.tables.shards import read_shard


@pytest.fixture
def little(monkeypatch) -> None:
    """A megabyte for every file, and no more for larger ones."""
    monkeypatch.setattr(files, "MEMORY", 2**20)
    monkeypatch.setattr(files, "PER_BYTE", 1)


def table(rows: int = 1000) -> pa.Table:
    k = np.arange(rows)
    text = pa.array([f"name {i % 7}" for i in k])
    lists = pa.array([[float(i), 0.5] for i in k])
    return pa.table({"id": k, "text": text, "codes": text.dictionary_encode(), "scores": lists, "part": k % 2 == 0})


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_sound_parquet_comes_back_whole(tmp_path: Path, compression: str, version: str) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(
        table(), file, compression=compression, data_page_version=version, row_group_size=300, data_page_size=200
    )
    assert read_parquet(file).combine_chunks().equals(table().combine_chunks())
    assert read_parquet(file, ["text"]).column_names == ["text"]
    assert sum(batch.num_rows for batch in parquet_batches(file, None, range(1, 2))) == 300


def test_no_rows_keep_their_columns(tmp_path: Path) -> None:
    pq.write_table(table(0), tmp_path / "t.parquet")
    assert read_parquet(tmp_path / "t.parquet", ["text", "id"]).column_names == ["text", "id"]
    with pa.ipc.new_file(tmp_path / "t.arrow", table(0).schema):
        pass
    assert read_shard(tmp_path / "t.arrow").column_names == table().column_names


def test_a_page_that_unpacks_to_more_than_its_file_may_fill(tmp_path: Path, little: None) -> None:
    file = tmp_path / "page.parquet"
    pq.write_table(pa.table({"text": ["x" * 4_000_000]}), file, compression="zstd", use_dictionary=False)
    assert file.stat().st_size < 10_000
    with pytest.raises(ValueError, match=r"page\.parquet: what its pages announce would take [48]\.0 MB"):
        check_pages(file)


@pytest.mark.parametrize(
    ("column", "encoding"),
    [
        pytest.param(pa.array(np.zeros(1_000_000)), None, id="equal numbers"),
        pytest.param(pa.array([["a" * 5000] * 2000]), None, id="equal texts in lists"),
        pytest.param(pa.array(["b" * 5000] * 2000), {"x": "DELTA_BYTE_ARRAY"}, id="texts that share a prefix"),
    ],
)
def test_few_bytes_that_stand_for_many_values(tmp_path: Path, little: None, column: pa.Array, encoding) -> None:
    file = tmp_path / "many.parquet"
    pq.write_table(
        pa.table({"x": column}), file, use_dictionary=encoding is None, column_encoding=encoding, compression="zstd"
    )
    assert file.stat().st_size < 50_000
    with pytest.raises(ValueError, match=r"many\.parquet: what its pages announce would take"):
        read_parquet(file)


def test_equal_texts_are_counted_before_each_has_a_copy(tmp_path: Path, little: None) -> None:
    file = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"x": ["b" * 5000] * 2000}), file, compression="zstd")
    with pytest.raises(ValueError, match=r"texts\.parquet: its 1 columns would take 10\.0 MB"):
        read_parquet(file)


def test_a_footer_that_is_cut_or_nonsense(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(table(10), file)
    content = file.read_bytes()
    for broken in (
        content[:-10],
        b"PAR1PAR1",
        b"PAR1" + b"\xff" * 40 + b"\x20\0\0\0PAR1",
        content[:-12] + b"\xff" * 4 + content[-8:],
    ):
        file.write_bytes(broken)
        with pytest.raises(ValueError, match=r"t\.parquet"):
            read_shard(file)


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_sound_arrow_comes_back_whole(tmp_path: Path, kind: str, compression: str | None) -> None:
    file, options = tmp_path / "t.arrow", pa.ipc.IpcWriteOptions(compression=compression)
    write = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with write(file, table().schema, options=options) as writer:
        writer.write_table(table(), max_chunksize=300)
    assert pa.Table.from_batches(list(arrow_batches(file))).combine_chunks().equals(table().combine_chunks())


def test_a_buffer_that_unpacks_to_more_than_its_file_may_fill(tmp_path: Path, little: None) -> None:
    file, big = tmp_path / "t.arrow", pa.table({"x": np.zeros(500_000)})
    with pa.ipc.new_file(file, big.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(big)
    assert file.stat().st_size < 10_000
    with pytest.raises(ValueError, match=r"t\.arrow: what its buffers announce would take [48]\.0 MB"):
        list(arrow_batches(file))


def test_offsets_that_leave_their_buffer_are_refused_and_not_followed(tmp_path: Path) -> None:
    file = tmp_path / "t.arrow"
    texts = pa.table({"x": ["first", "second"]})
    with pa.ipc.new_file(file, texts.schema) as writer:
        writer.write_table(texts)
    content = bytearray(file.read_bytes())
    place = content.index(struct.pack("<iii", 0, 5, 11))
    content[place + 4 : place + 8] = struct.pack("<i", 2**30)
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"t\.arrow cannot be read"):
        read_shard(file)


def test_texts_that_rows_only_point_to_count_once_for_each_row() -> None:
    text = "t" * 1000
    codes = pa.array([text] * 50).dictionary_encode()
    assert memory_of(pa.RecordBatch.from_arrays([codes], ["x"])) >= 50 * 1000
    views = pa.array([text] * 50, pa.string_view())
    assert memory_of(pa.RecordBatch.from_arrays([views], ["x"])) >= 50 * 1000


def test_columns_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two columns are called ''"):
        refuse_repeats([""] * 300_000, tmp_path)  # in no time: a header of commas
    refuse_repeats(["a", "b"], tmp_path)


@pytest.mark.parametrize("header", [",", "\n\n,", "x"])
def test_a_header_of_very_many_columns_is_refused_before_it_is_parsed(tmp_path: Path, header: str) -> None:
    """pyarrow takes 3 GB for 400,000 commas."""
    (tmp_path / "t.csv").write_text(header + "," * 400_000 + "\n")
    with pytest.raises(ValueError, match=r"t\.csv: its 400,00[12] columns would take 6\.6 GB"):
        read_shard(tmp_path / "t.csv")


def test_a_wide_table_is_read_in_time(tmp_path: Path) -> None:
    """20,000 columns: nothing looks for a name in a list of names."""
    from graphcal.tables.reading import read_table

    names, rows = [f"logit_{k}" for k in range(20_000)], ["0.5"] * 20_000
    (tmp_path / "t.csv").write_text(",".join(["node_id", *names]) + "\n" + ",".join(["7", *rows]) + "\n")
    started = time.process_time()
    assert read_table(tmp_path / "t.csv").num_classes == 20_000
    assert time.process_time() - started < 10


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def avro(path: Path, schema: object, rows: int, block: bytes, codec: bytes = b"null") -> Path:
    parts = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": codec}
    about = b"".join(zigzag(len(k)) + k + zigzag(len(v)) + v for k, v in parts.items())
    mark = bytes(16)
    path.write_bytes(b"Obj\x01" + zigzag(2) + about + b"\0" + mark + zigzag(rows) + zigzag(len(block)) + block + mark)
    return path


def record(kind: object) -> dict:
    return {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}


def test_sound_avro_comes_back_whole(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    kinds = [("id", "long"), ("name", ["null", "string"]), ("probs", {"type": "array", "items": "double"})]
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in kinds]}
    rows = [{"id": k, "name": None if k % 3 else "n", "probs": [0.25, 0.75]} for k in range(500)]
    for codec in ("null", "deflate"):
        with open(tmp_path / "t.avro", "wb") as file:
            fastavro.writer(file, schema, rows, codec=codec)
        assert read_avro(tmp_path / "t.avro").to_pylist() == rows


@pytest.mark.parametrize(
    ("kind", "rows", "block", "codec", "said"),
    [
        pytest.param("null", 10**9, b"", b"null", "holds neither numbers", id="rows of nothing"),
        pytest.param(
            "boolean", 10**9, b"\0", b"null", "1 bytes announces 1,000,000,000 rows", id="more rows than bytes"
        ),
        pytest.param(
            {"type": "array", "items": "null"}, 1, zigzag(2**40), b"null", "holds neither", id="a list of nothing"
        ),
        pytest.param(
            {"type": "array", "items": "r"}, 1, b"\0", b"null", "holds neither", id="a type that holds itself"
        ),
        pytest.param("r", 1, b"", b"null", "holds neither", id="a row that is itself"),
        pytest.param("boolean", 1, b"", b"zstandard", "codec 'zstandard'", id="another codec"),
    ],
)
def test_avro_that_announces_what_it_does_not_hold(tmp_path: Path, kind, rows, block, codec, said) -> None:
    pytest.importorskip("fastavro")
    with pytest.raises(ValueError, match=said):
        read_shard(avro(tmp_path / "t.avro", record(kind), rows, block, codec))


def test_an_avro_block_that_unpacks_to_more_than_its_file_may_fill(tmp_path: Path, little: None) -> None:
    pytest.importorskip("fastavro")
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(10**6)) + packer.flush()
    with pytest.raises(ValueError, match=r"t\.avro: its rows would take"):
        read_shard(avro(tmp_path / "t.avro", record("boolean"), 5, block, b"deflate"))


def test_tensors_that_are_larger_than_their_file(tmp_path: Path) -> None:
    torch.save({"x": torch.zeros(1).expand(2**40)}, tmp_path / "t.pt")
    with pytest.raises(ValueError, match=r"t\.pt: x of shape \(1099511627776,\) would take"):
        read_shard(tmp_path / "t.pt")
    found = load_safely(tmp_path / "t.pt")
    for wrong in (torch.zeros(3, device="meta"), torch.eye(3).to_sparse(), torch.zeros(2, dtype=torch.cfloat), "text"):
        with pytest.raises(ValueError, match="x is a"):
            check_tensor(wrong, "x", tmp_path)
    assert isinstance(found["x"], torch.Tensor)


def test_a_pickle_without_an_archive_is_not_opened(tmp_path: Path) -> None:
    file = io.BytesIO()
    torch.save({"x": torch.ones(2)}, file, _use_new_zipfile_serialization=False)
    (tmp_path / "t.pt").write_bytes(file.getvalue())
    with pytest.raises(ValueError, match=r"t\.pt: not a file of torch\.save"):
        load_safely(tmp_path / "t.pt")
