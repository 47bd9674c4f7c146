"""Draw an explanation: the terms that add up to the lead of the predicted class, as a chart or as HTML.

`draw_explanation` draws on the axis it is given; `explain_html` is the same picture as a fragment of HTML with inline SVG that
takes its colours from the page around it. Both show `Explanation.lead_terms`, which add up to the lead.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from graphcal.lab.explanation import Explanation, Push

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


ROW, LABEL, WIDTH = 26, 250, 640  # pixels of the drawing; it scales with the page


def explain_html(explanation: Explanation) -> str:
    """A panel for a page: the sentence, the waterfall, the training nodes that push most."""
    rows = bars(explanation)
    low = min(0.0, *(min(start, start + length) for _, start, length in rows))
    high = max(0.0, *(max(start, start + length) for _, start, length in rows))
    scale = (WIDTH - LABEL - 60) / max(high - low, 1e-12)

    def x(value: float) -> float:
        return LABEL + (value - low) * scale

    drawn = []
    for row, (name, start, length) in enumerate(rows):
        y, left, right = row * ROW + 4, x(min(start, start + length)), x(max(start, start + length))
        colour = f"var(--{'soft' if name.startswith('lead') else 'blue' if length >= 0 else 'orange'}, {_colour(name, length)})"
        drawn.append(
            f'<text x="{LABEL - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{left:.1f}" y="{y}" width="{max(right - left, 1):.1f}" height="{ROW - 8}" rx="2" style="fill:{colour}"/>'
            f'<text x="{right + 5:.1f}" y="{y + 13}">{length:+.2f}</text>'
        )
    height = len(rows) * ROW + 4
    predicted, second = _named(explanation)
    title = escape(f"What carries the lead of class {predicted} over class {second}, in logits")
    return (
        f'<div class="explanation"><p>{escape(explanation.sentence)}</p>'
        f'<figure><figcaption>{title}</figcaption><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">'
        f'<line class="axis" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="0" y2="{height}" style="stroke:currentColor;opacity:.3"/>'
        f"{''.join(drawn)}</svg></figure>{_pushes_table(explanation)}"
        f"<p><small>{explanation.unexplained:.1%} of the node's logits is not explained by training nodes; coefficients were "
        f"corrected by {explanation.correction:.0%} of the paper's.</small></p></div>"
    )


def _pushes_table(explanation: Explanation) -> str:
    rows = "".join(
        _row(push, explanation.class_names) for push in (*explanation.pushes_for, *explanation.pushes_against)
    )
    head = "".join(f"<th>{name}</th>" for name in ("training node", "class", "push", "similarity", "steps away"))
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(push: Push, classes: tuple[str, ...]) -> str:
    hops = "no path" if push.hops < 0 else str(push.hops)
    cells = (escape(push.name), escape(classes[push.label]), f"{push.push:+.3f}", f"{push.cosine:.2f}", hops)
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _named(explanation: Explanation) -> tuple[str, str]:
    """The predicted class and the runner-up."""
    return explanation.class_names[explanation.pred], explanation.class_names[explanation.runner_up]
