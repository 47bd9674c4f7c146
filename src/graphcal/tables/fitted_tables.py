"""What a calibration remembers of the table it was fitted on: the entry ``table`` of its ``fitted_on``.

`graphcal score` reads other tables the same way and compares their rows with those of the fit. The entry comes from a file, so
every value is checked here, once, before anything uses it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphcal.core import Calibration
from graphcal.tables.kinds import KINDS, MOST_DIGITS
from graphcal.tables.layouts import LAYOUTS, ROLES
from graphcal.tables.profiles import BINS, Profile


@dataclass(frozen=True)
class FittedTable:
    """The table of a fit; all fields are empty for a calibration that was fitted on arrays by its recipe."""

    kind: str | None = None
    digits: int | None = None  # that its probabilities were rounded to
    classes: tuple[str, ...] = ()
    form: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)  # role -> column
    calibrated: bool = False  # the scores were columns calibrated_...
    training_rows: int = 0
    profile: Profile | None = None

    @classmethod
    def of(cls, calibration: Calibration) -> FittedTable:
        """The table of a calibration; a damaged entry is a ValueError that names the calibration's file."""
        entry = calibration.fitted_on.get("table")
        fault = "it is no dictionary" if entry is not None and not isinstance(entry, dict) else ""
        for key, is_valid in CHECKS.items():
            if not fault and entry and entry.get(key) is not None and not is_valid(entry[key]):
                fault = f"no valid {key!r}"
        classes = tuple((entry or {}).get("classes") or ()) if not fault else ()
        if not fault and classes and calibration.num_classes not in (None, len(classes)):
            fault = f"{len(classes)} classes for a calibration of {calibration.num_classes}"
        profile = None
        if not fault and entry and entry.get("profile") is not None:
            profile = _profile(entry["profile"], len(classes))
            fault = "" if profile else "no valid 'profile'"
        if fault:
            raise ValueError(
                f"{calibration.file or 'the calibration'} has a damaged graphcal header: {fault} in fitted_on.table"
            )
        plain = {key: entry[key] for key in CHECKS if entry and entry.get(key) is not None and key != "classes"}
        return cls(**plain, classes=classes, profile=profile)

    def to_dict(self) -> dict[str, Any]:
        """For the header of a file."""
        entry: dict[str, Any] = {"kind": self.kind, "digits": self.digits, "classes": list(self.classes)}
        entry |= {"form": self.form, "columns": dict(self.columns)} if self.form else {}
        entry |= {"calibrated": True} if self.calibrated else {}
        entry |= {"training_rows": self.training_rows} if self.training_rows else {}
        return entry | ({"profile": self.profile.to_dict()} if self.profile else {})


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


CHECKS = {
    "kind": lambda kind: isinstance(kind, str) and kind in KINDS,
    "digits": lambda digits: _is_count(digits) and digits <= MOST_DIGITS,
    "classes": lambda names: (
        isinstance(names, list) and all(isinstance(n, str) for n in names) and len(set(names)) == len(names) > 1
    ),
    "form": lambda form: isinstance(form, str) and form in LAYOUTS,
    "columns": lambda columns: (
        isinstance(columns, dict) and all(r in ROLES and isinstance(name, str) for r, name in columns.items())
    ),
    "calibrated": lambda value: isinstance(value, bool),
    "training_rows": _is_count,
}


def _profile(entry: Any, classes: int) -> Profile | None:
    """The profile of the fit's rows; None where the entry is not one."""
    if not isinstance(entry, dict):
        return None
    counts, total = [entry.get("confidence"), entry.get("predicted")], entry.get("total")
    if not all(isinstance(c, list) and len(c) == n and all(map(_is_count, c)) for c, n in zip(counts, (BINS, classes))):
        return None
    if not isinstance(total, int | float) or isinstance(total, bool) or not math.isfinite(total):
        return None
    return Profile(np.asarray(counts[0]), np.asarray(counts[1]), float(total))
