"""Pictures of calibration, drawn on an axis that is given: `draw_*(what, ax)`. Nothing is shown, saved or set globally.

Colours are Okabe and Ito's blue and vermillion (safe for colour-blind readers) and each meaning also has a marker, a
hatch or a line style, so the pictures survive grey print. Ink follows the axis, so a dark style stays readable:
    with plt.style.context("dark_background"): draw_reliability(rel, ax)
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from graphcal.metrics.bins import BINS, Reliability, reliability
from graphcal.metrics.diagram import accuracy_interval, consistency_band
from graphcal.metrics.scores import ece_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure

HEIGHT = 3.2  # inches per panel


def panels(rows: int, columns: int, width: float = HEIGHT) -> tuple[Figure, Any]:
    """A figure without a window, and its axes as an array (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, HEIGHT * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def blank(width: float, height: float) -> Figure:
    """A figure without a window of this size in inches, and nothing on it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def styled(style: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Figures that are made inside have this style."""
    import matplotlib as mpl

    settings: Any = dict(style)
    return mpl.rc_context(settings)


def svg(figure: Figure) -> str:
    """The figure as SVG: the same bytes for the same figure, letters kept as text."""
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "graphcal", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    return text.getvalue()


BLUE, VERMILLION = "#0072b2", "#d55e00"
FEW = 5  # nodes of a bin that is drawn hollow


def ink(ax: Axes) -> str:
    """The colour of the axis's own text: black on light styles, white on dark ones."""
    return str(ax.xaxis.label.get_color())


def frame(ax: Axes, x: str, y: str) -> None:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def draw_reliability(rel: Reliability, ax: Axes, label: str | None = None) -> None:
    """Accuracy against confidence, with the consistency band, each bin's interval, its gap and its share of nodes."""
    full = (rel.count > 0).numpy()
    conf, acc, edges = rel.conf.numpy()[full], rel.accuracy.numpy()[full], rel.edges.numpy()
    low, high = (t.numpy()[full] for t in consistency_band(rel))
    acc_low, acc_high = (t.numpy()[full] for t in accuracy_interval(rel))
    left, width = edges[:-1][full], np.diff(edges)[full]
    ax.bar(
        left, high - low, width, low, align="edge", color=BLUE, alpha=0.18, linewidth=0, label="calibrated: 95 % band"
    )
    ax.plot([0, 1], [0, 1], "--", color=ink(ax), linewidth=1, alpha=0.6)
    ax.vlines(
        conf, conf, acc, color=[BLUE if a >= c else VERMILLION for a, c in zip(acc, conf)], linewidth=2, alpha=0.6
    )
    ax.vlines(conf, acc_low, acc_high, color=ink(ax), linewidth=0.8, alpha=0.5, label="bin: 95 % interval")
    for side, colour, marker, name in (
        (acc >= conf, BLUE, "o", "under-confident"),
        (acc < conf, VERMILLION, "s", "over-confident"),
    ):
        many = rel.count.numpy()[full] >= FEW
        ax.plot(conf[side & many], acc[side & many], marker, color=colour, markersize=5, label=name)
        few = side & ~many  # hollow: hardly anything is known of them
        ax.plot(conf[few], acc[few], marker, color=colour, markersize=4, markerfacecolor="none", alpha=0.7)
    share = (rel.count / rel.count.sum()).numpy()
    ax.bar(edges[:-1], 0.12 * share / share.max(), np.diff(edges), align="edge", color=ink(ax), alpha=0.25, linewidth=0)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
    ax.set_title(f"{label + ': ' if label else ''}ECE {100 * ece_of(rel):.1f} %", fontsize="medium")
    frame(ax, "confidence", "accuracy")


def plot_reliability(log_probs: Tensor, y: Tensor, bins: int = BINS, label: str | None = None) -> Figure:
    """The reliability diagram in one line: a figure that a notebook shows and ``savefig`` writes.

    >>> import torch, graphcal
    >>> log_probs, y = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]]).log(), torch.tensor([0, 1, 1])
    >>> type(graphcal.plots.plot_reliability(log_probs, y)).__name__
    'Figure'
    """
    figure, axes = panels(1, 1)
    draw_reliability(reliability(log_probs, y, bins), axes[0, 0], label)
    return figure


def draw_confidences(rel: Reliability, ax: Axes) -> None:
    """Draw a histogram of confidence, wrong predictions (hatched) below right ones."""
    share = rel.nodes
    wrong, right = ((rel.count - rel.right_sum) / share).numpy(), (rel.right_sum / share).numpy()
    left, width = rel.edges[:-1].numpy(), rel.edges.diff().numpy()
    ax.bar(
        left, wrong, width, align="edge", color=VERMILLION, hatch="///", edgecolor=ink(ax), linewidth=0.3, label="wrong"
    )
    ax.bar(left, right, width, wrong, align="edge", color=BLUE, edgecolor=ink(ax), linewidth=0.3, label="right")
    ax.set_xlim(0, 1)
    ax.legend(frameon=False)
    frame(ax, "confidence", "share of nodes")


def draw_floor(names: Sequence[str], ece: Sequence[float], floor: Sequence[float], ax: Axes) -> None:
    """ECE of each method as a bar, the floor of a perfect model as a tick across it."""
    rows = np.arange(len(names))[::-1]
    ax.barh(rows, [100 * e for e in ece], height=0.5, color=BLUE, alpha=0.8, label="ECE")
    ax.vlines([100 * f for f in floor], rows - 0.35, rows + 0.35, color=ink(ax), linewidth=2, label="floor")
    ax.set_yticks(rows, list(names))
    ax.legend(frameon=False)
    frame(ax, "ECE, %", "")
