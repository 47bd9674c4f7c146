"""The page of `graphcal alerts`: one sentence, precision and recall against the number of alerts, reliability, windows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from graphcal.decisions.alerts import Estimate, percent
from graphcal.decisions.bounds import share_interval

if TYPE_CHECKING:
    from graphcal.alert_table import Alerts

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 460, 300, 54, 40, 12, 26
STYLE = """
.alerts td, .alerts th { padding: .3rem .9rem .3rem 0; text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.alerts .mark { text-align: left; color: var(--soft); } .alerts tr.on td { font-weight: 700; }
.alerts thead th { color: var(--soft); font-weight: 400; } .scroll { overflow-x: auto; }
svg .line { fill: none; stroke-width: 2.5; } svg .blue { stroke: var(--blue); } svg .orange { stroke: var(--orange); }
svg .fill-blue { fill: var(--blue); opacity: .16; } svg .fill-orange { fill: var(--orange); opacity: .16; }
svg .here { stroke: var(--ink); stroke-dasharray: 3 3; } #cut { width: 100%; max-width: 40rem; } dt { font-weight: 600; }
dd { margin: 0 0 .6rem; max-width: 52rem; }
"""
SCRIPT = """
const rows = JSON.parse(document.getElementById('rows').textContent), cut = document.getElementById('cut');
function show() {
  const row = rows[cut.value];
  document.getElementById('answer').textContent = row.text;
  document.querySelectorAll('.here').forEach(line => { line.setAttribute('x1', row.x); line.setAttribute('x2', row.x); });
  document.querySelectorAll('#thresholds tr').forEach((tr, k) => tr.classList.toggle('on', k == cut.value));
}
cut.addEventListener('input', show); show();
"""


def alerts_page(result: Alerts) -> str:
    """The page as one HTML file without requests."""
    css = (files("graphcal.reports") / "page.css").read_text(encoding="utf-8") + STYLE
    name, table = escape(result.positive), result.thresholds
    at = [_log_x(row.rows, table[0].rows, table[-1].rows) for row in table]
    facts = [
        {
            "x": round(x, 1),
            "text": f"{row.rows:,} rows sent: {row.precision.text()} of them are {result.positive}, "
            f"{row.recall.text()} of {result.positive} is found, {row.missed:,.0f} missed.",
        }
        for row, x in zip(table, at)
    ]
    number = next(k for k, row in enumerate(table) if row.rows == result.threshold.rows)
    texts = "".join(f"<dt>{escape(head)}</dt><dd>{escape(text)}</dd>" for head, text in result.summary[1:])
    figures = curves(result, at) + reliability(result)
    data = json.dumps(facts).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Alerts for {name} · graphcal</title><style>{css}</style></head><body>
<header><p class="eyebrow">graphcal alerts</p><h1>Alerts for {name}</h1><p class="verdict">{escape(result.sentence)}</p></header>
<main><section><h2>How many rows to send</h2>
<label for="cut" class="unseen">Rows sent</label>
<input id="cut" type="range" min="0" max="{len(table) - 1}" value="{number}"><p id="answer" class="lead" aria-live="polite"></p>
<div class="pair">{figures}</div></section>
<section><h2>Thresholds</h2><div class="scroll">{threshold_rows(result)}</div></section>
{window_rows(result)}<section><h2>What this rests on</h2><dl>{texts}</dl></section></main>
<script type="application/json" id="rows">{data}</script><script>{SCRIPT}</script></body></html>
"""


def _log_x(value: float, low: float, high: float) -> float:
    share = math.log(value / low) / max(math.log(high / low), 1e-9)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def _frame(ticks: Sequence[tuple[float, str]], title: str) -> str:
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(s):.1f}" y2="{_y(s):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{_y(s) + 4:.1f}" text-anchor="end">{100 * s:.0f} %</text>'
        for s in (0, 0.25, 0.5, 0.75, 1)
    )
    marks = "".join(
        f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>' for x, text in ticks
    )
    return f'{lines}{marks}<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{title}</text>'


