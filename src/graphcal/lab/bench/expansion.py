"""Expand a preset into the slots of its table, each with its cells, filtered by ``--only``.

    --only dataset=cora,calibrator=ts

A cell holds everything that its preset says about it, with every default written out.

The runs of a method (seeds, or the splits of a protocol) are trained in fixed blocks, always whole, so that a record never
depends on how many runs were asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphcal.files import RUNS, sha256_of
from graphcal.lab.bench.presets import Preset, matches
from graphcal.lab.bench.records import Cell, RunId, TrainingGroup
from graphcal.lab.datasets.protocols import PROTOCOLS
from graphcal.lab.training import Retraining, Training, published
from graphcal.methods import CALIBRATORS
from graphcal.metrics.bins import BINS
from graphcal.plugins import is_file_name


@dataclass(frozen=True)
class SlotSettings:
    """The keys that the base, the methods and the rules of a preset may have. Tables are merged, the rest is replaced."""

    calibrator: str
    protocol: str
    title: str = ""
    recipe: str = "cagcn"  # a training by name
    row_normalise: bool | None = None  # None: as the protocol does
    over: str = "seeds"  # what runs go over: seeds of one split, or splits
    first_run: int = 0  # later where earlier runs were looked at while a method was designed
    block: int = 5  # runs that are trained together
    stop: str = "none"
    bins: int = BINS
    weights: str = ""  # a training by name, for the alpha and beta of SCAR published with it
    training: Mapping[str, Any] = field(default_factory=dict)  # fields of `Training`
    architecture: Mapping[str, Any] = field(default_factory=dict)  # fields of the backbone
    settings: Mapping[str, Any] = field(default_factory=dict)  # fields of the calibrator's recipe
    search: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # fields of `Training`: values to choose among
    bind: Mapping[str, str] = field(default_factory=dict)  # axis -> TABLE.FIELD that takes its value
    runs: int = RUNS  # at most; fewer for a method that takes long


FIELDS = dataclasses.fields(SlotSettings)
TABLES = tuple(f.name for f in FIELDS if f.default_factory is not dataclasses.MISSING)


def resolve(preset: Preset, row: Mapping[str, Any], method: str) -> SlotSettings:
    """Base, method, rules, bound axes: the later wins."""
    slot = {**row, "method": method}
    layers = [preset.base, preset.methods[method], *(rule for rule in preset.rules if matches(rule["where"], slot))]
    whole: dict[str, Any] = {name: {} for name in TABLES}
    for layer in layers:
        if layer.get("calibrator", whole.get("calibrator")) != whole.get("calibrator"):
            whole["settings"] = {}  # they were those of another calibrator
        for key, value in layer.items():
            whole[key] = {**whole[key], **value} if key in TABLES else value
    whole.pop("where", None)
    _check_keys(preset.name, method, whole)
    for axis, path in whole["bind"].items():
        table, _, name = path.partition(".")
        whole[table] = {**whole[table], name: row[axis]}
    for table in ("training", "architecture", "settings"):
        whole[table] = {key: _null(value) for key, value in whole[table].items()}
    whole["search"] = {key: [_null(value) for value in values] for key, values in whole["search"].items()}
    return SlotSettings(**whole)


def _check_keys(preset: str, method: str, whole: Mapping[str, Any]) -> None:
    names = [f.name for f in FIELDS]
    for key in whole:
        if key not in names:
            raise ValueError(f"preset {preset!r}: unknown key {key!r} for {method!r}; choose one of {', '.join(names)}")
    for key in ("calibrator", "protocol"):
        if key not in whole:
            raise ValueError(f"preset {preset!r} has no {key} for {method!r}")


def _null(value: Any) -> Any:
    """TOML has no null: "none" stands for it."""
    return None if value == "none" else value


def make_cells(settings: SlotSettings, row: Mapping[str, Any], runs: int) -> Iterator[Cell]:
    """One cell per run, all settings written out."""
    if not isinstance(settings.block, int) or not 1 <= settings.block <= RUNS:
        raise ValueError(f"block must be a whole number from 1 to {RUNS:,}; got {settings.block!r}")
    wanted = settings.search  # none: one candidate, nothing to choose
    candidates = [dict(zip(wanted, values)) for values in itertools.product(*wanted.values())]
    given = {**_published_weights(settings, row), **settings.settings}
    runs = min(runs, settings.runs)
    code = _code_hash(settings.calibrator)
    for first in range(0, runs, settings.block):
        together = tuple(run_id(number, settings) for number in range(first, first + settings.block))
        groups = tuple(_group(settings, row, searched, together) for searched in candidates)
        for run in together[: runs - first]:
            fields = _recipe_fields(settings.calibrator, given, groups[0], run[1])
            yield Cell(
                groups, run, settings.calibrator, fields, settings.stop, settings.bins, row.get("fit_labels", 0), code,
                row.get("next", ""),
            )  # fmt: skip


def run_id(number: int, settings: SlotSettings) -> RunId:
    """(split, seed) of a run: ``over = "seeds"`` keeps the split, ``over = "splits"`` goes round the protocol's splits."""
    number += settings.first_run
    if settings.over not in ("seeds", "splits"):
        raise ValueError(f"over={settings.over!r} is not one of seeds, splits")
    if settings.over == "seeds":
        return 0, number
    splits = PROTOCOLS[settings.protocol].splits
    return number if splits is None else number % splits, number


