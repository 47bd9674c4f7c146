"""The page of `graphcal count`: groups with their counts, intervals and the parts of their variance."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from graphcal.decisions.counts import Count
from graphcal.reports.html import with_policy

if TYPE_CHECKING:
    from graphcal.count_table import CountTable

SHOWN = 200  # groups; the others are in counts.parquet
STYLE = """
.counts td, .counts th { padding: .3rem .9rem .3rem 0; text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.counts td:first-child, .counts th:first-child { text-align: left; max-width: 16rem; overflow: hidden; text-overflow: ellipsis; }
.counts th:last-child { text-align: left; }
.counts thead th { color: var(--soft); font-weight: 400; } .scroll { overflow-x: auto; }
.counts svg { display: block; } .counts svg .range { stroke: var(--blue); stroke-width: 5; opacity: .35; }
.counts svg .mean { fill: var(--blue); } .counts svg .rail { stroke: var(--line); }
.parts { display: flex; width: 9rem; height: .7rem; } .parts i { display: block; height: 100%; }
.chance { background: var(--soft); } .neighbourhood { background: var(--orange); } .fit { background: var(--blue); }
.key { display: inline-block; width: .7rem; height: .7rem; margin: 0 .3rem 0 .8rem; } dt { font-weight: 600; }
dd { margin: 0 0 .6rem; max-width: 52rem; }
"""
PARTS = {
    "chance": "chance: rows differ one by one",
    "neighbourhood": "neighbourhood: rows of a group err together",
    "fit": "fit: few labels fit the probabilities",
}


def count_page(result: CountTable) -> str:
    """The page as one HTML file without requests."""
    css = (files("graphcal.reports") / "page.css").read_text(encoding="utf-8") + STYLE
    rest = len(result.counts) - SHOWN
    more = f'<p class="note">{rest:,} more groups are in counts.parquet.</p>' if rest > 0 else ""
    texts = "".join(f"<dt>{escape(head)}</dt><dd>{escape(text)}</dd>" for head, text in result.summary[1:])
    title = f"{escape(result.event[:1].upper() + result.event[1:])} by {escape(result.by)}"
    keys = "".join(f'<span class="key {name}"></span>{text}' for name, text in PARTS.items())
    return with_policy(f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title} · graphcal</title><style>{css}</style></head><body>
<header><p class="eyebrow">graphcal count</p><h1>{title}</h1><p class="verdict">{escape(result.sentence)}</p></header>
<main><section><h2>Groups</h2>
<p class="note">Expected number with its {100 * result.certainty:g} % interval, and what the uncertainty comes from:{keys}.</p>
<div class="scroll">{group_rows(result)}</div>{more}</section>
<section><h2>What this rests on</h2><dl>{texts}</dl></section></main></body></html>
""")


def group_rows(result: CountTable) -> str:
    """The table of groups."""
    shown = result.counts[:SHOWN]
    top = max(1, *(one.high for one in shown))
    heads = "".join(
        f"<th>{head}</th>"
        for head in (escape(result.by), "Rows", "Labelled", "Expected", "Interval", "", "Uncertainty")
    )
    body = "".join(
        f'<tr><td title="{escape(one.name)}">{escape(one.name)}</td><td>{one.nodes:,}</td><td>{one.labelled:,}</td>'
        f"<td>{one.expected:,.1f}</td><td>{one.low:,} to {one.high:,}</td><td>{_range(one, top)}</td><td>{_parts(one)}</td></tr>"
        for one in shown
    )
    return f'<table class="counts"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


def _range(one: Count, top: int) -> str:
    low, mean, high = (4 + 172 * value / top for value in (one.low, one.expected, one.high))
    return (
        f'<svg width="180" height="14" role="img" aria-label="{one}"><line class="rail" x1="4" x2="176" y1="7" y2="7"/>'
        f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="7" y2="7"/>'
        f'<circle class="mean" cx="{mean:.1f}" cy="7" r="4"/></svg>'
    )


def _parts(one: Count) -> str:
    values = {name: getattr(one, name) for name in PARTS}
    total = max(sum(values.values()), 1e-300)
    bars = "".join(f'<i class="{name}" style="width:{100 * value / total:.1f}%"></i>' for name, value in values.items())
    label = ", ".join(f"{name} {100 * value / total:.0f} %" for name, value in values.items())
    return f'<span class="parts" role="img" aria-label="{label}" title="{label}">{bars}</span>'
