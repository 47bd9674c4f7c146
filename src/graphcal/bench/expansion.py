"""From a preset to cells, every default resolved.

The runs of a method (seeds, or the splits of a protocol) are trained in fixed blocks, always whole, so that a record never
depends on how many runs were asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphcal.bench.only import Only
from graphcal.bench.presets import Preset, matches
from graphcal.bench.spec import Base, Cell, RunId
from graphcal.datasets.protocols import PROTOCOLS
from graphcal.methods import CALIBRATORS
from graphcal.training import Training, published

MERGED = (
    "protocol",
    "recipe",
    "row_normalise",
    "calibrator",
    "stop",
    "bins",
    "over",
    "block",
    "first_run",
    "title",
    "weights",
)
NESTED = ("training", "architecture", "settings", "search", "bind")


@dataclass(frozen=True)
class Placed:
    """A cell and its place in the table: the values of the axes, and the method."""

    row: Mapping[str, Any]
    method: str
    cell: Cell


@dataclass(frozen=True)
class Absent:
    """A place in the table that is meant to be empty, and why."""

    row: Mapping[str, Any]
    method: str
    reason: str


def places(chosen: Preset, only: Only) -> Iterator[tuple[dict[str, Any], str]]:
    """The wanted places of the table: rows, then methods."""
    for values in itertools.product(*chosen.axes.values()):
        row = dict(zip(chosen.axes, values))
        yield from ((row, method) for method in chosen.methods if only.allows(method=method, **row))


def expanded(chosen: Preset, runs: int | None = None, only: Only | None = None) -> Iterator[Placed]:
    """Every cell of the preset that is wanted, in table order: rows, then methods, then runs."""
    only = only or Only({})
    for row, method in places(chosen, only):
        if left_out(chosen, row, method) is not None:
            continue
        settings = settled(chosen, row, method)
        if only.allows(calibrator=settings["calibrator"]):
            for cell in cells_of(settings, row, runs or chosen.runs):
                if only.allows(split=cell.run[0], seed=cell.run[1]):
                    yield Placed(row, method, cell)


def absences(chosen: Preset, only: Only) -> Iterator[Absent]:
    """The places that rules leave out and say why."""
    for row, method in places(chosen, only):
        reason = left_out(chosen, row, method)
        if reason and only.allows(calibrator=chosen.methods[method]["calibrator"]):
            yield Absent(row, method, reason)


def left_out(chosen: Preset, row: Mapping[str, Any], method: str) -> str | None:
    """Why a rule leaves a place out (``leave_out = "reason"``; "" for one that is simply not there), or None."""
    matching = (rule for rule in chosen.rules if matches(rule["where"], {**row, "method": method}))
    return next((rule["leave_out"] for rule in matching if "leave_out" in rule), None)


def settled(chosen: Preset, row: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Preset, method, rules, bound axes: the later wins."""
    facts = {**row, "method": method}
    layers = [chosen.base, chosen.methods[method]]
    layers += [rule for rule in chosen.rules if matches(rule["where"], facts)]
    whole: dict[str, Any] = {name: {} for name in NESTED}
    for layer in layers:
        for key, value in layer.items():
            if key in NESTED:
                whole[key] = {**whole[key], **value}
            elif key in MERGED:
                whole[key] = value
            elif key not in ("where", "source"):
                raise ValueError(
                    f"preset {chosen.name!r}: unknown key {key!r} for {method!r}; choose one of {', '.join(MERGED + NESTED)}"
                )
    for axis, path in whole["bind"].items():
        table, _, name = path.partition(".")
        whole[table] = {**whole[table], name: row[axis]}
    for name in ("training", "architecture", "settings"):
        whole[name] = {key: _null(value) for key, value in whole[name].items()}
    whole["search"] = {key: [_null(value) for value in values] for key, values in whole["search"].items()}
    return whole


def _null(value: Any) -> Any:
    """TOML has no null: "none" stands for it."""
    return None if value == "none" else value


def cells_of(settings: Mapping[str, Any], row: Mapping[str, Any], runs: int) -> Iterator[Cell]:
    """One cell a run, all settings resolved."""
    wanted = settings["search"]  # field of Training -> values to try; none: one candidate, nothing to search
    candidates = [dict(zip(wanted, values)) for values in itertools.product(*wanted.values())]
    name, block = settings["calibrator"], settings.get("block", 5)
    given = {**published_weights(settings, row), **settings["settings"]}
    for first in range(0, runs, block):
        together = tuple(run_of(number, settings) for number in range(first, first + block))
        bases = tuple(base_of(settings, row, searched, together) for searched in candidates)
        for run in together[: runs - first]:
            fields = resolved_recipe(name, given, run[1])
            yield Cell(bases, run, name, fields, settings.get("stop", "none"), settings.get("bins", 20))


def published_weights(settings: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, float]:
    """SCAR's alpha and beta as published for the graph, where a method asks for them (``weights = RECIPE``)."""
    if "weights" not in settings:
        return {}
    found = published(settings["weights"], row["backbone"], row["dataset"], row.get("labels_per_class", 20)).scar
    if not {"alpha", "beta"} <= found.keys():
        raise ValueError(f"recipe {settings['weights']!r} has no published alpha and beta for {dict(row)}")
    return dict(found)


def run_of(number: int, settings: Mapping[str, Any]) -> RunId:
    """(split, seed) of a run: ``over = "seeds"`` keeps the split, ``over = "splits"`` goes round the protocol's splits."""
    number += settings.get(
        "first_run", 0
    )  # a preset may keep clear of runs that were looked at while a method was designed
    over = settings.get("over", "seeds")
    if over not in ("seeds", "splits"):
        raise ValueError(f"over={over!r} is not one of seeds, splits")
    if over == "seeds":
        return 0, number
    splits = PROTOCOLS[settings["protocol"]].splits
    return number if splits is None else number % splits, number


def explicit(training: Training) -> Training:
    """The same training with "as everywhere else" written out, so that equal trainings have equal hashes."""
    same = {"final_lr": training.lr, "final_weight_decay": training.weight_decay}
    return dataclasses.replace(training, **{name: v for name, v in same.items() if getattr(training, name) is None})


def base_of(
    settings: Mapping[str, Any], row: Mapping[str, Any], searched: Mapping[str, Any], together: tuple[RunId, ...]
) -> Base:
    name, dataset, rate = row["backbone"], row["dataset"], row.get("labels_per_class", 20)
    start = published(settings.get("recipe", "cagcn"), name, dataset, rate)
    training = explicit(start.training.updated({**settings["training"], **searched}))
    architecture = {**dataclasses.asdict(start.backbone), **settings["architecture"]}  # type: ignore[call-overload]
    return Base(
        dataset, settings["protocol"], rate, settings.get("row_normalise"), name, architecture,
        dataclasses.asdict(training), together,
    )  # fmt: skip


def resolved_recipe(name: str, settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Every field of the recipe. One that draws random numbers takes the run's seed, unless the preset gives another."""
    if name not in CALIBRATORS:
        raise ValueError(f"unknown calibrator {name!r}; choose one of {', '.join(CALIBRATORS)}")
    fields = {f.name for f in dataclasses.fields(CALIBRATORS[name])}  # type: ignore[arg-type]
    unknown = set(settings) - fields
    if unknown:
        raise ValueError(
            f"calibrator {name!r} has no setting {', '.join(sorted(unknown))}; it has {', '.join(sorted(fields))}"
        )
    seeded = {"seed": seed} if "seed" in fields else {}
    return dataclasses.asdict(CALIBRATORS[name](**{**seeded, **settings}))  # type: ignore[call-overload]
