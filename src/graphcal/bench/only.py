"""``--only dataset=cora,calibrator=ts``: part of a preset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphcal.bench.presets import Preset


@dataclass(frozen=True)
class Only:
    """Part of a preset: for each name the values wanted. Names: the axes, method, calibrator, seed, split."""

    wanted: Mapping[str, frozenset[str]]

    @classmethod
    def parse(cls, text: str, chosen: Preset) -> Only:
        """From ``dataset=cora,calibrator=ts``; a name that is repeated allows each of its values."""
        known: dict[str, list[str] | None] = {name: [str(v) for v in values] for name, values in chosen.axes.items()}
        known["method"] = list(chosen.methods)
        known["calibrator"] = sorted({str(method["calibrator"]) for method in chosen.methods.values()})
        known |= {"seed": None, "split": None}
        wanted: dict[str, set[str]] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, value = part.partition("=")
            if not equals or name not in known:
                raise ValueError(f"--only takes NAME=VALUE with NAME among {', '.join(known)}; got {part!r}")
            choices = known[name]
            if choices is not None and value not in choices:
                raise ValueError(f"--only {part}: {chosen.name} has {name} {', '.join(choices)}")
            wanted.setdefault(name, set()).add(value)
        return cls({name: frozenset(values) for name, values in wanted.items()})

    def allows(self, **facts: Any) -> bool:
        return all(str(value) in self.wanted[name] for name, value in facts.items() if name in self.wanted)
