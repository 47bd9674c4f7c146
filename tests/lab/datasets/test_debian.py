"""Debian releases from a package index: the rules by hand, what a reference fixes, and what is refused."""

import gzip
import lzma
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from datasets.debian_index import SECTIONS, stanza, synthetic_index

from graphcal.lab import load
from graphcal.lab.datasets import debian
from graphcal.lab.datasets.catalog import check, entry
from graphcal.lab.datasets.debian import build_release, match_nodes, named_release, read_release, save_release
from graphcal.lab.training import Training, train

BY_HAND = (
    stanza("b-lib", "libs", "a-game (>= 1), c:any | not-here, b-lib", Installed_Size="7")
    + stanza("c", "web", Recommends="b-lib", Suggests="a-game,b-lib", Source="b-lib (1.0-1)")
    + stanza("a-game", "metapackages")
    + stanza("a-game", "games", Pre_Depends="c")  # listed twice: the last counts
    + stanza("d", "shells", "c")
)
TEXTS = """Package: b-lib
Description-en: Alpha beta
 gamma4delta ab ALPHA
 .

Package: c
Description-en: betabetabetabetabetabeta

Package: a-game
Description-en: none of these

"""


@pytest.fixture(autouse=True)
def two_common_words(monkeypatch):
    monkeypatch.setattr(debian, "COMMON", 2)  # "common" and, by the alphabet, "line" are in every description


@pytest.fixture
def reference():
    graph = debian.GraphArrays(np.zeros((2, 0), int), debian.sp.csr_matrix((0, 4)), np.zeros(0, int))
    classes, words = (np.array(v) for v in ([b"games", b"libs", b"web"], [b"alpha", b"beta", b"gamma", b"delta"]))
    return debian.Release(graph, np.zeros((2, 0)), *[np.zeros(0)] * 3, classes, words)


@pytest.fixture
def index(tmp_path):
    (tmp_path / "Packages").write_text(BY_HAND)
    (tmp_path / "Translation-en").write_text(TEXTS)
    return tmp_path / "Packages", tmp_path / "Translation-en"


def test_a_release_by_hand(index, reference):
    release = build_release(*index, reference)
    assert release.names.tolist() == [b"a-game", b"b-lib", b"c"]  # d is in no class
    assert release.graph.labels.tolist() == [0, 1, 2]
    assert release.directed.T.tolist() == [[0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]  # no self loop, nothing unknown
    assert release.graph.edge_index.T.tolist() == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]
    assert release.source_of.tolist() == [0, 1, 1]
    assert release.installed_size.tolist() == [0, 7, 0]
    # runs of 3 to 20 letters: "gamma4delta" is two words, "beta" six times is cut after twenty letters, which leaves "beta"
    assert release.graph.features.toarray().tolist() == [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]]
    assert any("1 of 4 packages" in note for note in release.notes)


def test_without_a_reference_classes_and_words_come_from_the_index(tmp_path, monkeypatch):
    packages, texts = synthetic_index(200)
    (tmp_path / "P").write_text(packages + stanza("small", "shells") + stanza("old", "oldlibs"))
    (tmp_path / "T").write_text(texts)
    monkeypatch.setattr(debian, "WORDS", 4)
    release = build_release(tmp_path / "P", tmp_path / "T")
    assert release.class_names.tolist() == [s.encode() for s in SECTIONS]
    assert release.vocabulary.tolist() == [b"second", b"with", b"gamesnoise", b"libsnoise"]  # 200, 200, 52, 52


@pytest.mark.parametrize("pack", [lambda text: text, gzip.compress, lzma.compress])
def test_packed_and_plain_indices_give_the_same_release(tmp_path, index, reference, pack):
    path = tmp_path / "packed"  # told by its content, not by its name
    path.write_bytes(pack(index[0].read_bytes()))
    assert np.array_equal(build_release(path, index[1], reference).directed, build_release(*index, reference).directed)


def test_a_saved_release_reads_back_and_loads_by_name(tmp_path, monkeypatch):
    packages, texts = synthetic_index()
    (tmp_path / "P").write_text(packages)
    (tmp_path / "T").write_text(texts)
    release = build_release(tmp_path / "P", tmp_path / "T")
    save_release(tmp_path / "debian-test.npz", release)
    monkeypatch.setenv("GRAPHCAL_DATA", str(tmp_path))
    again = named_release("debian-test")
    for key in debian.EXTRA:
        assert np.array_equal(getattr(again, key), getattr(release, key))
    data = load("debian-test", split=3)
    assert (data.num_nodes, data.protocol, data.num_classes) == (300, "release", 4)
    parts = [data[f"{part}_mask"] for part in ("train", "val", "test")]
    assert [int(part.sum()) for part in parts] == [107, 42, 151]  # a small release keeps the shares
    assert int(sum(part.int() for part in parts).max()) == 1


