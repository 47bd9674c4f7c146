"""Read Arrow files (IPC, Feather) and streams with pyarrow, within a budget of bytes.

A file is a stream between marks and is read as one: its footer could point anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from graphcal.containers.batches import checked, refuse_repeats

MARK = b"ARROW1"


def arrow_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Read an Arrow file or stream batch by batch."""
    with pa.memory_map(str(path)) as source:
        stream = _open_stream(source)
        refuse_repeats(stream.schema.names, path)
        yield from checked(stream, path)


def arrow_schema(path: Path) -> pa.Schema:
    with pa.memory_map(str(path)) as source:
        return _open_stream(source).schema


def _open_stream(source: pa.NativeFile) -> pa.RecordBatchStreamReader:
    source.seek(8 if source.read(len(MARK)) == MARK else 0)
    return pa.ipc.open_stream(source)
