"""A table that cannot be read says which file it is and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_graph import tables, write

from graphcal.lab.datasets import read


def test_wrong_delimiter(tmp_path: Path) -> None:
    folder = write(tmp_path, *tables(), "csv", ";")
    with pytest.raises(
        ValueError,
        match=r"nodes\.csv: wrong delimiter: the header .* give it: --delimiter ';', in Python delimiter=';'",
    ):
        read(folder)


def test_ragged_csv(tmp_path: Path) -> None:
    folder = write(tmp_path, *tables(), "csv")
    with open(folder / "edges.csv", "a") as file:
        file.write("a,b,c\n")
    with pytest.raises(ValueError, match=r"edges\.csv: .*Expected 2 columns, got 3"):
        read(folder)


@pytest.mark.parametrize("stem", ["nodes", "edges"])
def test_empty_files(tmp_path: Path, stem: str) -> None:
    folder = write(tmp_path, *tables(), "csv")
    header = (folder / f"{stem}.csv").read_text().splitlines()[0]
    (folder / f"{stem}.csv").write_text(header + "\n")
    with pytest.raises(ValueError, match=rf"{stem}\.csv: the file is empty: it has a header and no rows"):
        read(folder)
    (folder / f"{stem}.csv").write_text("")
    with pytest.raises(ValueError, match=rf"{stem}\.csv: the file is empty"):
        read(folder)
