"""Size limits, atomic writes, checksums and file errors.

Declared sizes are held against these limits before memory is taken:

    memory of a file      at most 512 MB, or 256 bytes for each byte of the file, whichever is more
    columns of features   at most 2**24 (word numbers, hashed features)
    classes               fewer than nodes: every class needs two labels
    runs of a preset      at most 10,000, and at most 1,000,000 cells in all
    a download            at most 2 GB and 30 minutes in all, 30 seconds without an answer

The first one is for compressed files, where a few kilobytes can announce terabytes. A graph that meets it is stored with less
compression (``np.savez``, Parquet without dictionaries): then the file itself is as large as what it holds.

A file that is written has all of its content under its name, or does not exist.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
import secrets
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from torch import Tensor

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

try:
    import fcntl
except ImportError:  # Windows: partial files of a killed process stay until somebody removes them
    fcntl = None  # type: ignore[assignment]


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


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Compute the SHA-256 of a file, read in pieces, as hexadecimal text."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            total.update(piece)
    return total.hexdigest()


def digest(*parts: str | bytes) -> str:
    """Compute the SHA-256 of several texts; ("ab", "c") and ("a", "bc") differ."""
    total = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        total.update(len(content).to_bytes(8, "little") + content)
    return total.hexdigest()


def tensor_checksum(tensors: Mapping[str, Tensor], header: str = "") -> str:
    """Compute the SHA-256 of a header and of every tensor's name, shape, type and bytes."""
    import torch

    total = hashlib.sha256(header.encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        raw = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(raw.view(torch.uint8).numpy().tobytes() if raw.numel() else b"")
    return total.hexdigest()


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


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, under another name beside ``path``; moved into place when all of it is on the disk."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent, glob.escape(path.name))
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with _locked(partial) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                os.replace(partial, path)  # while it is locked, so that no other process sweeps it
        if fcntl is None:  # Windows does not move an open file
            os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _locked(partial: Path) -> BinaryIO:
    """A new file, locked as long as this process lives (see `sweep`); made again if it was swept just before the lock."""
    while True:
        file = open(partial, "xb")  # noqa: SIM115 (the caller closes it)
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)  # waits for a sweep, which takes a moment
        if partial.exists():
            return file
        file.close()


def sweep(folder: str | os.PathLike[str], name: str = "*", inside: bool = False) -> None:
    """Remove the partial files (of files with this name) that killed processes left in a folder: whose lock nobody holds.

    With ``inside``, in the folders inside it as well.
    """
    if fcntl is None or not Path(folder).is_dir():
        return
    for partial in (Path(folder).rglob if inside else Path(folder).glob)(f".{name}.*.*"):
        if not re.fullmatch(r"\..+\.\d+\.[0-9a-f]{8}", partial.name):
            continue
        with contextlib.suppress(OSError), open(partial, "rb") as file:  # OSError: it is locked, or already gone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            partial.unlink()


@contextlib.contextmanager
def one_process(lock: Path, refusal: str) -> Iterator[None]:
    """Hold the file ``lock``, or raise ValueError(refusal) where another process holds it.

    The system releases the lock of a process that ends, however it ends; a lock file without an owner is no obstacle.
    """
    if fcntl is None:
        yield
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(lock, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(refusal) from None
            if not lock.exists() or not os.path.samestat(os.fstat(file.fileno()), os.stat(lock)):
                continue  # its last owner removed it just before
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Write ``content``, all of it or nothing."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


def write_record(path: Path, record: Mapping[str, Any], written: Iterable[Path]) -> None:
    """Write ``record`` as JSON, the last file of a result, with the SHA-256 of the files ``written`` before it."""
    digests = {file.name: sha256_of(file) for file in written}
    write_atomically(path, json.dumps({**record, "files": digests}, indent=1) + "\n")


def check_writable(folder: str | os.PathLike[str], size: int = 1 << 20) -> None:
    """Refuse a folder that cannot be made or does not take ``size`` bytes; leaves nothing behind.

    Called before long work, so that a full or read-only disk costs seconds and not the result. What earlier processes left
    half-written in the folder is removed.
    """
    folder = Path(folder)
    sweep(folder)
    made = [path for path in (folder, *folder.parents) if not path.exists()]  # innermost first
    probe = folder / f".probe.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        write_atomically(probe, bytes(size))
    except OSError as error:
        raise ValueError(f"cannot write to {folder}: {error.strerror or error}") from error
    finally:
        for remove in (probe.unlink, *(path.rmdir for path in made)):
            with contextlib.suppress(OSError):  # it was never made, or another process has put something there
                remove()


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file; one that is not TOML is named."""
    text = read_text(path)
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as fault:  # a date of month 13, or brackets within brackets without end
        raise ValueError(f"{os.fspath(path)} is not TOML: {fault}") from None
    return tables


@contextlib.contextmanager
def file_errors(path: str | os.PathLike[str], what: str = "", others: bool = False) -> Iterator[None]:
    """Turn whatever a library raises over the content of a file into one ValueError that names the file.

    Libraries answer broken files with any class of exception, from KeyError to MemoryError. Errors that name the file already
    pass as they are. ``what`` is what the file was expected to be. With ``others``, several files are read, and errors of ours
    pass: they name the file at fault.
    """
    name = os.fspath(path)
    try:
        yield
    except (FileNotFoundError, ModuleNotFoundError):
        raise
    except Exception as fault:
        if type(fault) is ValueError and (others or name in str(fault)):
            raise
        if others and isinstance(fault, OSError):
            raise
        text = str(fault).replace(f"Could not open Parquet input source '{name}': ", "")
        text = " ".join(text.split())[:300] or type(fault).__name__
        message = f"{name}: not {what} ({text})" if what else f"{name} cannot be read: {text}"
        raise ValueError(message) from fault
