"""Presets: a table or figure as a TOML file that says what differs, and from where each value comes.

    axes       what is varied: dataset, labels_per_class, backbone, and any name a method binds to a setting
    methods    the columns, named in ``methods.toml`` or in the preset: training overrides + recipe
    set        rules {where, ...} applied in order to the cells they match: settings published for one dataset, say
    published  what the paper printed, mean and sd: ``values`` by method, ``every`` for all others; ``remark`` marks its errors
    reasons    why a dataset may be missing, printed in the place of its numbers when it cannot be loaded

`graphcal.bench.expansion` turns a preset into cells.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]


NEEDED = ("title", "source", "runs", "methods", "axes")  # what no preset goes without


@dataclass(frozen=True)
class Preset:
    name: str
    title: str
    source: str
    axes: Mapping[str, Sequence[Any]]
    methods: Mapping[str, Mapping[str, Any]]  # name -> title, calibrator, settings, training, ...
    runs: int
    base: Mapping[str, Any]  # what every method has unless it says otherwise
    kind: str = "table"  # table, list, or a figure of `graphcal.bench.figures`
    metric: str = "ece"
    against: str = ""  # the method every other one is compared with in a list
    own: str = ""  # the method that is compared with its ``rivals`` over all graphs of a list
    rivals: Sequence[str] = ()
    caption: str = ""
    rules: Sequence[Mapping[str, Any]] = ()
    published: Sequence[Mapping[str, Any]] = ()
    remarks: Sequence[Mapping[str, Any]] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    figure: Mapping[str, Any] = field(default_factory=dict)

    def title_of(self, method: str) -> str:
        return str(self.methods[method].get("title", method))


# ---------------------------------------------------------------------------------------------------------------- reading


def preset_names() -> list[str]:
    folder = resources.files("graphcal.bench") / "presets"
    return sorted(entry.name[: -len(".toml")] for entry in folder.iterdir() if entry.name not in ("methods.toml",))


def preset_titles() -> dict[str, str]:
    return {name: str(_merged(name)["title"]) for name in preset_names()}


def preset(name: str) -> Preset:
    """The preset of that name, or the one in a file of your own whose name ends with ``.toml``."""
    if name.endswith(".toml"):
        return _preset_in(Path(name))
    if name not in preset_names():
        raise ValueError(
            f"unknown preset {name!r}; choose one of {', '.join(preset_names())}, or a file of your own that ends with .toml"
        )
    return preset_of(name, _merged(name))


def _preset_in(path: Path) -> Preset:
    try:
        text = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no preset file {path}") from None
    except tomllib.TOMLDecodeError as fault:
        raise ValueError(f"{path} is not TOML: {fault}") from None
    if path.stem in preset_names():
        raise ValueError(
            f"{path} has the name of a preset that is here already, and would replace its tables: rename it"
        )
    if "extends" in text and text["extends"] not in preset_names():
        raise ValueError(f"{path} extends {text['extends']!r}; choose one of {', '.join(preset_names())}")
    whole = _on_top(text)
    missing = [key for key in NEEDED if key not in whole]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; a preset needs {', '.join(NEEDED)}")
    return preset_of(path.stem, whole)


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("graphcal.bench") / "presets" / f"{name}.toml").read_text(encoding="utf-8"))


def _merged(name: str) -> dict[str, Any]:
    return _on_top(_toml(name))


def _on_top(own: dict[str, Any]) -> dict[str, Any]:
    """A file on top of the one it extends: tables are merged, rules are appended, the rest is replaced."""
    if "extends" not in own:
        return own
    whole = _merged(own.pop("extends"))
    for key, value in own.items():
        if key in ("base", "reasons", "define"):
            whole[key] = {**whole.get(key, {}), **value}
        elif key == "set":
            whole[key] = [*whole.get(key, []), *value]
        else:
            whole[key] = value
    return whole


def preset_of(name: str, text: Mapping[str, Any]) -> Preset:
    """A preset from its parsed TOML. ``methods`` are names; ``define`` adds to and overrides ``methods.toml``."""
    common = _toml("methods")
    known = {**common["methods"], **text.get("define", {})}
    wanted = _every_calibrator(known) if text["methods"] == "all" else text["methods"]
    missing = [method for method in wanted if method not in known]
    if missing:
        raise ValueError(f"preset {name!r} names the methods {', '.join(missing)}; known are {', '.join(known)}")
    return Preset(
        name=name,
        title=text["title"],
        source=text["source"],
        axes=text["axes"],
        methods={method: known[method] for method in wanted},
        runs=text["runs"],
        base=text.get("base", {}),
        kind=text.get("kind", "table"),
        metric=text.get("metric", "ece"),
        against=text.get("against", ""),
        own=text.get("own", ""),
        rivals=tuple(text.get("rivals", ())),
        caption=text.get("caption", ""),
        rules=[*common["set"], *text.get("set", ())],
        published=text.get("published", ()),
        remarks=text.get("remark", ()),
        reasons=text.get("reasons", {}),
        figure=text.get("figure", {}),
    )


def _every_calibrator(known: dict[str, Any]) -> list[str]:
    """One method for every calibrator of our own, on the common training."""
    from graphcal.methods import CALIBRATORS

    for name in CALIBRATORS.own:
        known[name] = {"title": name, "calibrator": name}
    return list(CALIBRATORS.own)


def matches(where: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Every key of ``where`` has the value, or one of the values."""
    return all(facts.get(key) in (value if isinstance(value, list) else [value]) for key, value in where.items())
