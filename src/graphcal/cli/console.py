"""Print text from files and users as it is."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

import typer

from graphcal.text import Rows, summary_text

if TYPE_CHECKING:
    from rich.console import Console

QUIET: ContextVar[bool] = ContextVar("quiet", default=False)  # set by `graphcal --quiet`: errors and JSON only


def plain_console(stderr: bool = False, soft_wrap: bool = False) -> Console:
    """Make a console that reads no markup, emoji codes or numbers in what it prints, in tables neither.

    An id such as ``[/x]`` is printed as ``[/x]``. Set styles by ``style=`` or a `rich.text.Text`.
    """
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False, quiet=QUIET.get())


def print_line(text: str, stderr: bool = False) -> None:
    """Print one line unless the command is quiet."""
    if not QUIET.get():
        typer.echo(text, err=stderr)


def print_summary(console: Console, rows: Rows) -> None:
    """Print one line per idea, as wide as the terminal, the first one in bold."""
    for k, line in enumerate(summary_text(rows, min(console.width, 110)).split("\n")):
        console.print(line, style=None if k else "bold", soft_wrap=True)
