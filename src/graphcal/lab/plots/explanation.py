"""Draw an explanation: the terms that add up to the lead of the predicted class (`Explanation.lead_terms`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphcal.lab.explanation import Explanation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOR, AGAINST, TOTAL = "#0072b2", "#c44d00", "#5b636b"  # safe for colour-blind readers, and by direction


def bars(explanation: Explanation) -> list[tuple[str, float, float]]:
    """(name, start, length) of a waterfall: each part starts where the one before ended, totals start at zero."""
    parts, at = [], 0.0
    for name, value in explanation.lead_terms:
        parts.append((name, at, value))
        at += value
    parts.append(("lead over the runner-up", 0.0, explanation.lead))
    if explanation.calibrated_lead is not None:
        parts.append(("lead after calibration", 0.0, explanation.calibrated_lead))
    return parts


def _colour(name: str, length: float) -> str:
    return TOTAL if name.startswith("lead") else FOR if length >= 0 else AGAINST


def draw_explanation(explanation: Explanation, ax: Axes) -> None:
    """The waterfall from the training nodes' pushes to the lead, one bar per part."""
    rows = bars(explanation)
    for row, (name, start, length) in enumerate(rows):
        ax.barh(row, length, left=start, color=_colour(name, length), height=0.62)
        ax.annotate(
            f"{length:+.2f}",
            (max(start, start + length), row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    ax.axvline(0, color=TOTAL, linewidth=0.8)
    ax.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"logits for class {_named(explanation)[0]} over class {_named(explanation)[1]}")
    after = "" if explanation.calibrated is None else f", {explanation.calibrated:.2f} calibrated"
    ax.set_title(
        f"Node {explanation.name}: class {_named(explanation)[0]}, confidence {explanation.confidence:.2f}{after}",
        loc="left",
        fontsize=10,
    )


def save_explanation(explanation: Explanation, path: str | Path) -> None:
    """The picture as a file; its ending chooses the format (svg, png, pdf)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    draw_explanation(explanation, figure.subplots())
    try:
        figure.savefig(path)
    except ValueError as error:
        raise ValueError(f"cannot draw {Path(path).name}: {error}") from error


def _named(explanation: Explanation) -> tuple[str, str]:
    """The predicted class and the runner-up."""
    return explanation.class_names[explanation.pred], explanation.class_names[explanation.runner_up]
