"""Pictures, drawn on an axis that is given. The only part that knows matplotlib. A file draws what the part of its name computes.

measurement   reliability, before and after, confidences, slices, floor, sweeps, runtime
ranks         many methods on many tasks: mean ranks with the critical difference
explanation   what a node's confidence is made of
tuning        the search for the decay
figure        a figure of panels, and its SVG
"""

from graphcal.plots.measurement import (
    draw_before_after,
    draw_confidences,
    draw_floor,
    draw_reliability,
    draw_slices,
    plot_reliability,
)

__all__ = [
    "draw_before_after",
    "draw_confidences",
    "draw_floor",
    "draw_reliability",
    "draw_slices",
    "plot_reliability",
]
