"""Counts and short summaries as people read them, for terminals and notebooks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

Rows = Sequence[tuple[str, str]]


def plural(count: float, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "row"), plural(1200, "row"), plural(2, "class")
    ('1 row', '1,200 rows', '2 classes')
    """
    ending = "" if round(count) == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,.0f} {noun}{ending}"


def class_title(name: str) -> str:
    """The name of a class inside a sentence.

    >>> class_title("1"), class_title("True"), class_title("fraud")
    ('class 1', 'class True', 'fraud')
    """
    return f"class {name}" if name.isdigit() or name in ("True", "False") else name


def sentences(notes: Sequence[str]) -> tuple[str, ...]:
    """Notes with a capital letter and a full stop.

    >>> sentences(["2 rows repeat an id", "Is this right?"])
    ('2 rows repeat an id.', 'Is this right?')
    """
    return tuple(f"{note[0].upper()}{note[1:]}{'' if note[-1] in '.?' else '.'}" for note in notes)


def summary_text(rows: Rows, width: int = 80) -> str:
    """One line per row, headings in a column; long texts are wrapped under their own column.

    >>> print(summary_text([("Decided", "90 of 500 nodes"), ("Promise", "at most 5 % errors")]))
    Decided:  90 of 500 nodes
    Promise:  at most 5 % errors
    """
    indent = max(len(heading) for heading, _ in rows) + 3
    return "\n".join(
        textwrap.fill(
            text.replace(" %", "\N{NO-BREAK SPACE}%"),
            max(width, indent + 20),
            initial_indent=f"{heading}:".ljust(indent),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        ).replace("\N{NO-BREAK SPACE}", " ")
        for heading, text in rows
    )


def summary_html(rows: Rows) -> str:
    """The same rows as a table, escaped."""
    body = "".join(f"<tr><th>{escape(heading)}</th><td>{escape(text)}</td></tr>" for heading, text in rows)
    return f'<table style="text-align:left">{body}</table>'


class Summarized:
    """Base of results with a ``summary``: ``print`` and a notebook cell show it."""

    @property
    def summary(self) -> Rows:
        """Headings and texts, the most useful first."""
        raise NotImplementedError

    def __str__(self) -> str:
        return summary_text(self.summary)

    def _repr_html_(self) -> str:
        return summary_html(self.summary)
