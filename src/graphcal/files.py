"""One atomic write: a file has all of its content under its name, or does not exist. A probe that a folder can be written. And
one way to read TOML."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, under another name beside ``path``; moved into place when all of it is on the disk."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Write ``content``, all of it or nothing."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


def check_writable(folder: str | os.PathLike[str], size: int = 1 << 20) -> None:
    """Refuse a folder that cannot be made or does not take ``size`` bytes; leaves nothing behind.

    Called before long work, so that a full or read-only disk costs seconds and not the result.
    """
    folder = Path(folder)
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
    try:
        tables: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as fault:
        raise ValueError(f"{os.fspath(path)} is not TOML: {fault}") from None
    return tables
