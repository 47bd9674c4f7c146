"""Search settings on validation nodes, on any engine: trials are cells, and a study goes on where it was stopped.

    best = search(preset("table-gcn"), "uncal", {"final_weight_decay": (1e-6, 1e-3)}, "out", Serial(), only="dataset=cora")[0]

Each round asks Optuna (optional: pip install 'graphcal[search]') for several trials, makes of each a method of the preset with
those training settings, runs the cells like any others, and tells Optuna the validation NLL after calibration, averaged over
runs.
Test labels play no part. Trials are asked in a fixed order with a fixed seed, and a finished cell is not computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphcal.bench.engines import Engine, Tick, silence
from graphcal.bench.presets import Preset
from graphcal.bench.session import Session

Range = tuple[float, float]  # searched on a logarithmic scale


@dataclass(frozen=True)
class Trial:
    settings: Mapping[str, float]  # fields of Training
    validation_nll: float


def search(
    preset: Preset,
    method: str,
    space: Mapping[str, Range],
    folder: str | Path,
    engine: Engine,
    trials: int = 20,
    together: int = 4,
    only: str = "",
    runs: int | None = None,
    seed: int = 0,
    tick: Tick = silence,
) -> list[Trial]:
    """Trials in the order of their validation NLL, best first. ``together`` trials run side by side."""
    optuna = _optuna()
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True))
    found: list[Trial] = []
    while len(found) < trials:
        asked = [study.ask() for _ in range(min(together, trials - len(found)))]
        settings = [
            {name: trial.suggest_float(name, *limits, log=True) for name, limits in space.items()} for trial in asked
        ]
        for trial, one, nll in zip(asked, settings, _round(preset, method, settings, folder, engine, only, runs, tick)):
            study.tell(trial, nll)
            found.append(Trial(one, nll))
    return sorted(found, key=lambda trial: trial.validation_nll)


def _round(
    preset: Preset,
    method: str,
    settings: list[dict[str, float]],
    folder: str | Path,
    engine: Engine,
    only: str,
    runs: int | None,
    tick: Tick,
) -> list[float]:
    """The validation NLL of each setting."""
    if method not in preset.methods:
        raise ValueError(f"{preset.name} has no method {method!r}; choose one of {', '.join(preset.methods)}")
    base = preset.methods[method]
    named = {
        f"{method}-{n}": {**base, "training": {**base.get("training", {}), **one}} for n, one in enumerate(settings)
    }
    session = Session.of(replace(preset, methods=named, published=(), remarks=()), folder, only, runs)
    session.run(engine, tick)
    values: dict[str, list[float]] = {name: [] for name in named}
    for one in session.placed:
        if not session.store.has(one.cell):
            raise RuntimeError(
                f"a trial of the search failed: {session.store.error(one.cell.key) or 'its graph is not here'}"
            )
        values[one.method].append(float(session.store.record(one.cell.key).result["validation"]["nll"]))
    return [sum(found) / len(found) for found in values.values()]


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError("search needs Optuna: pip install 'graphcal[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
