"""What a paper printed: every number once, in one file of tables, at which presets point.

    [axes]                               the file: what the keys of each table are, from the outside in
    gcn = ["dataset", "labels_per_class"]
    [gcn.cora]
    20 = { uncal = [13.47, 0.63], ts = [4.88, 0.55] }       the innermost keys are the paper's columns: mean, sd
    [[remark]]                           what is to be said about entries, printing errors above all
    tables = ["gcn"]
    where = { dataset = "cora", column = "ts" }
    text = "..."

    numbers = "../published.toml"        the preset: the file, seen from the preset's own
    [[published]]
    table = "gcn"
    where = { backbone = "gcn" }         the slots it is for, by axes that the table lacks; left out: all
    called = { gat-cagcn = "gat" }       our name -> the paper's, where they differ
    columns = { ts-noisy = "ts" }        our method -> the paper's column
    every = "ts"                         the column beside all methods that ``columns`` leaves out
    remarks = true                       with the remarks on the table

A preset may also hold numbers itself: ``{ where, values = { ts = [4.1, 0.3] }, every = [5.0, 0.5] }``. That is the form to
which `look_up` brings all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcal.files import read_toml

Found = dict[str, Any]
KEYS = ("table", "where", "called", "columns", "every", "remarks")


def look_up(entries: Sequence[Mapping[str, Any]], numbers: Path | None) -> tuple[list[Found], list[Found]]:
    """Published values {where, values, every} and remarks {where, text} of a preset's entries, in their order."""
    values: list[Found] = []
    remarks: list[Found] = []
    for entry in entries:
        if "table" not in entry:
            values.append(dict(entry))
            continue
        tables = _read(numbers, entry)
        values += _values(entry, tables)
        if entry.get("remarks", False):
            remarks += _remarks(entry, tables)
    return values, remarks


def _read(numbers: Path | None, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    table = entry["table"]
    if numbers is None:
        raise ValueError(f"a preset points at the published table {table!r}, but names no file of them: numbers = FILE")
    unknown = set(entry) - set(KEYS)
    if unknown:
        raise ValueError(f"published has no key {', '.join(sorted(unknown))}; choose among {', '.join(KEYS)}")
    tables = read_toml(numbers)
    if table not in tables["axes"]:
        raise ValueError(f"{numbers.name} has no table {table!r}; choose one of {', '.join(tables['axes'])}")
    return tables


def _values(entry: Mapping[str, Any], tables: Mapping[str, Any]) -> Iterator[Found]:
    """One value for each row of the table."""
    table = entry["table"]
    columns, every = entry.get("columns", {}), entry.get("every", "")
    printed: set[str] = set()
    for keys, row in rows_of(tables[table], len(tables["axes"][table])):
        printed |= row.keys()
        values = {method: row[column] for method, column in columns.items() if column in row}
        place = _where(dict(zip(tables["axes"][table], keys)), entry)
        yield {"where": place, "values": values, **({"every": row[every]} if every in row else {})}
    unknown = {*columns.values(), *([every] if every else [])} - printed
    if unknown:
        raise ValueError(f"published table {table!r} has no column {', '.join(sorted(unknown))}")


def rows_of(tree: Mapping[str, Any], depth: int) -> Iterator[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    for key, inner in tree.items():
        value = int(key) if key.isdigit() else key  # the keys of TOML are text
        if depth == 1:
            yield (value,), inner
        else:
            yield from (((value, *rest), row) for rest, row in rows_of(inner, depth - 1))


def _where(paper: Mapping[str, Any], entry: Mapping[str, Any]) -> Found:
    """A place in the paper's words, in ours: each value together with what we call so."""
    ours = {axis: [one for value in _several(values) for one in _names(value, entry)] for axis, values in paper.items()}
    return {**ours, **entry.get("where", {})}


def _names(value: Any, entry: Mapping[str, Any]) -> list[Any]:
    return [value, *(ours for ours, paper in entry.get("called", {}).items() if paper == value)]


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _remarks(entry: Mapping[str, Any], tables: Mapping[str, Any]) -> Iterator[Found]:
    for remark in tables.get("remark", ()):
        if entry["table"] not in remark["tables"]:
            continue
        paper = dict(remark["where"])
        columns = _several(paper.pop("column", []))
        where = _where(paper, entry)
        if columns:
            where["method"] = [method for method, column in entry.get("columns", {}).items() if column in columns]
        yield {"where": where, "text": remark["text"]}
