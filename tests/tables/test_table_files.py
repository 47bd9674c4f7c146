"""Files that hold more than their size: each kind of bomb is refused by name, in time and memory; sound files come back."""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from graphcal import files
from graphcal.cli import main
from graphcal.tables.array_files import check_tensor, load_safely
from graphcal.tables.files import (
    arrow_batches,
    memory_of,
    parquet_batches,
    read_parquet,
    read_table_file,
    refuse_repeats,
    shards_of,
)


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
    assert read_table_file(tmp_path / "t.arrow").column_names == table().column_names


def test_a_page_that_unpacks_to_more_than_its_file_may_fill(tmp_path: Path, little: None) -> None:
    file = tmp_path / "page.parquet"
    pq.write_table(pa.table({"text": ["x" * 4_000_000]}), file, compression="zstd", use_dictionary=False)
    assert file.stat().st_size < 10_000
    with pytest.raises(ValueError, match=r"page\.parquet: its 1 columns would take [48]\.0 MB"):
        read_parquet(file)


@pytest.mark.parametrize(
    ("column", "encoding"),
    [
        pytest.param(pa.array(np.zeros(1_000_000)), None, id="equal numbers"),
        pytest.param(pa.array([[0.0] * 1_000_000]), None, id="equal numbers in a list"),
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
    with pytest.raises(ValueError, match=r"many\.parquet: its 1(,000,000 rows| columns) would take"):
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
            read_table_file(file)


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
    with pytest.raises(ValueError, match=r"t\.arrow: its 1 columns would take [48]\.0 MB"):
        list(arrow_batches(file))


def test_offsets_that_leave_their_buffer_are_refused_and_not_followed(tmp_path: Path) -> None:
    file = tmp_path / "t.arrow"
    texts = pa.table({"x": ["first", "second"]})
    with pa.ipc.new_file(file, texts.schema) as writer:
        writer.write_table(texts)
    content = bytearray(file.read_bytes())
    start = content.index(struct.pack("<iii", 0, 5, 11))
    content[start + 4 : start + 8] = struct.pack("<i", 2**30)
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"t\.arrow cannot be read"):
        read_table_file(file)


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
        read_table_file(tmp_path / "t.csv")


@pytest.mark.slow
def test_a_wide_table_is_read_in_time(tmp_path: Path) -> None:
    """20,000 columns: nothing looks for a name in a list of names."""
    from graphcal.tables.reading import read_table

    names, rows = [f"logit_{k}" for k in range(20_000)], ["0.5"] * 20_000
    (tmp_path / "t.csv").write_text(",".join(["node_id", *names]) + "\n" + ",".join(["7", *rows]) + "\n")
    started = time.process_time()
    assert read_table(tmp_path / "t.csv").num_classes == 20_000
    assert time.process_time() - started < 10


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def short(number: int) -> tuple[int, bytes]:
    return 5, varint(number << 1)


def long(number: int) -> tuple[int, bytes]:
    return 6, varint(number << 1)


def word(text: bytes) -> tuple[int, bytes]:
    return 8, varint(len(text)) + text


def items(kind: int, values: list[bytes]) -> tuple[int, bytes]:
    return 9, bytes([0xF0 | kind]) + varint(len(values)) + b"".join(values)


def structure(fields: dict[int, tuple[int, bytes]]) -> bytes:
    """A structure {number: (type, content)} in the compact protocol of Thrift."""
    out, last = b"", 0
    for number, (kind, content) in fields.items():
        out, last = out + bytes([(number - last) << 4 | kind]) + content, number
    return out + b"\0"


def page(values: int, content: bytes, unpacked: int) -> bytes:
    about = structure({1: short(values), 2: short(0), 3: short(3), 4: short(3)})
    return structure({1: short(0), 2: short(unpacked), 3: short(len(content)), 5: (12, about)}) + content


def with_footer(pages: bytes, footer: bytes) -> bytes:
    return b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def parquet(pages: bytes, groups: int, total: int, rows: int, values: int, codec: int = 0) -> bytes:
    """A column x of whole numbers; each row group has all of the pages. The counts are those of file, group and column."""
    names = [structure({4: word(b"schema"), 5: short(1)}), structure({1: short(2), 3: short(0), 4: word(b"x")})]
    column = {1: short(2), 2: items(5, [varint(0)]), 3: items(8, [word(b"x")[1]]), 4: short(codec), 5: long(values)}
    column |= {6: long(len(pages)), 7: long(len(pages)), 9: long(4)}
    chunk = structure({2: long(4), 3: (12, structure(column))})
    group = structure({1: items(12, [chunk]), 2: long(len(pages)), 3: long(rows)})
    footer = {1: short(1), 2: items(12, names), 3: long(total), 4: items(12, [group] * groups)}
    return with_footer(pages, structure(footer))


def list_of_doubles(count: int) -> bytes:
    return with_footer(b"", bytes([0x19, 0xF7]) + varint(count) + b"\0")


def bombs() -> dict[str, tuple[bytes, str]]:
    """Files of a few bytes that announce or hold very much, and what is said of them."""
    zeros = pa.compress(bytes(2**20), codec="zstd", asbytes=True)
    pages, many = page(2**17, zeros, 2**20) * 1600, 1600 * 2**17  # 1.6 GB
    one = page(1, struct.pack("<q", 7), 8)
    return {
        "list-19": (list_of_doubles(50_000_000), "Couldn't deserialize thrift"),
        "list-20": (list_of_doubles(300_000_000), "Couldn't deserialize thrift"),
        "list-21": (list_of_doubles(2**40), "Couldn't deserialize thrift"),
        "a-million-groups": (
            with_footer(b"", bytes([0x49, 0xFC]) + varint(999_999) + b"\0"), "Couldn't deserialize thrift"
        ),
        "no-rows": (parquet(page(0, b"", 0) * 3000, 1000, 0, 0, 0), "0 rows"),
        "empty-pages": (parquet(page(0, b"", 0) * 3000, 1000, 1000, 1, 1), "declares 1,000 rows, its pages hold 0"),
        "one-page": (parquet(one, 1000, 1000, 1, 1), "1000 rows"),
        "total": (parquet(pages, 1, 10, many, many, 6), "declares 10 rows, its pages hold more"),
        "column": (parquet(pages, 1, many, many, 10, 6), "its 209,715,200 rows would take"),
        "honest": (parquet(pages, 1, many, many, many, 6), "its 209,715,200 rows would take"),
    }  # fmt: skip


READ = """
import json, re, sys, time
from pathlib import Path
from graphcal.tables.files import read_table_file

def peak():  # memory of this process in kB; ru_maxrss would count that of its parent too
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

for name in sys.argv[1:]:
    begin = time.monotonic()
    try:
        outcome = f"{read_table_file(Path(name)).num_rows} rows"
    except ValueError as fault:
        outcome = str(fault)
    print(json.dumps([outcome, time.monotonic() - begin, peak()]), flush=True)
"""


def test_parquet_bombs_end_in_time_and_memory(tmp_path: Path) -> None:
    """Each in under 5 seconds, all of them in a process that never has 1 GB."""
    files = []
    for name, (content, _) in bombs().items():
        files.append(tmp_path / f"{name}.parquet")
        files[-1].write_bytes(content)
    assert [f.stat().st_size for f in files[:3]] == [19, 20, 21]
    assert max(f.stat().st_size for f in files) < 600_000
    run = subprocess.run([sys.executable, "-c", READ, *map(str, files)], capture_output=True, text=True, timeout=100)
    outcomes = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(outcomes) == len(files), run.stderr
    for file, (outcome, seconds, peak), (_, expected) in zip(files, outcomes, bombs().values()):
        assert expected in outcome, file.name
        assert str(file) in outcome or outcome.endswith(" rows")
        assert seconds < 5, file.name
        assert peak < 10**6, file.name  # kB


@pytest.mark.parametrize("command", ["check", "calibrate"])
def test_command_line_refuses_a_bomb_in_one_line(tmp_path: Path, monkeypatch, capsys, command: str) -> None:
    file = tmp_path / "b.parquet"
    file.write_bytes(list_of_doubles(2**40))
    monkeypatch.setattr(sys, "argv", ["graphcal", command, str(file)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "b.parquet cannot be read: Couldn't deserialize thrift" in " ".join(capsys.readouterr().err.split())


def test_parquet_folder_of_a_graph_refuses_a_bomb(tmp_path: Path) -> None:
    (tmp_path / "nodes.parquet").write_bytes(list_of_doubles(2**40))
    (tmp_path / "edges.parquet").write_bytes(list_of_doubles(2**40))
    lab = pytest.importorskip("graphcal.lab")
    with pytest.raises(ValueError, match=r"nodes\.parquet: not a readable Parquet file"):
        lab.read(tmp_path)


def test_rows_that_are_not_there(tmp_path: Path) -> None:
    """A footer that declares more rows than its pages hold: a missing row would not be noticed."""
    one = page(1, struct.pack("<q", 7), 8)
    (tmp_path / "t.parquet").write_bytes(parquet(one, 2, 5, 1, 1))
    with pytest.raises(ValueError, match=r"t\.parquet: its footer declares 5 rows, its pages hold 2"):
        read_parquet(tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_bytes(parquet(one, 2, 2, 1, 1))
    assert read_parquet(tmp_path / "t.parquet")["x"].to_pylist() == [7, 7]


def every_type() -> pa.Table:
    k = range(2000)
    return pa.table(
        {
            "text": pa.array([f"n{i}" if i % 5 else None for i in k]),
            "large": pa.array([f"n{i % 3}" for i in k], pa.large_string()),
            "bytes": pa.array([b"x" * (i % 4) for i in k]),
            "a.b": pa.array([f"n{i}" for i in k]),
            "words": pa.array([[f"w{i % 3}", "w"] if i % 7 else None for i in k]),
            "pair": pa.array([{"p": f"w{i % 3}", "q": i} for i in k]),
            "map": pa.array([[("key", f"v{i % 3}")] for i in k], pa.map_(pa.string(), pa.string())),
            "two": pa.array([["a", f"b{i % 3}"] for i in k], pa.list_(pa.string(), 2)),
            "view": pa.array([f"n{i % 3}" for i in k], pa.string_view()),
            "time": pa.array(list(k), pa.timestamp("us", "UTC")),
            "decimal": pa.array(list(k), pa.decimal128(20, 2)),
            "half": pa.array(np.arange(2000).astype(np.float16)),
        }
    )


def test_every_type_is_read_as_pyarrow_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    for options in ({}, {"use_dictionary": False}, {"compression": "zstd", "row_group_size": 300}):
        pq.write_table(every_type(), file, **options)
        expected = pq.ParquetFile(file).read()
        assert read_parquet(file).combine_chunks().equals(expected.combine_chunks(), check_metadata=True)
        assert read_parquet(file, ["words"]).column_names == ["words"]


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_in_a_delta_encoding_are_read_whole(tmp_path: Path, encoding: str) -> None:
    """pyarrow cannot read them as codes: the rows before and after the first such page come once each."""
    file, k = tmp_path / "t.parquet", list(range(5000))
    texts = pa.table({"id": k, "x": [f"text {i}" for i in k]})
    parts = [texts.slice(0, 2500), texts.slice(2500)]
    with pq.ParquetWriter(file, texts.schema, use_dictionary=False, column_encoding={"x": encoding}) as writer:
        for part in parts:
            writer.write_table(part)
    assert read_parquet(file).equals(texts)
    assert [n for batch in parquet_batches(file, size=1700) for n in batch["id"].to_pylist()] == k


def test_rows_before_a_delta_page_come_once(tmp_path: Path, monkeypatch) -> None:
    """Codes for the first batches, then a page that pyarrow cannot read as codes."""
    from graphcal.tables import files as module

    scan = module._scan

    def fails_with_codes(path, groups, columns, size, use_threads=False, codes=()):
        for number, batch in enumerate(scan(path, groups, columns, size, use_threads, codes)):
            if codes and number == 2:
                raise OSError("Not yet implemented")
            yield batch

    file = tmp_path / "t.parquet"
    texts = pa.table({"x": [f"text {i}" for i in range(5000)]})
    pq.write_table(texts, file)
    monkeypatch.setattr(module, "_scan", fails_with_codes)
    rows = [text for batch in parquet_batches(file, size=700) for text in batch["x"].to_pylist()]
    assert rows == texts["x"].to_pylist()


def test_a_long_text_beside_short_ones_counts_once(tmp_path: Path, little: None) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": ["long" * 5000] + ["short"] * 2000}), file)
    assert read_parquet(file).num_rows == 2001


def test_a_packed_table_of_empty_values_is_counted_by_its_values(tmp_path: Path, little: None) -> None:
    """400 kB of commas are 200,000 rows of two values: 3 MB as numbers."""
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.write("a,b\n" + ",\n" * 200_000)
    with pytest.raises(ValueError, match=r"t\.csv\.gz: its unpacked content would take"):
        read_table_file(tmp_path / "t.csv.gz")


@pytest.mark.parametrize("ending", ["avro", "orc"])
def test_a_shard_of_another_format_is_refused_and_not_left_out(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.{ending}").write_bytes(b"Obj")
    pq.write_table(table(3), tmp_path / "b.parquet")
    for path in (tmp_path, tmp_path / f"a.{ending}"):
        with pytest.raises(ValueError, match=rf"a\.{ending}: cannot read \.{ending}"):
            shards_of(path)


def test_tensors_that_are_larger_than_their_file(tmp_path: Path) -> None:
    torch.save({"x": torch.zeros(1).expand(2**40)}, tmp_path / "t.pt")
    with pytest.raises(ValueError, match=r"t\.pt: x of shape \(1099511627776,\) would take"):
        read_table_file(tmp_path / "t.pt")
    tensors = load_safely(tmp_path / "t.pt")
    for wrong in (torch.zeros(3, device="meta"), torch.eye(3).to_sparse(), torch.zeros(2, dtype=torch.cfloat), "text"):
        with pytest.raises(ValueError, match="x is a"):
            check_tensor(wrong, "x", tmp_path)
    assert isinstance(tensors["x"], torch.Tensor)


def test_a_pickle_without_an_archive_is_not_opened(tmp_path: Path) -> None:
    file = io.BytesIO()
    torch.save({"x": torch.ones(2)}, file, _use_new_zipfile_serialization=False)
    (tmp_path / "t.pt").write_bytes(file.getvalue())
    with pytest.raises(ValueError, match=r"t\.pt: not a file of torch\.save"):
        load_safely(tmp_path / "t.pt")
