"""Avro files, as tables: rows of numbers, texts and lists of those.

A row may take no byte and a block may say how many there are; lists of nothing may be as long as they like; a type may hold
itself. So a schema is held to what a table has, and blocks to what they unpack to, before fastavro reads a row. Codecs: null,
deflate, snappy. Format: https://avro.apache.org/docs/1.11.1/specification
"""

from __future__ import annotations

import io
import json
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from graphcal.containers.batches import refuse_repeats
from graphcal.files import allowed_memory, check_memory

PRIMITIVE = ("boolean", "int", "long", "float", "double", "bytes", "string")
CODECS = ("null", "deflate", "snappy")
ROW, BYTE = 400, 24  # bytes of memory for each row, and for each byte of its values


def read_avro(path: Path) -> pa.Table:
    """The rows of an Avro file."""
    try:
        import fastavro
    except ImportError:
        raise ValueError("Avro files need fastavro: pip install 'graphcal[avro]'") from None
    with open(path, "rb") as file:
        check_blocks(path, file)
        file.seek(0)
        return pa.Table.from_pylist(list(fastavro.reader(file)))


def check_blocks(path: Path, file: BinaryIO) -> None:
    """Refuse what is no table, and blocks that unpack to more than the file may fill."""
    if file.read(4) != b"Obj\x01":
        raise ValueError(f"{path}: not an Avro file")
    about = _metadata(file)
    codec = about.get("avro.codec", b"null").decode("ascii", "replace")
    if codec not in CODECS:
        raise ValueError(f"{path}: codec {codec!r}; write the file with {', '.join(CODECS)}")
    try:
        schema = json.loads(about.get("avro.schema", b""))
    except (ValueError, RecursionError):
        raise ValueError(f"{path}: its schema is not JSON") from None
    check_schema(schema, path)
    file.read(16)  # the mark between blocks
    taken = 0
    while head := file.read(1):
        rows, size = _long(file, head), _long(file)
        block = _taken(file, size)
        if rows < 0:
            raise ValueError(f"{path}: a block of {rows} rows")
        unpacked = _unpacked(block, codec, allowed_memory(path) // BYTE)
        if rows > unpacked:
            raise ValueError(f"{path}: a block of {unpacked:,} bytes announces {rows:,} rows")
        taken += ROW * rows + BYTE * unpacked
        check_memory(path, taken, "its rows")
        file.read(16)


def check_schema(schema: Any, path: Path) -> None:
    """Refuse a schema whose rows are no rows of a table."""
    fields = schema.get("fields") if isinstance(schema, dict) and schema.get("type") == "record" else None
    if not isinstance(fields, list) or not all(isinstance(f, dict) and isinstance(f.get("name"), str) for f in fields):
        raise ValueError(f"{path}: its schema is not a record with named fields")
    refuse_repeats([f["name"] for f in fields], path)
    for column in fields:
        if not _plain(column.get("type"), lists=True):
            raise ValueError(f"{path}: column {column['name']!r} holds neither numbers nor texts nor lists of those")


def _plain(kind: Any, lists: bool) -> bool:
    """A primitive type or one that may be null, or, with ``lists``, a list of those."""
    if isinstance(kind, list):
        return 0 < len(kind) <= 8 and all(one == "null" or _plain(one, lists) for one in kind)
    if not isinstance(kind, dict):
        return kind in PRIMITIVE
    if kind.get("type") == "array":
        return lists and _plain(kind.get("items"), lists=False)
    return kind.get("type") in PRIMITIVE


def _metadata(file: BinaryIO) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    while count := _long(file):
        if count < 0:
            count = -count
            _long(file)
        for _ in range(count):
            key, value = (_taken(file, _long(file)) for _ in range(2))
            found[key.decode("utf-8", "replace")] = value
    return found


def _taken(file: BinaryIO, size: int) -> bytes:
    """So many bytes, if the file has them: a size that is only announced takes no memory."""
    if not 0 <= size <= os.fstat(file.fileno()).st_size - file.tell():
        raise ValueError("it is cut off")
    return file.read(size)


def _unpacked(block: bytes, codec: str, most: int) -> int:
    """Bytes of a block when it is unpacked; more than ``most`` are not counted."""
    if codec == "deflate":
        return len(zlib.decompressobj(-15).decompress(block, most + 1))
    return len(block) if codec == "null" else _varint(io.BytesIO(block))  # snappy begins with its length


def _long(file: BinaryIO, head: bytes = b"") -> int:
    number = _varint(file, head)
    return (number >> 1) ^ -(number & 1)


def _varint(file: BinaryIO, head: bytes = b"") -> int:
    number = shift = 0
    while True:
        byte = head or file.read(1)
        head = b""
        if not byte or shift > 63:
            raise ValueError("a number is broken")
        number |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            return number
