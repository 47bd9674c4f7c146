"""A figure with panels to draw on, and the figure as text."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

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
