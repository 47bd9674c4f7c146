"""A file is there whole, or not at all; a folder that cannot be written is refused before the work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphcal import files
from graphcal.files import atomic_file, check_writable, read_toml, write_atomically


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


def test_a_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    check_writable(tmp_path / "old")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert list((tmp_path / "old").iterdir()) == []


def test_a_folder_that_is_a_file_and_a_full_disk_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="cannot write to .*file"):
        check_writable(tmp_path / "file")
    with pytest.raises(ValueError, match="cannot write to .*inside"):
        check_writable(tmp_path / "file" / "inside")
    monkeypatch.setattr(files.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(ValueError, match="cannot write to .*new: No space left on device"):
        check_writable(tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
