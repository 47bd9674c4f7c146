"""Presets: a table or figure as a TOML file that says what differs, and from where each value comes.

    extends    another file, beside this one or installed: tables are merged, rules appended, the rest is replaced
    axes       what is varied: dataset, labels_per_class, backbone, and any name a method binds to a setting
    methods    the columns: names under ``define``, or of calibrators ("file.py:Class" for one in a file of your own);
               "all" for every calibrator of this library, "plugins" for
               those of other installed packages
    define     a method: training overrides + recipe
    set        rules {where, ...} applied in order to the slots they match: settings published for one dataset, say
    published  what a paper printed, mean and sd, and remarks on it (see below)
    beside     metrics that are shown below, each in a grid of its own with its own paired tests
    reasons    why a dataset may be missing, printed in the place of its numbers when it cannot be loaded

Installed presets are the TOML files of `graphcal.lab.bench.preset_files` and of the packages that the entry-point group
``graphcal.presets`` names; any other file is given by its path. A file without a title is there to be extended.
`graphcal.lab.bench.expansion` turns a preset into cells.

What a paper printed: every number once, in one file of tables, at which presets point.

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

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from graphcal.files import CELLS, RUNS, file_errors, read_toml
from graphcal.lab.bench import preset_files
from graphcal.plugins import Names, announced, is_file_name, missing_hint

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
        axis_values = _where(dict(zip(tables["axes"][table], keys)), entry)
        yield {"where": axis_values, "values": values, **({"every": row[every]} if every in row else {})}
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


PACKAGES: Names[ModuleType] = Names("preset", {"graphcal": preset_files})  # of TOML files
NEEDED = ("title", "source", "runs", "methods", "axes")  # what no preset goes without


@dataclass(frozen=True)
class Preset:
    """A table or figure: what is computed, and how it is shown."""

    name: str
    title: str
    source: str
    axes: Mapping[str, Sequence[Any]]
    methods: Mapping[str, Mapping[str, Any]]  # name -> title, calibrator, settings, training, ...
    runs: int
    base: Mapping[str, Any]  # what every method has unless it says otherwise
    kind: str = "table"  # table, list, or a figure of `graphcal.lab.bench.figures`
    metric: str = "ece"
    beside: Sequence[str] = ()  # metrics that have a grid of their own below; ``all_ece``: on all unlabelled nodes
    against: str = ""  # the method every other one is compared with in a list
    main_method: str = ""  # the method that is compared with all others over all graphs of a list
    caption: str = ""
    rules: Sequence[Mapping[str, Any]] = ()
    published: Sequence[Mapping[str, Any]] = ()  # {where, values, every}: see `graphcal.lab.bench.presets`
    remarks: Sequence[Mapping[str, Any]] = ()  # {where, text}
    reasons: Mapping[str, str] = field(default_factory=dict)
    figure: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)  # see `graphcal.lab.bench.contents`

    def title_of(self, method: str) -> str:
        return str(self.methods[method].get("title", method))


def preset_titles() -> dict[str, str]:
    """Name and title of every installed preset."""
    texts = {name: _toml(path) for name, path in sorted(_installed().items())}
    return {name: str(text["title"]) for name, text in texts.items() if "title" in text}


def read_preset(name: str) -> Preset:
    """The installed preset of that name, or the one in a file of your own whose name ends with ``.toml``."""
    if not name.endswith(".toml"):
        installed = _installed()
        if name not in installed or "title" not in _toml(installed[name]):
            raise ValueError(f"unknown preset {name!r}; {_choices(preset_titles())}")
        return build_preset(name, _merged(installed[name]))
    path = Path(name)
    if path.stem in preset_titles():
        raise ValueError(f"{path} has the name of an installed preset, and would replace its tables: rename it")
    with file_errors(path, "a sound preset"):
        text = _merged(path)
        missing = [key for key in NEEDED if key not in text]
        if missing:
            raise ValueError(f"{path} lacks {', '.join(missing)}; a preset needs {', '.join(NEEDED)}")
        return build_preset(path.stem, _with_defaults(text))


def _with_defaults(text: Mapping[str, Any]) -> dict[str, Any]:
    """A preset of one's own with the titles of calibrators, and NLL, ECE and accuracy side by side."""
    from graphcal.methods import CALIBRATORS

    named = text["methods"] if isinstance(text["methods"], list) else []
    cards = {name: getattr(CALIBRATORS[name], "card", None) for name in named if name in CALIBRATORS}
    titled = {name: {"title": card.title, "calibrator": name} for name, card in cards.items() if card}
    metrics = ("nll", "ece", "accuracy") if text.get("kind", "table") == "table" else ()
    beside = [metric for metric in metrics if metric != text.get("metric", "ece")]
    return {"beside": beside, **text, "define": {**titled, **text.get("define", {})}}


