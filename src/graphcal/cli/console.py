"""Print text from files and users as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def plain_console(stderr: bool = False, soft_wrap: bool = False) -> Console:
    """Make a console that reads no markup, emoji codes or numbers in what it prints, in tables neither.

    An id such as ``[/x]`` is printed as ``[/x]``. Set styles by ``style=`` or a `rich.text.Text`.
    """
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)
