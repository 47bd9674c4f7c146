"""A file is there whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphcal import files
from graphcal.files import atomic_file, read_toml, write_atomically


def test_text_and_bytes_are_written_and_folders_made(tmp_path: Path) -> None:
    assert write_atomically(tmp_path / "deep" / "a", "Grüße") == tmp_path / "deep" / "a"
    assert (tmp_path / "deep" / "a").read_text(encoding="utf-8") == "Grüße"
    write_atomically(tmp_path / "deep" / "a", b"later")
    assert (tmp_path / "deep" / "a").read_bytes() == b"later"


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "a", b"before")

    def broken(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(files.os, "replace", broken)
    with pytest.raises(OSError, match="disk is full"):
        write_atomically(tmp_path / "a", b"after")
    assert (tmp_path / "a").read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_is_being_written_has_another_name(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "a") as file:
        file.write(b"half")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"half"


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with atomic_file(tmp_path / "a") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_toml_is_read_and_what_is_none_is_named(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.toml", "[b]\nc = [1.5, 2]\n")
    assert read_toml(tmp_path / "a.toml") == {"b": {"c": [1.5, 2]}}
    write_atomically(tmp_path / "a.toml", "a = = 1")
    with pytest.raises(ValueError, match=r"a\.toml is not TOML"):
        read_toml(tmp_path / "a.toml")
