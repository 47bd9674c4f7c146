"""Metadata in files: the table a calibration was fitted on, and the classes and columns of a table that graphcal wrote.

`graphcal score` reads other tables the same way as the table of the fit. A calibration stores it in the entry ``table`` of its
``fitted_on``; every value is checked here, once, before anything uses it. Tables that we write store their classes, which a list
of scores cannot say, and the names of their columns in the metadata of their schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from graphcal.tables.layouts import LAYOUTS, ROLES
from graphcal.tables.score_types import MOST_DIGITS, SCORE_TYPES

if TYPE_CHECKING:
    from graphcal.core import Calibration

KEY = b"graphcal.table"  # in the metadata of a schema
STORED_ROLES = ("id", "label", "class", "source", "target")


@dataclass(frozen=True)
class FittedTable:
    """The table of a fit; all fields are empty for a calibration that was fitted by its recipe."""

    kind: str | None = None
    digits: int | None = None  # that its probabilities were rounded to
    classes: tuple[str, ...] = ()
    layout: str | None = None  # its name
    columns: Mapping[str, str] = field(default_factory=dict)  # role -> column
    calibrated: bool = False  # the scores were columns calibrated_...
    training_rows: int = 0

    @classmethod
    def of(cls, calibration: Calibration) -> FittedTable:
        """Read the table of a calibration; refuse a damaged entry and name the calibration's file."""
        entry = calibration.fitted_on.get("table")
        fault = "it is no dictionary" if entry is not None and not isinstance(entry, dict) else ""
        for key, is_valid in CHECKS.items():
            if not fault and entry and entry.get(key) is not None and not is_valid(entry[key]):
                fault = f"no valid {key!r}"
        classes = tuple((entry or {}).get("classes") or ()) if not fault else ()
        if not fault and classes and calibration.num_classes not in (None, len(classes)):
            fault = f"{len(classes)} classes for a calibration of {calibration.num_classes}"
        if fault:
            raise ValueError(
                f"{calibration.file or 'the calibration'} has a damaged graphcal header: {fault} in fitted_on.table"
            )
        plain = {key: entry[key] for key in CHECKS if entry and entry.get(key) is not None and key != "classes"}
        return cls(**plain, classes=classes)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a file's header."""
        entry: dict[str, Any] = {"kind": self.kind, "digits": self.digits, "classes": list(self.classes)}
        entry |= {"layout": self.layout, "columns": dict(self.columns)} if self.layout else {}
        entry |= {"calibrated": True} if self.calibrated else {}
        return entry | ({"training_rows": self.training_rows} if self.training_rows else {})


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


CHECKS = {
    "kind": lambda kind: isinstance(kind, str) and kind in SCORE_TYPES,
    "digits": lambda digits: _is_count(digits) and digits <= MOST_DIGITS,
    "classes": lambda names: (
        isinstance(names, list) and all(isinstance(n, str) for n in names) and len(set(names)) == len(names) > 1
    ),
    "layout": lambda name: isinstance(name, str) and name in LAYOUTS,
    "columns": lambda columns: (
        isinstance(columns, dict) and all(r in ROLES and isinstance(name, str) for r, name in columns.items())
    ),
    "calibrated": lambda value: isinstance(value, bool),
    "training_rows": _is_count,
}


@dataclass(frozen=True)
class TableMetadata:
    """Metadata in the schema of a table that graphcal wrote."""

    classes: tuple[str, ...] | None = None
    numbered: bool = False  # labels may be numbers, in the order of the classes
    columns: Mapping[str, str] = field(default_factory=dict)  # role -> column


def with_metadata(
    schema: pa.Schema, classes: Sequence[str], roles: Mapping[str, str], numbered: bool = False
) -> pa.Schema:
    """Add the classes and the columns of these roles to the metadata of a schema."""
    columns = {role: name for role, name in roles.items() if role in STORED_ROLES and name in schema.names}
    about = json.dumps({"classes": list(classes), "columns": columns} | ({"numbered": True} if numbered else {}))
    return schema.with_metadata({**(schema.metadata or {}), KEY: about.encode()})


def table_metadata(schema: pa.Schema) -> TableMetadata:
    """Read the metadata of a schema; empty for tables of others."""
    try:
        about = json.loads((schema.metadata or {}).get(KEY, b"{}"))
        classes = tuple(map(str, about.get("classes", ()))) or None
        columns = {role: name for role, name in about.get("columns", {}).items() if name in schema.names}
        return TableMetadata(classes, about.get("numbered") is True, columns)
    except (ValueError, AttributeError, TypeError):
        return TableMetadata()
