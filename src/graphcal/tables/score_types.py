"""Score types: logits, log-probabilities or probabilities. Declared, or named by a column; never guessed.

All become logits, blocks (C, n) with the classes along the first axis:
    logits       as they are
    log-probs    as they are, after a check that rows sum to 1; -inf becomes log(floor)
    probs        log(p), after a check that p >= 0 and that rows sum to 1 within rounding; exact zeros become the floor

*Rounding.* Probabilities that are all whole multiples of 10^-d (d <= 6) are a table rounded to d digits. Its rows may miss 1 by
half a digit per class, and a zero in it stands for something below half a digit: floor = 10^-d / 4. In tables that are not
rounded rows may miss 1 by 0.001, and the floor is 1e-12. A calibrator stores the rounding of its fit, so that scoring treats a
zero as fitting did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCORE_TYPES = ("logits", "log-probs", "probs")
FLOOR = 1e-12
TOLERANCE = 1e-3  # |Σ p - 1| allowed in a table that is not rounded
LOG_TOLERANCE = 0.05  # of log-probabilities, which may be rounded or of half precision
ROUNDING = 1e-6  # below zero: 1 - p of a p that float32 has rounded up
MOST_DIGITS = 6
SAMPLE = 20_000  # rows looked at for rounding
MANY = 20  # rows that do not sum to 1 by chance

Array = NDArray[Any]


def score_type_name(kind: str) -> str:
    """Return the name of a score type; prob, log_prob and logit, as in column names, are accepted."""
    name = kind.lower().replace("_", "-")
    name = name if name.endswith("s") else name + "s"
    if name not in SCORE_TYPES:
        raise ValueError(f"unknown kind of scores {kind!r}; choose one of {', '.join(SCORE_TYPES)}")
    return name


@dataclass(frozen=True)
class ScoreType:
    """Type of the scores of a table; ``digits`` is what probabilities are rounded to, None where they are not."""

    name: str
    digits: int | None = None

    @property
    def floor(self) -> float:
        """Probability that an exact zero stands for."""
        return FLOOR if self.digits is None else 10.0**-self.digits / 4

    def tolerance(self, classes: int) -> float:
        """Return by how much a row of probabilities may miss 1."""
        return TOLERANCE if self.digits is None else max(TOLERANCE, 0.5 * classes * 10.0**-self.digits + 1e-6)

    def logits(self, scores: Array, where: str | Path, first_row: int = 0) -> Array:
        """Convert a block of scores (C, n) to logits (C, n); ``first_row`` is the position of the block in its file."""
        if self.name == "probs":
            return self._log(scores, where, first_row)
        if self.name == "log-probs":
            self._refuse(np.isnan(scores).any(0) | (scores > 1e-3).any(0), scores, where, first_row)
            self._refuse(~(np.abs(np.exp(scores).sum(0) - 1) <= LOG_TOLERANCE), scores, where, first_row)
            floored: Array = np.maximum(scores, np.log(scores.dtype.type(self.floor)))
            return floored
        self.refuse_missing(list(scores), where, first_row)
        return scores

    def refuse_missing(self, columns: Sequence[Array], where: str | Path, first_row: int) -> None:
        """Raise if any logit in C columns (n,) is not finite; checked by one sum per column."""
        for column in columns:
            with np.errstate(over="ignore", invalid="ignore"):
                fine = np.isfinite(column.sum())  # of large numbers it may be infinite: then each is looked at
            if not fine:
                self._refuse(~np.isfinite(column), np.stack(columns), where, first_row)

    def _log(self, probs: Array, where: str | Path, first_row: int) -> Array:
        total = probs.sum(0)
        with np.errstate(invalid="ignore"):
            off = ~(np.abs(total - 1) <= self.tolerance(len(probs))) | ~(probs.min(0) >= -ROUNDING)
        self._refuse(off, probs, where, first_row)
        logs: Array = np.log(np.maximum(probs, probs.dtype.type(self.floor)))
        return logs

    def _refuse(self, wrong: Any, scores: Array, where: str | Path, first_row: int) -> None:
        if not wrong.any():
            return
        at = int(wrong.argmax())
        row, values = first_row + at, scores[:, at]
        if not np.isfinite(values).all() and (self.name != "log-probs" or np.isnan(values).any()):
            raise ValueError(f"{where}: row {row} has a score ({self.name}) that is not a number")
        if self.name == "log-probs" and values.max() <= 1e-3:
            raise ValueError(
                f"{where}: probabilities of row {row} must sum to 1, their logarithms say {np.exp(values).sum():.4g}: are they "
                "natural logarithms, of all classes? Scores that are not normalised are logits"
            )
        if self.name == "log-probs":
            raise ValueError(f"{where}: log-probabilities of row {row} must be 0 or less, got {values.max():.4g}")
        hint = f", the largest is {values.max():.4g}: are they percentages, or logits?" if values.max() > 2 else ""
        raise ValueError(
            f"{where}: probabilities of row {row} must lie in 0..1 and sum to 1, they sum to {values.sum():.4g}{hint}"
            + (f" (the table is rounded to {self.digits} digits)" if self.digits is not None else "")
        )


def infer_score_type(name: str, scores: Array, where: str | Path) -> ScoreType:
    """Return the score type with the rounding of these scores (C, n)."""
    if name == "logits":
        refuse_probabilities(scores, where)
    if name != "probs":
        return ScoreType(name)
    digits = digits_of(scores[:, :SAMPLE])
    if digits == 0 and (scores > 1).any():  # percentages, which are refused row by row
        return ScoreType(name)
    if digits == 0:
        raise ValueError(
            f"{where}: every probability is 0 or 1: these are predictions without confidence, which no calibration can add. "
            "Write the softmax of the logits instead"
        )
    return ScoreType(name, digits)


def refuse_probabilities(logits: Array, where: str | Path) -> None:
    """Refuse "logits" (C, n) all of whose rows are probabilities."""
    sample = logits[:, :SAMPLE]
    with np.errstate(invalid="ignore"):
        are = (sample >= 0).all() and (np.abs(sample.sum(0) - 1) <= TOLERANCE).all()
    if are and sample.shape[1] >= MANY:
        raise ValueError(
            f"{where}: declared as logits, but every row lies in 0..1 and sums to 1, as probabilities do; pass --kind probs"
        )


def digits_of(probs: Array) -> int | None:
    """Return the number of digits that all probabilities are rounded to; None where they are not."""
    wide = probs.astype(np.float64)
    for digits in range(MOST_DIGITS + 1):
        scaled = wide * 10.0**digits
        close = max(1e-6, 10.0**digits * 2 * float(np.finfo(probs.dtype).eps))
        with np.errstate(invalid="ignore"):
            if (np.abs(scaled - np.round(scaled)) <= close).all():
                return digits
    return None