def curves(result: Alerts, at: Sequence[float]) -> str:
    """Precision and recall against the number of rows sent, with the bands of their intervals."""
    table = result.thresholds
    low, high = table[0].rows, table[-1].rows
    powers = [10**k for k in range(10) if low <= 10**k <= high]
    parts = [_frame([(_log_x(p, low, high), f"{p:,}") for p in powers], "rows sent")]
    for colour, shares in (("blue", [r.precision for r in table]), ("orange", [r.recall for r in table])):
        parts.append(_band(at, shares, colour))
        points = " ".join(f"{x:.1f},{_y(s.value):.1f}" for x, s in zip(at, shares))
        parts.append(f'<polyline class="line {colour}" points="{points}"/>')
    parts.append(f'<line class="here" x1="0" x2="0" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    name = escape(result.positive)
    caption = f"Blue: share of the rows sent that are {name}. Orange: share of all {name} that is found."
    return _figure("Precision and share found", caption, "".join(parts))


def _band(at: Sequence[float], shares: Sequence[Estimate], colour: str) -> str:
    if any(s.low is None or s.high is None for s in shares):
        return ""
    upper = [f"{x:.1f},{_y(s.high or 0):.1f}" for x, s in zip(at, shares)]
    lower = [f"{x:.1f},{_y(s.low or 0):.1f}" for x, s in zip(at, shares)]
    return f'<polygon class="fill-{colour}" points="{" ".join(upper + lower[::-1])}"/>'


def reliability(result: Alerts) -> str:
    """Share of positive labels against the calibrated probability, in bins of equal counts on a logarithmic axis."""
    rows = result.judged >= 0
    prob, hit = result.probability[rows], result.judged[rows] == 1
    order = np.argsort(prob)
    bins = [part for part in np.array_split(order, min(10, max(1, len(order) // 30))) if len(part)]
    means = [max(float(prob[part].mean()), 1e-4) for part in bins]
    low = 10 ** math.floor(math.log10(min(means)))

    def y(share: float) -> float:
        return _y(math.log(max(share, low) / low) / math.log(1 / low))

    ticks = [10.0**k for k in range(round(math.log10(low)), 1)]
    parts = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(t):.1f}" y2="{y(t):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y(t) + 4:.1f}" text-anchor="end">{100 * t:g} %</text>'
        f'<text x="{_log_x(t, low, 1):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{100 * t:g} %</text>'
        for t in ticks
    ]
    parts.append(f'<line class="diagonal" x1="{LEFT}" y1="{y(low):.1f}" x2="{WIDTH - RIGHT}" y2="{y(1):.1f}"/>')
    for part, mean in zip(bins, means):
        x, hits = _log_x(mean, low, 1), int(hit[part].sum())
        ends = share_interval(hits, len(part), result.closing.certainty)
        parts.append(f'<line class="whisk" x1="{x:.1f}" x2="{x:.1f}" y1="{y(ends[0]):.1f}" y2="{y(ends[1]):.1f}"/>')
        parts.append(f'<circle class="under" cx="{x:.1f}" cy="{y(hits / len(part)):.1f}" r="5"/>')
    name = escape(result.positive)
    title = f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">probability of {name}</text>'
    caption = "Labelled rows in groups: share that was seen against the probability. On the dashed line they agree."
    return _figure("Are the probabilities right?", caption, "".join(parts) + title)


def _figure(title: str, caption: str, drawing: str) -> str:
    return (
        f"<figure><figcaption>{title}<small>{caption}</small></figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{drawing}</svg></figure>'
    )


def threshold_rows(result: Alerts) -> str:
    """The table of thresholds."""
    costs = result.threshold.cost is not None
    heads = ["Rows sent", "Precision", "Found", "Missed", *["Cost"] * costs, ""]
    body = ""
    for row in result.thresholds:
        cells = [f"{row.rows:,}", row.precision.text(), row.recall.text(), f"{row.missed:,.0f}"]
        cells += [f"{row.cost:,.0f}"] if row.cost is not None else []
        marks = f'<td class="mark">{escape(", ".join(row.marks))}</td>'
        body += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + marks + "</tr>"
    head = "".join(f"<th>{title}</th>" for title in heads)
    return f'<table class="alerts"><thead><tr>{head}</tr></thead><tbody id="thresholds">{body}</tbody></table>'


def window_rows(result: Alerts) -> str:
    """The table of windows; empty without times."""
    if not result.windows:
        return ""
    body = ""
    for one in result.windows:
        e = one.expected
        count = f"{e.value:,.0f}" + ("" if e.low is None or e.high is None else f" ({e.low:,.0f} to {e.high:,.0f})")
        shares = ["-" if share is None else share.text() for share in (one.precision, one.recall)]
        cells = [escape(one.name), f"{one.rows:,}", f"{one.sent:,}", count, *shares]
        drift = f'<td class="mark">{"scores have changed" if one.drift else ""}</td>'
        body += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + drift + "</tr>"
    heads = "".join(f"<th>{t}</th>" for t in ("Window", "Rows", "Sent", "Expected", "Precision", "Found", ""))
    share = percent(result.closing.certainty)
    return (
        f'<section><h2>Over time</h2><p class="note">Expected {escape(result.positive)} with {share} % intervals.</p>'
        f'<div class="scroll"><table class="alerts"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></section>'
    )
