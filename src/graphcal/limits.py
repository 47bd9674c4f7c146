"""What a file may ask of this machine. Declared sizes are held against these numbers before memory is taken.

    memory of a file      at most 512 MB, or 256 bytes for each byte of the file, whichever is more
    columns of features   at most 2**24 (word numbers, hashed features)
    classes               fewer than nodes: every class needs two labels
    runs of a preset      at most 10,000, and at most 1,000,000 cells in all
    a download            at most 2 GB and 30 minutes in all, 30 seconds without an answer

The first one is for compressed files, where a few kilobytes can announce terabytes. A graph that meets it is stored with less
compression (``np.savez``, Parquet without dictionaries): then the file itself is as large as what it holds.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import BinaryIO

MEMORY = 512 * 2**20  # bytes that any file may fill
PER_BYTE = 256  # bytes of memory for each byte of a file
WORKING = 40  # bytes of memory for each id, label or index while a graph is put together
FEATURES = 2**24  # columns
RUNS = 10_000  # of one preset
CELLS = 1_000_000  # of one preset
DOWNLOAD = 2 * 2**30  # bytes
DOWNLOAD_SECONDS = 1800.0  # of one file, in all
ANSWER_SECONDS = 30.0  # without a byte
TEXT = 64 * 2**20  # bytes of a JSON or TOML file


def allowed_memory(path: str | os.PathLike[str]) -> int:
    """Bytes of memory that reading this file may take."""
    return max(MEMORY, PER_BYTE * os.path.getsize(path))


def check_memory(path: str | os.PathLike[str], wanted: int, what: str) -> None:
    """Refuse a file that announces more than it may hold."""
    allowed = allowed_memory(path)
    if wanted > allowed:
        raise ValueError(
            f"{os.fspath(path)}: {what} would take {_size(wanted)}, but a file of {_size(os.path.getsize(path))} may fill "
            f"at most {_size(allowed)}; if this is meant, store it with less compression"
        )


def check_archive(path: str | os.PathLike[str], archive: zipfile.ZipFile) -> None:
    """Refuse a zip archive whose members announce more than it may hold. A member is never read beyond what it announced."""
    check_memory(path, sum(member.file_size for member in archive.infolist()), "its unpacked content")


def read_at_most(file: BinaryIO, size: int, what: str) -> bytes:
    """The whole stream, refused when it is longer."""
    content = file.read(size + 1)
    if len(content) > size:
        raise ValueError(f"{what} holds more than {_size(size)}")
    return content


def read_text(path: str | os.PathLike[str], size: int = TEXT) -> str:
    """A UTF-8 file of a sensible size; one that is neither is named."""
    with open(path, "rb") as file:
        content = read_at_most(file, size, os.fspath(path))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise ValueError(f"{os.fspath(path)}: not UTF-8 text ({fault.reason} at byte {fault.start})") from None


def check_regular(path: str | os.PathLike[str]) -> Path:
    """The path, proved to be a file that can be opened."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, expected a file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        raise ValueError(f"{path} is not a regular file")
    return path


def _size(count: int) -> str:
    if count >= 10**18:
        return "more than 10^18 bytes"
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= one:
            return f"{count / one:,.1f} {unit}"
    return f"{count} bytes"