def build_preset(name: str, text: Mapping[str, Any]) -> Preset:
    """A preset from its parsed TOML."""
    _check_kinds(name, text)
    methods = _methods(name, text["methods"], text.get("define", {}))
    published, remarks = look_up(text.get("published", ()), text.get("numbers"))
    return Preset(
        name=name,
        title=text["title"],
        source=text["source"],
        axes=text["axes"],
        methods=methods,
        runs=text["runs"],
        base=text.get("base", {}),
        kind=text.get("kind", "table"),
        metric=text.get("metric", "ece"),
        beside=tuple(text.get("beside", ())),
        against=text.get("against", ""),
        main_method=text.get("own", ""),
        caption=text.get("caption", ""),
        rules=text.get("set", ()),
        published=published,
        remarks=[*text.get("remark", ()), *remarks],
        reasons=text.get("reasons", {}),
        figure=text.get("figure", {}),
        summary=text.get("summary", {}),
    )


KINDS: Mapping[str, tuple[type, str]] = {
    "title": (str, "text"), "source": (str, "text"), "kind": (str, "text"), "metric": (str, "text"), "against": (str, "text"),
    "own": (str, "text"), "caption": (str, "text"), "beside": (list, "a list"),
    "axes": (dict, "a table of lists"),
    "base": (dict, "a table"), "define": (dict, "a table of tables"), "set": (list, "tables [[set]]"),
    "published": (list, "tables [[published]]"), "remark": (list, "tables [[remark]]"), "reasons": (dict, "a table"),
    "figure": (dict, "a table"),
}  # fmt: skip
FIGURE = (
    "x", "label", "scale", "linear", "ticks", "range", "metrics", "groups", "columns", "names",
)  # fmt: skip


def _check_kinds(name: str, text: Mapping[str, Any]) -> None:
    """Each key holds what it must, and no more than can be computed."""
    for key, (kind, expected) in KINDS.items():
        if key in text and not isinstance(text[key], kind):
            raise ValueError(f"preset {name!r}: {key} must be {expected}; got {text[key]!r}")
    unknown = [key for key in text.get("figure", {}) if key not in FIGURE]
    if unknown:
        raise ValueError(f"preset {name!r}: [figure] has no {', '.join(unknown)}; it may have {', '.join(FIGURE)}")
    runs = text["runs"]
    if not isinstance(runs, int) or isinstance(runs, bool) or not 1 <= runs <= RUNS:
        raise ValueError(f"preset {name!r}: runs must be a whole number from 1 to {RUNS:,}; got {runs!r}")
    for axis, values in text["axes"].items():
        if not isinstance(values, list) or not values or not all(isinstance(v, str | int | float) for v in values):
            raise ValueError(f"preset {name!r}: axis {axis!r} must be a list of names or numbers; got {values!r}")
    places = math.prod(len(values) for values in text["axes"].values()) * max(1, len(text["methods"]))
    if places * runs > CELLS:
        raise ValueError(f"preset {name!r}: {places:,} places of {runs:,} runs; at most {CELLS:,} cells are computed")
    for key in ("set", "remark", "published"):
        for rule in text.get(key, ()):
            if not isinstance(rule, dict) or not isinstance(rule.get("where", {}), dict):
                raise ValueError(f"preset {name!r}: [[{key}]] must be tables with a table `where`; got {rule!r}")
            if key != "published" and "where" not in rule:
                raise ValueError(f"preset {name!r}: [[{key}]] says no `where`: {rule!r}")


