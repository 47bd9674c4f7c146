"""Presets come from announced packages and from files; a file extends another; what is wrong is said."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from small_preset import FILE, small

from graphcal.lab.bench import presets
from graphcal.lab.bench.expansion import expand
from graphcal.lab.bench.presets import preset_titles, read_preset

METHODS = """
[define.uncal]
title = "Uncal."
calibrator = "none"

[[set]]
where = { method = "uncal" }
bins = 7
"""
FIRST = """
extends = "methods"
title = "First"
source = "a test"
runs = 2
methods = ["uncal", "ts"]

[axes]
dataset = ["citeseer"]
backbone = ["gcn"]

[base]
protocol = "public"
training = { epochs = 30 }
"""
SECOND = """
extends = "first"
title = "Second"
methods = ["uncal", "short"]

[base]
stop = "train"

[define.short]
calibrator = "ts"
training = { epochs = 10 }
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two presets, and nothing else."""
    folder = tmp_path / "package"
    folder.mkdir()
    for name, text in (("methods", METHODS), ("first", FIRST), ("second", SECOND)):
        (folder / f"{name}.toml").write_text(text)
    package = ModuleType("package")
    package.__path__ = [str(folder)]
    monkeypatch.setattr(presets, "PACKAGES", {"package": package})
    return tmp_path


def test_the_presets_of_a_package_are_listed_and_read(installed: Path) -> None:
    assert preset_titles() == {"first": "First", "second": "Second"}  # methods.toml has no title: it is extended
    first = read_preset("first")
    assert (first.name, first.title, list(first.methods)) == ("first", "First", ["uncal", "ts"])
    assert first.title_of("uncal") == "Uncal."
    assert first.title_of("ts") == "ts"  # a calibrator is a method without being defined


def test_a_file_lies_on_top_of_the_one_it_extends(installed: Path) -> None:
    second = read_preset("second")
    assert second.base == {"protocol": "public", "training": {"epochs": 30}, "stop": "train"}
    assert second.runs == 2
    cells = {slot.method: slot.cell for slot in expand(second, 1)}
    assert {method: cell.group.training["epochs"] for method, cell in cells.items()} == {"uncal": 30, "short": 10}
    assert {method: cell.bins for method, cell in cells.items()} == {"uncal": 7, "short": 20}


def test_a_file_of_your_own_extends_one_beside_it_or_an_installed_one(installed: Path) -> None:
    text = 'title = "Mine"\nruns = 3\n'
    (installed / "mine.toml").write_text('extends = "second"\n' + text)
    (installed / "closer.toml").write_text('extends = "mine"\ntitle = "Closer"\n')
    assert (read_preset(str(installed / "mine.toml")).runs, read_preset("second").runs) == (3, 2)
    closer = read_preset(str(installed / "closer.toml"))
    assert (closer.name, closer.title, closer.runs) == ("closer", "Closer", 3)


def test_a_file_needs_no_installed_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "PACKAGES", {})
    assert preset_titles() == {}
    assert list(read_preset(str(FILE)).methods) == ["uncal", "ts", "searched"]
    with pytest.raises(ValueError, match="unknown preset 'table-1'; no preset is installed: give a file of your own"):
        read_preset("table-1")


def test_an_announced_module_that_is_no_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "PACKAGES", {"theirs": ModuleType("single")})
    with pytest.raises(
        ValueError, match="presets are TOML files in a package, but 'theirs' announces <module 'single'>"
    ):
        preset_titles()


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("mine.toml", None, "no preset file"),
        ("mine.toml", "a = = 1", "not TOML"),
        ("mine.toml", 'title = "T"\nruns = 1\nmethods = ["ts"]', "lacks source, axes"),
        ("mine.toml", 'extends = "frist"', "extends 'frist'; choose one of first, second"),
        ("mine.toml", 'extends = "mine"', "extends 'mine'; choose one of"),
        ("first.toml", SECOND, "rename it"),
    ],
)
def test_a_file_that_cannot_be_used_says_what_is_wrong(installed: Path, file: str, text: str | None, says: str) -> None:
    if text is not None:
        (installed / file).write_text(text)
    with pytest.raises(ValueError, match=says):
        read_preset(str(installed / file))


def test_unknown_names_list_the_choices(installed: Path) -> None:
    with pytest.raises(ValueError, match="unknown preset 'third'; choose one of first, second, or a file of your own"):
        read_preset("third")
    with pytest.raises(ValueError, match=r"names the methods nothing; known are none, ts.*uncal"):
        small(methods=["nothing"])


def test_all_is_every_calibrator_of_this_library() -> None:
    from graphcal.methods import CALIBRATORS

    learned = [
        "cagcn",
        "dc-gnn",
        "dcgc",
        "gats",
        "gets",
        "simcalib",
        "simi-mailbox",
        "wats",
    ]  # and no quirk of the paper
    assert list(small(methods="all").methods) == [*CALIBRATORS.builtin, *learned]
    assert list(small(methods=["all", "searched"]).methods) == [*CALIBRATORS.builtin, *learned, "searched"]


def test_blind_evaluation_keeps_predictions_with_isotonic_regression():
    """Tolokers has two classes, where `isotonic` may change them."""
    assert read_preset("blind").methods["isotonic"] == {"title": "isotonic", "calibrator": "isotonic-keep"}
