"""Draw two schematics of SCAR: what its two levels do to logits, and what happens to one node.

    python -m graphcal.lab.paper.schematics            # docs/images/scar-method.svg, docs/images/scar-node-level.svg

Both are small exact pictures, not cartoons: the points are representations h in the plane, the columns of a weight matrix W are
the class centroids, the regions are softmax(W^T h), and every move is Eq. 10 with the weight that is written beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from graphcal.files import write_atomically
from graphcal.lab.plots.curves import STYLE
from graphcal.plots import svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


CLASSES = ("#0072b2", "#d55e00", "#009e73")
INK, FAINT = "#222222", "#777777"
CENTROIDS = np.array(
    [[0.95, 0.15], [-0.75, 0.75], [-0.35, -0.95]]
)  # (C, 2) columns of W, as trained with the usual decay
NODES = np.array(
    [
        [0.62, 0.42],
        [0.5, -0.28],
        [1.05, 0.55],
        [-0.4, 0.25],
        [-0.75, 0.2],
        [-0.15, 0.75],
        [-0.5, -0.45],
        [0.1, -0.7],
        [-0.2, -0.3],
    ]
)


def softmax(z: np.ndarray) -> np.ndarray:
    weight = np.exp(z - z.max(-1, keepdims=True))
    return np.asarray(weight / weight.sum(-1, keepdims=True))


def confidence(h: np.ndarray, centroids: np.ndarray, sharpness: float = 2.2) -> np.ndarray:
    """max softmax(W^T h), in units that make the pictures legible."""
    return np.asarray(softmax(sharpness * h @ centroids.T).max(-1))


def pulled(h: np.ndarray, centroids: np.ndarray, weight: float) -> np.ndarray:
    """Eq. 9: w W[:, y_hat] + (1 - w) h."""
    return np.asarray(weight * centroids[(h @ centroids.T).argmax(-1)] + (1 - weight) * h)


def _field(ax: Axes, centroids: np.ndarray) -> None:
    """Confidence over the plane, light where it is low, in the colour of the predicted class."""
    from matplotlib.colors import to_rgb

    side = np.linspace(-1.65, 1.65, 260)
    grid = np.stack(np.meshgrid(side, side), -1)  # (260, 260, 2)
    pred = (grid @ centroids.T).argmax(-1)
    strength = ((confidence(grid, centroids) - 1 / 3) / (2 / 3))[..., None]
    colours = np.array([to_rgb(c) for c in CLASSES])[pred]
    ax.imshow(
        1 - 0.62 * strength * (1 - colours), extent=(-1.65, 1.65, -1.65, 1.65), origin="lower", interpolation="bilinear"
    )


def _panel(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontweight="bold")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)
    ax.set_xlim(-1.65, 1.65)
    ax.set_ylim(-1.65, 1.65)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(FAINT)


def _points(ax: Axes, h: np.ndarray, centroids: np.ndarray, hollow: bool = False) -> None:
    pred = (h @ centroids.T).argmax(-1)
    for c, marker in enumerate("osD"):
        at = h[pred == c]
        face = "none" if hollow else "white"
        ax.plot(
            at[:, 0],
            at[:, 1],
            marker,
            markersize=5,
            markerfacecolor=face,
            markeredgecolor=CLASSES[c],
            markeredgewidth=1.2,
        )


def _stars(ax: Axes, centroids: np.ndarray) -> None:
    for c, (x, y) in enumerate(centroids):
        ax.plot([0, x], [0, y], color=CLASSES[c], linewidth=0.8, alpha=0.7)
        ax.plot([x], [y], "*", markersize=13, color=CLASSES[c], markeredgecolor="white", markeredgewidth=0.8)


def _arrow(ax: Axes, start: Any, end: Any, colour: str = INK) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.1, "shrinkA": 3, "shrinkB": 1, "mutation_scale": 8}
    ax.annotate("", xy=tuple(end), xytext=tuple(start), arrowprops=style)


def draw_method() -> Figure:
    """The class-centroid level and the node level, one after the other, and the mean confidence after each."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    far, weight = 1.45 * CENTROIDS, 0.35
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 3.15), layout="constrained")
        axes = figure.subplots(1, 3)
        steps = (
            (axes[0], "a  usual decay", CENTROIDS, NODES),
            (axes[1], "b  class-centroid level", far, NODES),
            (axes[2], "c  node level", far, pulled(NODES, far, weight)),
        )
        for ax, title, centroids, h in steps:
            _field(ax, centroids)
            _panel(ax, title)
            _stars(ax, centroids)
            _points(ax, h, centroids)
            words = f"mean confidence {confidence(h, centroids).mean():.2f}"
            ax.text(
                0.97, 0.03, words, transform=ax.transAxes, ha="right", va="bottom", fontsize=7.5,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
            )  # fmt: skip
        for near, away in zip(CENTROIDS, far):
            _arrow(axes[1], near, 0.97 * away)
        for start, end in zip(NODES, pulled(NODES, far, weight)):
            _arrow(axes[2], start, end)
        axes[0].set_xlabel("columns of W (stars) are class centroids;\nother points are nodes, coloured by prediction")
        axes[1].set_xlabel("a smaller decay λ of the final layer\nmakes W larger: centroids move apart")
        axes[2].set_xlabel(
            "each node moves a share w towards the centroid\nof its predicted class: h ← w W[:, ŷ] + (1 − w) h"
        )
    return figure