def _group(
    settings: SlotSettings, row: Mapping[str, Any], searched: Mapping[str, Any], together: tuple[RunId, ...]
) -> TrainingGroup:
    backbone, dataset, labels_per_class = row["backbone"], row["dataset"], row.get("labels_per_class", 20)
    start = published(settings.recipe, backbone, dataset, labels_per_class)
    training = _spelled_out(start.training.updated({**settings.training, **searched}))
    model: Any = start.backbone  # a frozen dataclass
    architecture = {**dataclasses.asdict(model), **settings.architecture}
    return TrainingGroup(
        dataset, settings.protocol, labels_per_class, settings.row_normalise, backbone, architecture,
        dataclasses.asdict(training), together,
    )  # fmt: skip


def _spelled_out(training: Training) -> Training:
    """The same training with "as everywhere else" written out, so that equal trainings have equal hashes."""
    same: dict[str, Any] = {"final_lr": training.lr, "final_weight_decay": training.weight_decay}
    return dataclasses.replace(training, **{name: v for name, v in same.items() if getattr(training, name) is None})


def _published_weights(settings: SlotSettings, row: Mapping[str, Any]) -> dict[str, float]:
    """SCAR's alpha and beta as published for the graph, where a method asks for them."""
    if not settings.weights:
        return {}
    weights = published(settings.weights, row["backbone"], row["dataset"], row.get("labels_per_class", 20)).scar
    if not {"alpha", "beta"} <= weights.keys():
        raise ValueError(f"recipe {settings.weights!r} has no published alpha and beta for {dict(row)}")
    return dict(weights)


ADDED_LATER = ("sets",)  # fields of recipes; left out where they say nothing, so that cells keep their keys


def recipe_class(name: str) -> Any:
    """The frozen dataclass of a calibrator, or of ``retraining``."""
    return Retraining if name == "retraining" else CALIBRATORS[name]


def _code_hash(calibrator: str) -> str:
    """SHA-256 of the file of a calibrator "file.py:Class": another text is another cell. "" for other names."""
    recipe_class(calibrator)  # refuses what is not there
    return sha256_of(calibrator.partition(":")[0]) if is_file_name(calibrator) else ""


