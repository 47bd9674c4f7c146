"""`help()` teaches: every public name has a docstring with an example, and the examples run."""

from __future__ import annotations

import doctest
import inspect
import re
from functools import cached_property
from importlib import import_module
from pathlib import Path

import pytest

import graphcal

NAMES = [name for name in graphcal.__all__ if name != "__version__"]
CLASSES = [name for name in NAMES if inspect.isclass(getattr(graphcal, name))]
HOOKS = {"forward", "extra_repr"}  # what torch calls; nobody else does


def described(name):
    """The object whose docstring `help(graphcal.NAME)` shows: a table of names shows its class."""
    value = getattr(graphcal, name)
    return value if inspect.isclass(value) or inspect.isfunction(value) else type(value)


def members(cls):
    """Public methods and properties that a class defines itself, with their docstrings."""
    documented = {}
    for name, value in vars(cls).items():
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", getattr(value, "func", value))
        if not name.startswith("_") and (inspect.isfunction(inner) or isinstance(value, cached_property)):
            documented[name] = inspect.getdoc(inner) or ""
    return documented


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name):
    assert ">>>" in (described(name).__doc__ or ""), f"help(graphcal.{name}) has no example"


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isfunction(getattr(graphcal, name))])
def test_a_public_function_describes_each_parameter(name):
    function = getattr(graphcal, name)
    text = inspect.getdoc(function).partition("Parameters\n----------\n")[2].partition("Returns\n-------\n")
    described = {
        word for line in re.findall(r"^(\S[^:\n]*) :", text[0], re.MULTILINE) for word in re.findall(r"\w+", line)
    }
    assert described == set(inspect.signature(function).parameters)
    assert text[2].strip()


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_is_described_and_shown(name):
    cls = getattr(graphcal, name)
    for method, text in members(cls).items():
        assert text, f"{name}.{method} has no docstring"
        if method not in HOOKS:
            examples = "\n".join(e.source for e in doctest.DocTestParser().get_examples(cls.__doc__))
            assert ">>>" in text or f".{method}" in examples, f"no example shows {name}.{method}"


@pytest.mark.parametrize("module", sorted({described(name).__module__ for name in NAMES}))
def test_the_examples_say_what_happens(module):
    result = doctest.testmod(import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


def test_the_page_of_the_api_has_every_name():
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: graphcal\.(\w+)$", page, re.MULTILINE)) | set(re.findall(r"members: \[(\w+)\]", page))
    assert set(NAMES) <= shown