def matches(where: Mapping[str, Any], slot: Mapping[str, Any]) -> bool:
    """Every key of ``where`` has the value, or one of the values."""
    return all(slot.get(key) in (value if isinstance(value, list) else [value]) for key, value in where.items())


def _methods(preset: str, wanted: Sequence[str] | str, defined: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    if wanted != "all" and set(wanted) <= defined.keys():
        return {method: defined[method] for method in wanted}
    from graphcal.methods import CALIBRATORS

    if "plugins" in wanted and wanted != "all":
        points = announced("calibrator")
        plugins = sorted(name for name in points if not points[name].module.startswith("graphcal."))
        wanted = [*(name for name in wanted if name != "plugins"), *plugins]
    if "all" in ([wanted] if isinstance(wanted, str) else wanted):  # those of this library, and what is named beside
        others = _methods(preset, [name for name in wanted if name != "all"], defined) if wanted != "all" else {}
        points = announced("calibrator")
        baselines = sorted(name for name in points if points[name].module == "graphcal.lab.baselines")
        return {**{name: {"title": name, "calibrator": name} for name in (*CALIBRATORS.builtin, *baselines)}, **others}
    files = {name: {"title": name.partition(":")[2], "calibrator": name} for name in wanted if is_file_name(name)}
    available = {**{name: {"calibrator": name} for name in CALIBRATORS}, **files, **defined}
    missing = [method for method in wanted if method not in available]
    if missing:
        named = ", ".join(method + missing_hint("calibrator", method) for method in missing)
        raise ValueError(f"preset {preset!r} names the methods {named}; known are {', '.join(available)}")
    return {method: available[method] for method in wanted}


# ---------------------------------------------------------------------------------------------------------------- reading


def _installed() -> dict[str, Path]:
    """Every TOML file of every announced package, by its name; the first package has a name for itself."""
    files: dict[str, Path] = {}
    for name, package in PACKAGES.items():
        if not hasattr(package, "__path__"):
            raise ValueError(f"presets are TOML files in a package, but {name!r} announces {package!r}")
        for folder in package.__path__:
            for path in Path(folder).glob("*.toml"):
                files.setdefault(path.stem, path)
    return files


def _choices(available: Mapping[str, str]) -> str:
    if not available:
        return "no preset is installed: give a file of your own that ends with .toml"
    return f"choose one of {', '.join(available)}, or a file of your own that ends with .toml"


def _toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"there is no preset file {path}")
    text = read_toml(path)
    if "numbers" in text:  # a path, seen from this file
        text["numbers"] = path.parent / text["numbers"]
    return text


def _merged(path: Path) -> dict[str, Any]:
    """A file on top of the one it extends."""
    text = _toml(path)
    if "extends" not in text:
        return text
    whole = _merged(_extended(path, text.pop("extends")))
    for key, value in text.items():
        if key in ("base", "reasons", "define"):
            whole[key] = {**whole.get(key, {}), **value}
        elif key == "set":
            whole[key] = [*whole.get(key, []), *value]
        else:
            whole[key] = value
    return whole


def _extended(path: Path, name: str) -> Path:
    beside = path.with_name(f"{name}.toml")
    if beside.exists() and beside != path:
        return beside
    installed = _installed()
    if name not in installed or name == path.stem:
        raise ValueError(f"{path} extends {name!r}; {_choices(preset_titles())}")
    return installed[name]