def _recipe_fields(name: str, settings: Mapping[str, Any], group: TrainingGroup, seed: int) -> dict[str, Any]:
    """Every field of the recipe. One that draws random numbers takes the run's seed, unless the preset gives another."""
    cls = recipe_class(name)
    fields = {f.name for f in dataclasses.fields(cls)}
    unknown = set(settings) - fields
    if unknown:
        raise ValueError(
            f"calibrator {name!r} has no setting {', '.join(sorted(unknown))}; it has {', '.join(sorted(fields))}"
        )
    from_run = {
        "seed": seed,
        "backbone": group.backbone,
        "architecture": group.architecture,
        "training": group.training,
    }
    from_run = {key: value for key, value in from_run.items() if key == "seed" or cls is Retraining}
    whole = dataclasses.asdict(cls(**{**{k: v for k, v in from_run.items() if k in fields}, **settings}))
    return {key: value for key, value in whole.items() if value or key not in ADDED_LATER}


@dataclass(frozen=True)
class Slot:
    """A place in the table, the values of the axes and the method, and one of its cells."""

    row: Mapping[str, Any]
    method: str
    cell: Cell


@dataclass(frozen=True)
class Blank:
    """A place in the table that is meant to be empty, and why."""

    row: Mapping[str, Any]
    method: str
    reason: str


@dataclass(frozen=True)
class Filter:
    """Part of a preset: for each name the values wanted. Names: the axes, method, calibrator, seed, split."""

    wanted: Mapping[str, frozenset[str]]

    @classmethod
    def parse(cls, text: str, preset: Preset) -> Filter:
        """Parse ``dataset=cora,citeseer,calibrator=ts``: a value without a name belongs to the name before it."""
        values_by_name: dict[str, list[str] | None] = {
            name: [str(v) for v in values] for name, values in preset.axes.items()
        }
        values_by_name["method"] = list(preset.methods)
        values_by_name["calibrator"] = sorted({str(method["calibrator"]) for method in preset.methods.values()})
        values_by_name |= {"seed": None, "split": None}
        wanted: dict[str, set[str]] = {}
        name = ""
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            before, equals, value = part.rpartition("=")
            name = before.strip() if equals else name
            value = value.strip()
            if name not in values_by_name:
                raise ValueError(f"--only takes NAME=VALUE with NAME among {', '.join(values_by_name)}; got {part!r}")
            choices = values_by_name[name]
            if choices is not None and value not in choices:
                raise ValueError(f"--only {name}={value}: {preset.name} has {name} {', '.join(choices)}")
            wanted.setdefault(name, set()).add(value)
        return cls({name: frozenset(values) for name, values in wanted.items()})

    def allows(self, **values: Any) -> bool:
        return all(str(value) in self.wanted[name] for name, value in values.items() if name in self.wanted)


EVERYTHING = Filter({})


def expand(preset: Preset, runs: int | None = None, only: Filter = EVERYTHING) -> Iterator[Slot]:
    """Every slot of the preset that is wanted, in table order: rows, then methods, then runs."""
    for row, method in _places(preset, only):
        if left_out(preset, row, method) is not None:
            continue
        settings = resolve(preset, row, method)
        if only.allows(calibrator=settings.calibrator):
            for cell in make_cells(settings, row, runs or preset.runs):
                if only.allows(split=cell.run[0], seed=cell.run[1]):
                    yield Slot(row, method, cell)


def blanks(preset: Preset, only: Filter = EVERYTHING) -> Iterator[Blank]:
    """The places that rules leave out and say why."""
    for row, method in _places(preset, only):
        reason = left_out(preset, row, method)
        if reason and only.allows(calibrator=preset.methods[method]["calibrator"]):
            yield Blank(row, method, reason)


def left_out(preset: Preset, row: Mapping[str, Any], method: str) -> str | None:
    """Reason of the rule that leaves a slot out (``leave_out = "reason"``; "" if it does not exist), or None."""
    matching = (rule for rule in preset.rules if matches(rule["where"], {**row, "method": method}))
    return next((rule["leave_out"] for rule in matching if "leave_out" in rule), None)


def _places(preset: Preset, only: Filter) -> Iterator[tuple[dict[str, Any], str]]:
    """The wanted places of the table: rows, then methods."""
    for values in itertools.product(*preset.axes.values()):
        row = dict(zip(preset.axes, values))
        yield from ((row, method) for method in preset.methods if only.allows(method=method, **row))
