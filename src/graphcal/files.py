"""One atomic write: a file has all of its content under its name, or does not exist. A probe that a folder can be written. One
way to read TOML. And one name for whatever a library says of a broken file."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from graphcal.limits import read_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

try:
    import fcntl
except ImportError:  # Windows: partial files of a killed process stay until somebody removes them
    fcntl = None  # type: ignore[assignment]

STALE_SECONDS = 2.0  # between the making of a partial file and its lock there is a moment


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
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _locked(partial: Path) -> BinaryIO:
    """A new file, locked as long as this process lives (see `sweep`); made again if it was swept just before the lock."""
    while True:
        file = open(partial, "xb")  # noqa: SIM115 (the caller closes it)
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held
        if partial.exists():
            return file
        file.close()


def sweep(folder: str | os.PathLike[str], name: str = "*") -> None:
    """Remove the partial files (of files with this name) that killed processes left in a folder: whose lock nobody holds."""
    if fcntl is None or not Path(folder).is_dir():
        return
    for partial in Path(folder).glob(f".{name}.*.*"):
        if not re.fullmatch(r"\..+\.\d+\.[0-9a-f]{8}", partial.name):
            continue
        with contextlib.suppress(OSError), open(partial, "rb") as file:  # OSError: it is locked, or already gone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if abs(time.time() - os.fstat(file.fileno()).st_mtime) > STALE_SECONDS:  # a clock may have been set back
                partial.unlink()


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Write ``content``, all of it or nothing."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


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
def reading(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Whatever a library raises over the content of a file becomes one ValueError that names the file.

    Libraries answer broken files with any class of exception, from KeyError to MemoryError. Ours pass as they are: they name
    the file already.
    """
    try:
        yield
    except (FileNotFoundError, ModuleNotFoundError):
        raise
    except Exception as fault:
        if isinstance(fault, ValueError) and str(fault).startswith(os.fspath(path)):
            raise
        said = " ".join(str(fault).split())[:300] or type(fault).__name__
        raise ValueError(f"{os.fspath(path)}: not {what} ({said})") from fault