def test_a_section_that_is_gone_stays_a_class_and_a_new_one_is_named(tmp_path, monkeypatch):
    reference = _built(tmp_path, 0)
    packages, _ = synthetic_index(300, 100)
    stanzas = [part + "\n\n" for part in packages.split("\n\n") if part and "Section: web" not in part]
    (tmp_path / "P").write_text(
        "".join(stanzas[:-20]) + "".join(stanzas[-20:]).replace("Section: libs", "Section: novel")
    )
    release = build_release(tmp_path / "P", reference=reference)
    save_release(tmp_path / "debian-later.npz", release)
    monkeypatch.setenv("GRAPHCAL_DATA", str(tmp_path))
    assert int(release.graph.labels.max()) == 2  # web is the last of four sections
    assert release.graph.num_classes == named_release("debian-later").graph.num_classes == 4
    data = load("debian-later")
    assert data.num_classes == 4
    assert train(data, "mlp", Training(epochs=1, hidden_channels=4), [0])[0].outputs.num_classes == 4
    notes = " ".join(release.notes)
    assert "no package is in web" in notes
    assert "novel" in notes


def test_packages_that_are_listed_again_are_counted(index, reference):
    assert any(note.startswith("1 packages are listed again") for note in build_release(*index, reference).notes)


def test_blank_lines_end_a_package_and_a_file_that_is_cut_off_is_refused(tmp_path, index, reference):
    text = index[0].read_text()
    spaced = tmp_path / "spaced"
    spaced.write_text(text.replace("\n\n", "\n \t\n"))
    assert np.array_equal(
        build_release(spaced, index[1], reference).directed, build_release(*index, reference).directed
    )
    for end in range(1, len(text) - 1, 7):
        spaced.write_text(text[:end])
        if not text[:end].endswith("\n\n"):
            with pytest.raises(ValueError, match="cut off|not a package name|Field: value"):
                build_release(spaced, index[1], reference)


def test_new_nodes_are_those_whose_name_is_new(tmp_path):
    old, new = (_built(tmp_path, first) for first in (0, 100))
    at = match_nodes(old, new)
    assert at.tolist() == [*range(100, 300), *[-1] * 100]
    assert (old.names[at[at >= 0]] == new.names[at >= 0]).all()
    shuffled = np.random.default_rng(0).permutation(len(old.names))
    moved = match_nodes(replace(old, names=old.names[shuffled]), new)
    assert (shuffled[moved[:200]] == at[:200]).all()


def _built(folder, first):
    packages, texts = synthetic_index(300, first)
    (folder / "P").write_text(packages)
    (folder / "T").write_text(texts)
    reference = None if first == 0 else read_release(folder / "old.npz")
    release = build_release(folder / "P", folder / "T", reference)
    save_release(folder / "old.npz", release)
    return release


def test_releases_with_other_words_are_not_compared(tmp_path, index, reference):
    release = build_release(*index, reference)
    with pytest.raises(ValueError, match="vocabulary"):
        match_nodes(release, replace(release, vocabulary=release.vocabulary[::-1]))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no package"),
        (b"\x04\x22\x4d\x18rest", "lz4.*apt-helper"),
        (b"\x28\xb5\x2f\xfdrest", "zstd"),
        (b"\x1f\x8b\x08 not gzip", "packed"),
        (gzip.compress(BY_HAND.encode())[:-12], "packed"),
        (b"\xff\xfe\x00", "line 1: not UTF-8"),
        (b"just text\n", "line 1: expected `Field: value`"),
        (b" continued\n", "line 1: expected"),
        (b"Section: libs\n\n", "package 1: '' is not a package name"),
        (b"Package: a\nSection: libs\nDepends: c, d", "ends inside a package"),
        (b"Package: a\nSection: libs\nDepends: c\n", "ends inside a package"),
        (b"Package: a\nSection: libs\nSection: web\n\n", "line 3: the field Section is twice"),
        (b"Package: a\nSection: libs\nPackage: b\n\n", "line 3: the field Package is twice"),
        (b"Package: ../x\n\n", "'../x' is not a package name"),
        (b"Package: a\nSource:  \nSection: libs\n\n", "Source is empty"),
        (b"Package: a\nSection: unheard\n\n", "none of its 1 packages"),
        (b"Package: a\nSection: libs\nInstalled-Size: -3\n\n", "Installed-Size is '-3'"),
        (b"Package: a\nSection: libs\nInstalled-Size: 99999999999\n\n", "Installed-Size"),
        (b"Package: a\nDepends: " + b"b, " * 400_000, "line 2: longer"),
    ],
)
def test_hostile_indices_are_refused(tmp_path, reference, content, words):
    path = tmp_path / "packed"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        build_release(path, reference=reference)


