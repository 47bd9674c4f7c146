"""Files are whole or not there; a folder that cannot be written is refused before the work."""

import os

import pytest

from graphcal.files import check_writable, write_atomically


def test_a_file_is_whole_or_the_old_one(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "deep" / "a.txt", "first")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
    with pytest.raises(OSError, match="killed"):
        write_atomically(path, b"second")
    assert path.read_text() == "first"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_a_probe_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    check_writable(tmp_path / "old")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert list((tmp_path / "old").iterdir()) == []


def test_a_folder_that_is_a_file_and_a_full_disk_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="cannot write to .*file"):
        check_writable(tmp_path / "file")
    with pytest.raises(ValueError, match="cannot write to .*inside"):
        check_writable(tmp_path / "file" / "inside")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(ValueError, match="cannot write to .*new: No space left on device"):
        check_writable(tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
