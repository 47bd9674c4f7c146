"""Debian releases as graphs: build one from a package index, read one, compare two.

    nodes      binary packages whose section is one of the classes, sorted by name; the name identifies a node across releases
    edges      package -> package it names in Depends, Pre-Depends, Recommends or Suggests, every alternative counted
    features   0/1: the word occurs in the English description; words are runs of 3 to 20 letters in lower case
    classes    the section

Vocabulary and classes come from a reference release, so that files can be compared. Without one they come from the index:
sections with at least 30 packages (not debug, metapackages, oldlibs), and the 2,000 commonest words after the first sixty.

    Packages          the index that `apt-get update` writes to /var/lib/apt/lists: plain, gz or xz
    Translation-en    the full descriptions; Packages has only the first line of each

A package that is listed twice counts once, as it is listed last. Nothing here uses the network.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import scipy.sparse as sp

from graphcal.files import atomic_file, check_regular, file_errors
from graphcal.lab.datasets.arrays import (
    GraphArrays,
    check_edge_index,
    check_ids,
    load_npz,
    npz_parts,
    require_arrays,
    undirected,
)
from graphcal.lab.datasets.catalog import at_hand, listed_name

RELATIONS = ("Depends", "Pre-Depends", "Recommends", "Suggests")
FIELDS = ("Package", "Source", "Section", "Installed-Size", "Description", "Description-en", *RELATIONS)
EXCLUDED = ("debug", "metapackages", "oldlibs")
SMALLEST_CLASS = 30  # packages
COMMON, WORDS = 60, 2000
WORD = re.compile("[a-z]{3,20}")
NAME = re.compile(r"[a-z0-9][a-z0-9+.\-]*")
INDEX_BYTES = 2**29  # of an index or of descriptions, unpacked; main of bookworm has 50 MB
LINE_BYTES = 2**20  # of one line
EXTRA = ("directed", "names", "source_of", "installed_size", "class_names", "vocabulary")
MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"\x04\x22\x4d\x18": "lz4", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True, eq=False)
class Release:
    """One Debian release as a graph."""

    graph: GraphArrays
    directed: np.ndarray  # (2, E) int32, package -> package it depends on
    names: np.ndarray  # (N,) bytes
    source_of: np.ndarray  # (N,) int32, number of the source package within this release
    installed_size: np.ndarray  # (N,) int32, kB
    class_names: np.ndarray  # (C,) bytes
    vocabulary: np.ndarray  # (D,) bytes
    notes: tuple[str, ...] = ()


def build_release(
    packages: str | os.PathLike[str],
    descriptions: str | os.PathLike[str] | None = None,
    reference: Release | None = None,
) -> Release:
    """Build the graph of a release from its package index.

    Parameters
    ----------
    packages : path
        A ``Packages`` file, plain, gz or xz.
    descriptions : path, optional
        The ``Translation-en`` file with the full descriptions. Without it features come from the descriptions in ``packages``.
    reference : Release, optional
        The release whose vocabulary and classes are used. Without it they come from this index.
    """
    listed = list(_packages(Path(packages)))
    stanzas = dict(listed)  # of a package listed twice, the last
    if not stanzas:
        raise ValueError(f"{packages}: no package in it. Expected a Packages file of a Debian release.")
    texts = {name: stanza.get("Description", "") for name, stanza in stanzas.items()}
    repeats = len(listed) - len(stanzas)
    notes = [f"{repeats:,} packages are listed again, and the last entry counts"] if repeats else []
    if descriptions is None:
        notes.append("features come from the descriptions in the index: pass Translation-en for the full ones")
    else:
        full = {s["Package"]: s.get("Description-en", "") for s in read_stanzas(Path(descriptions)) if "Package" in s}
        missing = sum(name not in full for name in stanzas)
        if missing == len(stanzas):
            raise ValueError(f"{descriptions}: describes no package of {packages}. Expected its Translation-en file.")
        notes += [f"{missing:,} packages have no full description"] if missing else []
        texts |= {name: full[name] for name in stanzas if name in full}
    if reference is None:
        class_names, vocabulary = _classes(stanzas), _vocabulary(texts)
    else:
        class_names, vocabulary = reference.class_names, reference.vocabulary
    numbers = {name.decode(): number for number, name in enumerate(class_names)}
    nodes = sorted(name for name, stanza in stanzas.items() if stanza.get("Section", "") in numbers)
    if not nodes:
        raise ValueError(f"{packages}: none of its {len(stanzas):,} packages is in a section of the reference release.")
    labels = np.array([numbers[stanzas[name]["Section"]] for name in nodes], dtype=np.int64)
    notes += _section_notes(stanzas, class_names, np.bincount(labels, minlength=len(class_names)))
    directed = _dependencies(nodes, stanzas)
    graph = GraphArrays(
        undirected(directed[0].astype(np.int64), directed[1].astype(np.int64), len(nodes)),
        _features([texts[name] for name in nodes], [word.decode() for word in vocabulary]),
        labels,
        {"self_loops": np.zeros(0, np.int32)},
        len(class_names),
    )
    sources = [stanzas[name].get("Source", name).split()[0] for name in nodes]
    order = {source: number for number, source in enumerate(sorted(set(sources)))}
    return Release(
        graph,
        directed,
        np.array([name.encode() for name in nodes]),
        np.array([order[source] for source in sources], dtype=np.int32),
        np.array([_size(stanzas[name]) for name in nodes], dtype=np.int32),
        class_names,
        vocabulary,
        tuple(notes),
    )


def _section_notes(stanzas: Mapping[str, Mapping[str, str]], class_names: np.ndarray, counts: np.ndarray) -> list[str]:
    """Say which sections are left out, and which classes have no package; ``counts`` (C,) are packages per class."""
    classes = {name.decode() for name in class_names}
    others = Counter(stanza.get("Section") or "no section" for stanza in stanzas.values())
    left_out = [(section, count) for section, count in others.most_common() if section not in classes]
    notes = []
    if left_out:
        total = sum(count for _, count in left_out)
        largest = ", ".join(f"{section} {count:,}" for section, count in left_out[:3])
        notes.append(f"{total:,} of {len(stanzas):,} packages are in other sections and left out, most in {largest}")
    if not counts.all():
        empty = ", ".join(name.decode() for name in class_names[counts == 0])
        notes.append(f"no package is in {empty}")
    return notes


def save_release(path: str | os.PathLike[str], release: Release) -> None:
    """Write a release as ``.npz``: the layout of `arrays` and the arrays of `Release`."""
    with atomic_file(path) as file:
        np.savez_compressed(file, **npz_parts(release.graph), **{key: getattr(release, key) for key in EXTRA})


def read_release(path: str | os.PathLike[str]) -> Release:
    """Read a release from an ``.npz`` file, every array held against the others."""
    graph, parts = load_npz(path), require_arrays(path, EXTRA)
    nodes, words = graph.features.shape
    for key in ("names", "class_names", "vocabulary"):
        if parts[key].ndim != 1 or parts[key].dtype.kind != "S" or len(np.unique(parts[key])) != len(parts[key]):
            raise ValueError(f"{path}: {key} must be a list of distinct byte strings; got {parts[key].dtype}")
    sizes = {"names": nodes, "source_of": nodes, "installed_size": nodes, "vocabulary": words}
    for key, size in sizes.items():
        if parts[key].shape != (size,):
            raise ValueError(f"{path}: {key} has shape {parts[key].shape}, expected ({size},)")
    check_ids(parts["source_of"], nodes, path, "source_of")
    check_edge_index(parts["directed"], nodes, path)
    graph = replace(graph, named_classes=len(parts["class_names"]))
    if graph.num_classes > graph.named_classes:
        raise ValueError(f"{path}: {graph.num_classes} classes among the labels, {len(parts['class_names'])} names")
    ends = parts["directed"].astype(np.int64)
    if not np.array_equal(undirected(ends[0], ends[1], nodes), graph.edge_index):
        raise ValueError(f"{path}: edge_index is not `directed` with both directions.")
    extra: dict[str, Any] = {key: parts[key] for key in EXTRA}
    return Release(graph, **extra)


def named_release(name: str) -> Release:
    """A release by its file, or by its name ``debian-NAME`` in GRAPHCAL_DATA or the cache."""
    if name.endswith(".npz"):
        return read_release(name)
    here = at_hand(name) if listed_name(name).startswith("debian-") else None
    if here is None:
        raise FileNotFoundError(
            f"No release {name!r} here. Pass FILE.npz, or set GRAPHCAL_DATA to a folder with {name}.npz."
        )
    return read_release(here[0])


def match_nodes(old: Release, new: Release) -> np.ndarray:
    """Node number in ``old`` of every node of ``new``, -1 for new packages (N,).

    The releases must share classes and vocabulary: otherwise a model of one cannot be used on the other.
    """
    for key in ("class_names", "vocabulary"):
        if not np.array_equal(getattr(old, key), getattr(new, key)):
            raise ValueError(f"The releases differ in {key}. Build both with the same reference release.")
    order = np.argsort(old.names)
    sorted_names = old.names[order]
    at = np.minimum(np.searchsorted(sorted_names, new.names), len(order) - 1)
    return np.where(sorted_names[at] == new.names, order[at], -1)


# ---------------------------------------------------------------------------------------------------------------- the index


def read_stanzas(path: Path) -> Iterator[dict[str, str]]:
    """Stanzas of a Debian control file: the text of each of `FIELDS`; continued lines are joined by line breaks."""
    stanza: dict[str, str] = {}
    key = ""
    with file_errors(path, "a readable Debian index"), _opened(check_regular(path)) as file:
        size = 0
        for number, raw in enumerate(iter(lambda: file.readline(LINE_BYTES), b""), 1):
            size += len(raw)
            if size > INDEX_BYTES:
                raise ValueError(f"{path}: holds more than {INDEX_BYTES / 2**20:g} MiB unpacked.")
            if len(raw) == LINE_BYTES:
                raise ValueError(f"{path}, line {number}: longer than {LINE_BYTES:,} bytes.")
            try:
                line = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise ValueError(f"{path}, line {number}: not UTF-8 text.") from None
            if not line.strip(" \t"):
                if stanza:
                    yield stanza
                stanza, key = {}, ""
            elif line[0] in " \t" and key:
                if key in stanza:
                    stanza[key] += "\n" + line[1:]
            else:
                key, colon, value = line.partition(":")
                if not colon or not key or line[0] in " \t":
                    raise ValueError(f"{path}, line {number}: expected `Field: value`, got {line[:40]!r}.")
                if key in stanza:
                    raise ValueError(f"{path}, line {number}: the field {key} is twice in this package.")
                if key in FIELDS:
                    stanza[key] = value.strip()
        if stanza:
            raise ValueError(f"{path}: ends inside a package, so it may be cut off. An index ends with an empty line.")


def _opened(path: Path) -> BinaryIO:
    with open(path, "rb") as file:
        start = file.read(6)
    kind = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), "")
    if kind in ("lz4", "zstd"):
        raise ValueError(
            f"{path} is compressed with {kind}, which is not read here. "
            f"Unpack it first: /usr/lib/apt/apt-helper cat-file {path} > {path.name.removesuffix('.lz4')}"
        )
    opened: Any = {"gzip": gzip.open, "xz": lzma.open}.get(kind, open)
    return cast(BinaryIO, opened(path, "rb"))


def _packages(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    for number, stanza in enumerate(read_stanzas(path), 1):
        name = stanza.get("Package", "")
        if not NAME.fullmatch(name):
            raise ValueError(f"{path}, package {number}: {name[:40]!r} is not a package name.")
        if not stanza.get("Source", name).split():
            raise ValueError(f"{path}, package {name}: the field Source is empty.")
        yield name, stanza


def _dependencies(nodes: Sequence[str], stanzas: Mapping[str, Mapping[str, str]]) -> np.ndarray:
    """(2, E) int32, sorted, each once, without self loops."""
    number = {name: k for k, name in enumerate(nodes)}
    pairs = set()
    for k, name in enumerate(nodes):
        for relation in RELATIONS:
            for part in re.split("[,|]", stanzas[name].get(relation, "")):
                wanted = NAME.match(part.strip())
                if wanted and number.get(wanted[0], k) != k:
                    pairs.add((k, number[wanted[0]]))
    directed: np.ndarray = np.array(sorted(pairs), dtype=np.int32).reshape(-1, 2).T.copy()
    return directed


def _features(texts: Sequence[str], vocabulary: Sequence[str]) -> sp.csr_matrix:
    number = {word: k for k, word in enumerate(vocabulary)}
    rows = [sorted({number[word] for word in WORD.findall(text.lower()) if word in number}) for text in texts]
    pointers = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    columns = np.array([column for row in rows for column in row], dtype=np.int32)
    return sp.csr_matrix((np.ones(len(columns), np.float32), columns, pointers), shape=(len(texts), len(vocabulary)))


def _classes(stanzas: Mapping[str, Mapping[str, str]]) -> np.ndarray:
    counts = Counter(stanza.get("Section", "") for stanza in stanzas.values())
    large = sorted(c for c, n in counts.items() if n >= SMALLEST_CLASS and c and c not in EXCLUDED)
    if len(large) < 2:
        raise ValueError(f"{len(large)} sections have at least {SMALLEST_CLASS} packages. Pass a reference release.")
    return np.array([name.encode() for name in large])


def _vocabulary(texts: Mapping[str, str]) -> np.ndarray:
    counts = Counter(word for text in texts.values() for word in set(WORD.findall(text.lower())))
    words = sorted(counts, key=lambda word: (-counts[word], word))[COMMON : COMMON + WORDS]
    if not words:
        raise ValueError(f"The descriptions have only {len(counts)} different words. Pass a reference release.")
    return np.array([word.encode() for word in words])


def _size(stanza: Mapping[str, str]) -> int:
    """Installed size in kB; 0 where it is missing."""
    text = stanza.get("Installed-Size", "0")
    if not text.isascii() or not text.isdigit() or int(text) >= 2**31:
        raise ValueError(f"package {stanza['Package']}: Installed-Size is {text[:20]!r}, expected kB.")
    return int(text)