def test_a_bomb_is_refused_before_it_fills_memory(tmp_path, reference, monkeypatch):
    monkeypatch.setattr(debian, "INDEX_BYTES", 10_000)
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(b"Package: a\nSection: libs\n" + b"X: y\n" * 10_000))
    with pytest.raises(ValueError, match="unpacked"):
        build_release(path, reference=reference)


def test_descriptions_of_another_release_are_refused(index, reference, tmp_path):
    other = tmp_path / "other"
    other.write_text("Package: zzz\nDescription-en: text\n\n")
    with pytest.raises(ValueError, match="describes no package"):
        build_release(index[0], other, reference)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("names", lambda v: v[:-1], "names has shape"),
        ("names", lambda v: np.repeat(v[:1], len(v)), "distinct"),
        ("source_of", lambda v: v + 10_000, "source_of"),
        ("directed", lambda v: v[:, 1:], "edge_index is not"),
        ("class_names", lambda v: v[:1], "classes among the labels"),
        ("vocabulary", lambda v: v[:-1], "vocabulary has shape"),
    ],
)
def test_a_damaged_release_is_refused(tmp_path, key, value, words):
    release = _built(tmp_path, 0)
    with np.load(tmp_path / "old.npz") as file:
        parts = dict(file)
    np.savez(tmp_path / "bad.npz", **{**parts, key: value(getattr(release, key))})
    with pytest.raises(ValueError, match=words):
        read_release(tmp_path / "bad.npz")


def test_a_release_that_is_not_listed_has_no_counts_to_hold(tmp_path):
    release = _built(tmp_path, 0)
    with pytest.raises(ValueError, match="expected"):
        check("debian-bookworm", release.graph, "here")
    assert entry("debian-trixie").protocol == "release"
    with pytest.raises(ValueError, match="unknown dataset"):
        entry("debian-../x")


def test_the_command_builds_and_counts_new_packages(tmp_path, capsys):
    from graphcal.lab.cli.datasets import datasets

    _built(tmp_path, 0)
    packages, texts = synthetic_index(300, 100)
    (tmp_path / "P").write_text(packages)
    (tmp_path / "T").write_text(texts)
    out = tmp_path / "debian-next.npz"
    datasets("debian", tmp_path / "P", tmp_path / "T", str(tmp_path / "old.npz"), out, False)
    assert "100 packages are not in" in capsys.readouterr().out
    assert read_release(out).graph.num_nodes == 300
    with pytest.raises(ValueError, match="--out"):
        datasets("debian", tmp_path / "P", None, None, None, False)
    with pytest.raises(ValueError, match="go with"):
        datasets("cora", None, None, None, out, False)


@pytest.mark.slow
def test_the_lists_of_this_machine_give_a_sound_release(tmp_path, monkeypatch):
    helper, lists = (
        Path("/usr/lib/apt/apt-helper"),
        sorted(Path("/var/lib/apt/lists").glob("*_main_binary-*_Packages*")),
    )
    if not lists or not helper.exists():
        pytest.skip("no package lists of apt here")
    monkeypatch.undo()
    with open(tmp_path / "Packages", "wb") as file:
        subprocess.run([helper, "cat-file", max(lists, key=lambda path: path.stat().st_size)], stdout=file, check=True)
    release = build_release(tmp_path / "Packages")
    save_release(tmp_path / "debian-here.npz", release)
    again = read_release(tmp_path / "debian-here.npz")
    assert 1000 < again.graph.num_nodes < again.directed.shape[1]
    assert (match_nodes(release, again) == np.arange(again.graph.num_nodes)).all()
