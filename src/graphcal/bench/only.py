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
        """From ``dataset=cora,citeseer,calibrator=ts``: a value without a name belongs to the name before it."""
        known: dict[str, list[str] | None] = {name: [str(v) for v in values] for name, values in chosen.axes.items()}
        known["method"] = list(chosen.methods)
        known["calibrator"] = sorted({str(method["calibrator"]) for method in chosen.methods.values()})
        known |= {"seed": None, "split": None}
        wanted: dict[str, set[str]] = {}
        name = ""
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            before, equals, value = part.rpartition("=")
            name = before.strip() if equals else name
            value = value.strip()
            if name not in known:
                raise ValueError(f"--only takes NAME=VALUE with NAME among {', '.join(known)}; got {part!r}")
            choices = known[name]
            if choices is not None and value not in choices:
                raise ValueError(f"--only {name}={value}: {chosen.name} has {name} {', '.join(choices)}")
            wanted.setdefault(name, set()).add(value)
        return cls({name: frozenset(values) for name, values in wanted.items()})

    def allows(self, **facts: Any) -> bool:
        return all(str(value) in self.wanted[name] for name, value in facts.items() if name in self.wanted)
