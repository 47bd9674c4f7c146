"""Arrow's own files (IPC, Feather) and streams. A file is a stream between marks, and is read as that: its footer could point
anywhere. Compressed buffers begin with the length they unpack to; the sum is held against the limits of `files` first.

A message is a FlatBuffers table {0: version, 1: type, 2: header, 3: length}; the header of a batch {0: rows, 1: nodes,
2: buffers, 3: compression}, that of a dictionary {0: id, 1: batch}. Format: https://arrow.apache.org/docs/format/Columnar.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from graphcal.containers.batches import checked, refuse_repeats
from graphcal.files import check_memory

MARK = b"ARROW1"
DICTIONARY, BATCH = 2, 3  # types of messages


def arrow_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file or stream, each proved sound."""
    check_buffers(path)
    with pa.memory_map(str(path)) as source:
        source.seek(_begin(source))
        stream = pa.ipc.open_stream(source)
        refuse_repeats(stream.schema.names, path)
        yield from checked(stream, path)


def arrow_schema(path: Path) -> pa.Schema:
    with pa.memory_map(str(path)) as source:
        source.seek(_begin(source))
        return pa.ipc.open_stream(source).schema


def check_buffers(path: Path) -> None:
    """Refuse a file whose compressed buffers announce more than it may fill."""
    taken = 0
    with pa.memory_map(str(path)) as source:
        source.seek(_begin(source))
        reader = pa.ipc.MessageReader.open_stream(source)
        while True:
            try:
                message = reader.read_next_message()
            except StopIteration:
                return
            try:
                taken += unpacked(bytes(message.metadata), memoryview(message.body or b""))
            except (struct.error, IndexError) as fault:
                raise ValueError(f"{path}: not a readable Arrow file (a message is broken)") from fault
            check_memory(path, taken, "what its buffers announce")


def _begin(source: pa.NativeFile) -> int:
    """Where the stream in a file begins: after its mark, if it has one."""
    source.seek(0)
    return 8 if source.read(len(MARK)) == MARK else 0


def unpacked(metadata: bytes, body: memoryview) -> int:
    """Bytes that the compressed buffers of a message unpack to."""
    message = struct.unpack_from("<I", metadata)[0]
    kind = _field(metadata, message, 1)
    header = _field(metadata, message, 2)
    if not kind or not header or metadata[kind] not in (DICTIONARY, BATCH):
        return 0
    batch = _target(metadata, header)
    if metadata[kind] == DICTIONARY:
        inner = _field(metadata, batch, 1)
        if not inner:
            return 0
        batch = _target(metadata, inner)
    buffers = _field(metadata, batch, 2)
    if not _field(metadata, batch, 3) or not buffers:
        return 0
    first = _target(metadata, buffers)
    (count,) = struct.unpack_from("<I", metadata, first)
    total = 0
    for offset, length in struct.iter_unpack("<qq", metadata[first + 4 : first + 4 + 16 * count]):
        if length >= 8:
            (announced,) = struct.unpack_from("<q", body, max(offset, 0))
            total += max(announced, 0)
    return total


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a FlatBuffers table is, or 0."""
    about = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, about)[0]
    if 4 + 2 * number >= size:
        return 0
    offset = struct.unpack_from("<H", data, about + 4 + 2 * number)[0]
    return table + int(offset) if offset else 0


def _target(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])
