"""The page of `graphcal alerts`: one sentence, precision and recall against the number of alerts, reliability, windows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import astuple
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from graphcal.decisions.alerts import Estimate, percent, thousands
from graphcal.decisions.bounds import share_interval
from graphcal.text import class_title

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
svg .here { stroke: var(--ink); stroke-dasharray: 3 3; } .cut { display: flex; gap: .8rem; max-width: 44rem; }
#cut { flex: 1; min-width: 8rem; } #count { width: 7rem; font: inherit; color: inherit; background: transparent;
  border: 1px solid var(--soft); border-radius: 4px; padding: .2rem .4rem; } dt { font-weight: 600; }
dd { margin: 0 0 .6rem; max-width: 52rem; }
"""
SCRIPT = """
const {name, curve, left, width} = JSON.parse(document.getElementById('curve').textContent), last = curve.length - 1;
const [slider, box] = ['cut', 'count'].map(id => document.getElementById(id)), most = Math.log(curve[last][0]);
const percent = s => (100 * s).toFixed(s == 0 || s >= .095 ? 0 : s >= .001 ? 1 : 2);
const range = (a, b) => a === null ? '' : ` (${percent(a)} to ${percent(b)})`;
function show(n) {
  const k = Math.max(0, Math.min(curve.findLastIndex(row => row[0] <= n), last - 1)), a = curve[k], b = curve[k + 1] || a;
  const t = n == a[0] ? 0 : n == b[0] ? 1 : Math.log(n / a[0]) / Math.log(b[0] / a[0]);
  const at = j => a[j] + t * (b[j] - a[j]), ends = (j, f) => a[j] === null ? null : t == 0 ? a[j] : t == 1 ? b[j] : f(a[j], b[j]);
  const share = j => `${percent(at(j))} %${range(ends(j + 1, Math.min), ends(j + 2, Math.max))}`;
  document.getElementById('answer').textContent = `${n.toLocaleString('en')} rows sent: ${share(1)} of them are ${name}, ` +
    `${share(4)} of ${name} is found, ${Math.round(at(7)).toLocaleString('en')} missed.`;
  const x = left + width * Math.log(n) / Math.max(most, 1e-9);
  document.querySelectorAll('.here').forEach(line => { line.setAttribute('x1', x); line.setAttribute('x2', x); });
  document.querySelectorAll('#thresholds tr').forEach(tr => tr.classList.toggle('on', +tr.dataset.rows == n));
  slider.value = 1000 * Math.log(n) / Math.max(most, 1e-9); box.value = n;
}
slider.addEventListener('input', () => show(Math.max(1, Math.round(Math.exp(most * slider.value / 1000)))));
box.addEventListener('change', () => show(Math.min(Math.max(1, Math.round(box.value) || 1), curve[last][0])));
show(+box.value);
"""


def alerts_page(result: Alerts) -> str:
    """The page as one HTML file without requests."""
    css = (files("graphcal.reports") / "page.css").read_text(encoding="utf-8") + STYLE
    title, most = class_title(result.positive), result.curve[-1].rows
    name = escape(title)
    texts = "".join(f"<dt>{escape(head)}</dt><dd>{escape(text)}</dd>" for head, text in result.summary[1:])
    points = [
        (row.rows, *map(_short, (*astuple(row.precision), *astuple(row.recall), row.missed))) for row in result.curve
    ]
    facts = {"name": title, "curve": points, "left": LEFT, "width": WIDTH - LEFT - RIGHT}
    data = json.dumps(facts, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Alerts for {name} · graphcal</title><style>{css}</style></head><body>
<header><p class="eyebrow">graphcal alerts</p><h1>Alerts for {name}</h1><p class="verdict">{escape(result.sentence)}</p></header>
<main><section><h2>How many rows to send</h2>
<p class="cut"><input id="count" type="number" min="1" max="{most}" value="{result.threshold.rows}" aria-label="Rows sent">
<input id="cut" type="range" min="0" max="1000" aria-label="Rows sent"></p><p id="answer" class="lead" aria-live="polite"></p>
<div class="pair">{curves(result) + reliability(result)}</div></section>
<section><h2>Thresholds</h2><div class="scroll">{threshold_rows(result)}</div></section>
{window_rows(result)}<section><h2>What this rests on</h2><dl>{texts}</dl></section></main>
<script type="application/json" id="curve">{data}</script><script>{SCRIPT}</script></body></html>
"""


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


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


def curves(result: Alerts) -> str:
    """Precision and recall against the number of rows sent, with the bands of their intervals."""
    curve, most = result.curve, result.curve[-1].rows
    at = [_log_x(row.rows, 1, most) for row in curve]
    ticks = [(_log_x(10**k, 1, most), thousands(10**k)) for k in range(10) if 10**k <= most]
    parts = [_frame(ticks, "rows sent")]
    for colour, shares in (("blue", [r.precision for r in curve]), ("orange", [r.recall for r in curve])):
        parts.append(_band(at, shares, colour))
        points = " ".join(f"{x:.1f},{_y(s.value):.1f}" for x, s in zip(at, shares))
        parts.append(f'<polyline class="line {colour}" points="{points}"/>')
    parts.append(f'<line class="here" x1="0" x2="0" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    name = escape(class_title(result.positive))
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
    name = escape(class_title(result.positive))
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
        body += f'<tr data-rows="{row.rows}">' + "".join(f"<td>{cell}</td>" for cell in cells) + marks + "</tr>"
    head = "".join(f"<th>{title}</th>" for title in heads)
    return f'<table class="alerts"><thead><tr>{head}</tr></thead><tbody id="thresholds">{body}</tbody></table>'


def window_rows(result: Alerts) -> str:
    """The table of windows; empty without times."""
    if not result.windows:
        return ""
    body = ""
    for one in result.windows:
        shares = ["-" if share is None else share.text() for share in (one.precision, one.recall)]
        cells = [escape(one.name), f"{one.rows:,}", f"{one.sent:,}", one.expected.count_text(), *shares]
        drift = f'<td class="mark">{"scores have changed" if one.drift else ""}</td>'
        body += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + drift + "</tr>"
    heads = "".join(f"<th>{t}</th>" for t in ("Window", "Rows", "Sent", "Expected", "Precision", "Found", ""))
    share, name = percent(result.closing.certainty), escape(class_title(result.positive))
    return (
        f'<section><h2>Over time</h2><p class="note">Expected {name} with {share} % intervals.</p>'
        f'<div class="scroll"><table class="alerts"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></section>'
    )
