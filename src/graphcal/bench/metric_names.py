"""What the numbers of a record are called in tables and figures, and how they are written."""

from __future__ import annotations

PERCENT = ("accuracy", "ece", "ece_floor", "ece_excess", "ece_debiased", "confidence", "over_confidence")
EXPORTED = ("accuracy", "ece", "ece_floor", "ece_excess", "ece_debiased", "nll", "brier", "over_confidence")
TITLES = {"ece": "ECE", "nll": "NLL", "brier": "Brier score"}


def number(value: float, metric: str, sign: str = "") -> str:
    """Two digits for a share in percent, four for others; ``sign="+"`` for a difference."""
    return f"{value:{sign}.2f}" if metric in PERCENT else f"{value:{sign}.4f}"