def draw_node_level() -> Figure:
    """One node: in the space of representations, and as logits, where the same move needs W^T W alone."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    w, h = 0.4, np.array([0.5, 0.45])
    centroids = 1.25 * CENTROIDS
    gram = centroids @ centroids.T
    z, pred = centroids @ h, int((centroids @ h).argmax())
    t = gram[:, pred]
    moved = z + w * (t - z)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 2.9), layout="constrained")
        left, middle, right = figure.subplots(1, 3, width_ratios=[1.05, 1.15, 1.0])
        _field(left, centroids)
        _panel(left, "a  representations")
        _stars(left, centroids)
        end = pulled(h[None], centroids, w)[0]
        _points(left, h[None], centroids, hollow=True)
        _points(left, end[None], centroids)
        _arrow(left, h, end)
        left.annotate("h", h, xytext=(-9, 4), textcoords="offset points")
        left.annotate("h′", end, xytext=(-3, 7), textcoords="offset points")
        left.annotate("W[:, ŷ]", centroids[pred], xytext=(-14, -13), textcoords="offset points", color=CLASSES[pred])
        left.set_xlabel("h′ = w W[:, ŷ] + (1 − w) h")
        _bars(middle, z, t, moved)
        _confidences(right, softmax(2.2 * z), softmax(2.2 * moved))
    return figure


def _bars(ax: Axes, z: np.ndarray, t: np.ndarray, moved: np.ndarray) -> None:
    """Logits, the centroid's logits, and the point between them."""
    rows = np.arange(3)[::-1]
    for row, c in zip(rows, range(3)):
        ax.hlines(row, min(z[c], t[c]), max(z[c], t[c]), color=CLASSES[c], linewidth=2, alpha=0.35)
        ax.plot([t[c]], [row], "*", markersize=11, color=CLASSES[c])
        ax.plot(
            [z[c]], [row], "o", markersize=6, markerfacecolor="white", markeredgecolor=CLASSES[c], markeredgewidth=1.3
        )
        ax.plot([moved[c]], [row], "o", markersize=6, color=CLASSES[c])
        _arrow(ax, (z[c], row + 0.22), (moved[c], row + 0.22), CLASSES[c])
    for value, word, shift in ((z[0], "z", -8), (moved[0], "z′", -2), (t[0], "t", 2)):
        ax.annotate(word, (value, 2), xytext=(shift, -14), textcoords="offset points", fontsize=8)
    ax.axvline(0, color=FAINT, linewidth=0.6)
    ax.set_yticks(rows, [f"class {k}" for k in "ABC"])
    ax.set_ylim(-0.6, 2.6)
    ax.set_title("b  logits", loc="left", fontweight="bold")
    ax.set_xlabel("z′ = z + w (t − z),   t = G[:, ŷ] + b,   G = WᵀW")


def _confidences(ax: Axes, before: np.ndarray, after: np.ndarray) -> None:
    rows = np.arange(3)[::-1]
    ax.barh(rows + 0.18, before, 0.32, color="white", edgecolor=CLASSES, linewidth=1.2)
    ax.barh(rows - 0.18, after, 0.32, color=CLASSES)
    for row, b, a in zip(rows, before, after):
        ax.text(b + 0.02, row + 0.18, f"{b:.2f}", va="center", fontsize=7)
        ax.text(a + 0.02, row - 0.18, f"{a:.2f}", va="center", fontsize=7)
    ax.set_yticks(rows, [f"class {k}" for k in "ABC"])
    ax.set_ylim(-0.6, 2.6)
    ax.set_xlim(0, 1.1)
    ax.set_title("c  probabilities", loc="left", fontweight="bold")
    ax.set_xlabel("hollow: before; filled: after")


def schematics() -> dict[str, str]:
    """File name -> SVG."""
    return {"scar-method.svg": svg(draw_method()), "scar-node-level.svg": svg(draw_node_level())}


def main(
    images: Path = typer.Argument(Path("docs/images"), help="Where the pictures go."),  # noqa: B008
) -> None:
    for name, text in schematics().items():
        print(write_atomically(images / name, text))


if __name__ == "__main__":
    typer.run(main)
