"""The name table of calibrators: ours, and those that other packages announce by entry point.

A package adds a calibrator by naming its recipe in the group ``graphcal.calibrators``:

    [project.entry-points."graphcal.calibrators"]
    my-method = "my_package:MyRecipe"

Entry points are looked up when the table is first read, and a package is imported when its name is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

from graphcal.core import Recipe

GROUP = "graphcal.calibrators"


class Names(Mapping[str, type[Recipe]]):
    """A read-only table: name -> recipe class. Our own names come first and cannot be taken over."""

    def __init__(self, own: Mapping[str, type[Recipe]]) -> None:
        self._own = dict(own)

    @cached_property
    def _announced(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=GROUP) if point.name not in self._own}

    def __getitem__(self, name: str) -> type[Recipe]:
        if name in self._own:
            return self._own[name]
        if name not in self._announced:
            raise KeyError(f"unknown calibrator {name!r}; choices: {', '.join(self)}")
        point = self._announced[name]
        recipe = point.load()
        if not callable(getattr(recipe, "fit", None)):
            raise ValueError(
                f"the calibrator {name!r} ({point.value}) has no fit(out, on, stop=None): it is not a recipe"
            )
        return recipe

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from sorted(self._announced)

    def __len__(self) -> int:
        return len(self._own) + len(self._announced)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._announced

    def __repr__(self) -> str:
        return f"calibrators: {', '.join(self)}"
