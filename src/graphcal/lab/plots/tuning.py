"""Pictures of weight decay: the curve behind a search, and the paper's figure of global against final-layer decay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphcal.lab.tuning import DecaySearch
from graphcal.metrics.names import metric_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONF, ACCURACY, INK = "#0072b2", "#c44d00", "#5b636b"
PLACE_STYLES = {  # colour, marker, words
    "final": (CONF, "o", "final layer"),
    "global": (ACCURACY, "s", "all layers"),
    "others": (INK, "^", "all but the final layer"),
}


def draw_decay_curve(search: DecaySearch, ax: Axes) -> None:
    """Mean confidence and accuracy on the validation nodes over the decay; where they meet there is no gap."""
    curve = [point for point in search.curve if point.decay > 0]  # zero has no place on a logarithmic axis
    decays = [point.decay for point in curve]
    ax.plot(decays, [point.scores.confidence for point in curve], "o-", color=CONF, label="mean confidence")
    ax.plot(decays, [point.scores.accuracy for point in curve], "s-", color=ACCURACY, label="accuracy")
    if search.decay > 0:
        ax.axvline(search.decay, color=INK, linestyle="--", linewidth=1, label=f"chosen: {search.decay:.2g}")
    for point in search.curve:
        if point.decay == 0:
            ax.axhline(
                point.scores.confidence, color=CONF, linewidth=0.8, linestyle=":", label="confidence without decay"
            )
    ax.set_xscale("log")
    ax.set_xlabel("weight decay of the final layer")
    ax.set_ylabel("validation nodes")
    ax.legend(frameon=False, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def draw_decay_sweep(rows: Sequence[dict[str, Any]], ax: Axes, measure: str = "ece") -> None:
    """One line for each place at which decay acts (`sweep_decay`), with an error bar of one sd where there is one."""
    metric = metric_of(measure)
    if not rows or measure not in rows[0]:
        has = ", ".join(rows[0]) if rows else "nothing"
        raise ValueError(f"measure={measure!r} is not in the rows; they have {has}")
    for which in dict.fromkeys(row["which"] for row in rows):
        points = sorted(
            (row for row in rows if row["which"] == which and row["decay"] > 0), key=lambda row: row["decay"]
        )
        colour, marker, words = PLACE_STYLES[which]
        ax.errorbar(
            [row["decay"] for row in points],
            [metric.scale * row[measure] for row in points],
            yerr=[metric.scale * row.get(f"{measure}_sd", 0.0) for row in points],
            color=colour,
            marker=marker,
            capsize=2,
            label=words,
        )
    ax.set_xscale("log")
    ax.set_xlabel("weight decay")
    ax.set_ylabel(metric.heading)
    ax.legend(frameon=False, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def save_decay_picture(result: DecaySearch | Sequence[dict[str, Any]], path: Any) -> None:
    """The search's curve, or a sweep's ECE and accuracy side by side, as a file (svg, png, pdf)."""
    from matplotlib.figure import Figure

    if isinstance(result, DecaySearch):
        figure = Figure(figsize=(5, 3.4), layout="constrained")
        draw_decay_curve(result, figure.subplots())
    else:
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        for ax, measure in zip(figure.subplots(1, 2), ("ece", "accuracy")):
            draw_decay_sweep(result, ax, measure)
    try:
        figure.savefig(path)
    except ValueError as error:
        raise ValueError(f"cannot draw {path}: {error}") from error
