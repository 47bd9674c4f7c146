"""Name tables that other packages can add to: calibrators, backbones, initialisations, published trainings, bench presets.

A package announces what it has by entry point, in the group ``graphcal.calibrators``, ``graphcal.backbones``,
``graphcal.inits``, ``graphcal.trainings`` or ``graphcal.presets``:

    [project.entry-points."graphcal.calibrators"]
    my-method = "my_package:MyRecipe"

Entry points are looked up when a table is first read, and a package is imported when its name is asked for. The reproduction
of the SCAR paper (`graphcal.lab.paper`) announces its variants in the same way; without that folder they are simply not there.

"mine.py:MyRecipe" names a class in a file of your own, wherever a name goes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Generic, TypeVar, cast

T = TypeVar("T")


def choices(name: str, options: Iterable[str]) -> str:
    """The end of an error about a name that is not known: all names, and the one that was probably meant."""
    names = list(options)
    meant = get_close_matches(name.lower(), names, n=1)
    return f"choose among {', '.join(names)}" + (f". Did you mean {meant[0]!r}?" if meant else "")


class UnknownName(KeyError, ValueError):
    """A name that is not in its table; the message lists the choices."""

    def __str__(self) -> str:
        return str(self.args[0])


class Names(Mapping[str, T], Generic[T]):
    """A read-only table: name -> value, such as `graphcal.CALIBRATORS` and `graphcal.lab.BACKBONES`.

    >>> import graphcal
    >>> graphcal.CALIBRATORS["ts"]()  # a recipe
    TemperatureScaling()
    >>> "graph-scaling" in graphcal.CALIBRATORS
    True

    Our own names come first and cannot be taken over.
    A ``kind`` such as "calibrator" names the group ``graphcal.calibrators``; ``method`` is what every announced value must
    offer, and ``signature`` how the error describes it.
    """

    def __init__(self, kind: str, builtin: Mapping[str, T], method: str = "", signature: str = "") -> None:
        self.kind, self.builtin, self._method, self._signature = kind, dict(builtin), method, signature

    @cached_property
    def _announced(self) -> dict[str, EntryPoint]:
        return {name: point for name, point in announced(self.kind).items() if name not in self.builtin}

    def __getitem__(self, name: str) -> T:
        if name in self.builtin:
            return self.builtin[name]
        if is_file_name(name):
            return self._checked(name, name, load_from_file(name))
        if name not in self._announced:
            raise UnknownName(f"unknown {self.kind} {name!r}{missing_hint(self.kind, name)}; {choices(name, self)}")
        point = self._announced[name]
        return self._checked(name, point.value, point.load())

    def _checked(self, name: str, origin: str, value: object) -> T:
        if self._method and not callable(getattr(value, self._method, None)):
            raise ValueError(f"the {self.kind} {name!r} ({origin}) has no {self._signature}")
        return cast(T, value)

    def __iter__(self) -> Iterator[str]:
        yield from self.builtin
        yield from sorted(self._announced)

    def __len__(self) -> int:
        return len(self.builtin) + len(self._announced)

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self._announced or is_file_name(name)

    def __repr__(self) -> str:
        return f"{self.kind}s: {', '.join(self)}"


def is_file_name(name: object) -> bool:
    """Return whether a name has the form "file.py:Class"."""
    return isinstance(name, str) and name.partition(":")[0].endswith(".py")


def load_from_file(name: str) -> object:
    """Load "file.py:Class". The file is imported once, under its own name, so that what it defines can be saved and pickled."""
    file, _, attribute = name.partition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise ValueError(f"{name!r}: there is no file {file}")
    if not attribute:
        raise ValueError(f"{name!r} names no class. Write {file}:CLASS")
    module = sys.modules.get(path.stem)
    if module is None:
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None  # of every file that ends with .py
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[path.stem] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[path.stem]
            raise
    if Path(getattr(module, "__file__", None) or "").resolve() != path:
        raise ValueError(f"{file} has the name of a module that is already imported. Rename the file")
    if not hasattr(module, attribute):
        raise ValueError(f"{file} has no {attribute!r}")
    return getattr(module, attribute)


def announced(kind: str) -> dict[str, EntryPoint]:
    """Entry points of a kind from installed packages; nothing is imported."""
    return {point.name: point for point in entry_points(group=f"graphcal.{kind}s") if _is_there(point)}


def missing_hint(kind: str, name: str) -> str:
    """Hint for a built-in plug-in whose part of graphcal is not installed; empty for other names."""
    points = [p for p in entry_points(group=f"graphcal.{kind}s") if p.name == name and not _is_there(p)]
    return f" (it is in {points[0].module}, which this installation lacks)" if points else ""


def _is_there(point: EntryPoint) -> bool:
    """Return whether the module exists: a deleted part (`graphcal.lab`) is not announced, though the metadata still name it."""
    module = point.value.partition(":")[0]
    if not module.startswith("graphcal."):
        return True
    path = Path(__file__).parent.joinpath(*module.split(".")[1:])  # found without importing its package
    return path.is_dir() or path.with_suffix(".py").is_file()
