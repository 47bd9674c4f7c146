"""``graphcal methods``: the calibrators, one line each, or the card of one."""

from __future__ import annotations

import json as json_format
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import typer

if TYPE_CHECKING:
    from graphcal.core import Recipe
    from graphcal.methods import Card


def methods(
    name: str = typer.Argument("", help="A calibrator, for its card; without it all are listed."),
    json: bool = typer.Option(False, "--json", help="Print the cards as JSON."),
) -> None:
    """Say what each calibrator does, what it needs and what it costs.

    graphcal methods            # all of them, a line each
    graphcal methods gats       # the card of one
    """
    from graphcal.methods import CALIBRATORS

    cards = {key: _described(CALIBRATORS[key]) for key in ([name] if name else CALIBRATORS)}
    if json:
        typer.echo(json_format.dumps(cards[name] if name else cards, indent=2))
    elif name:
        _print_card(name, cards[name])
    else:
        _print_table(cards, own=len(CALIBRATORS.own))


def _described(recipe: type[Recipe]) -> dict[str, Any]:
    """A card as plain values; a plug-in without one is described by its docstring."""
    from graphcal.methods.card import idea_of

    card: Card | None = getattr(recipe, "card", None)
    defaults = {f.name: f.default for f in fields(cast(Any, recipe))}
    settings = {key: value for key, value in defaults.items() if isinstance(value, str | int | float | tuple | None)}
    known = {"idea": idea_of(recipe), "settings": settings, "module": recipe.__module__}
    if card is None:
        return known
    shown = {f.name: getattr(card, f.name) for f in fields(card)}
    return {**shown, "needs": card.needs, **known}


def _print_card(name: str, card: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{name}: {card.get('title', name)}", show_header=False, box=None, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    kept = {True: "yes", False: "no", None: "not said"}[card.get("keeps_predictions")]
    rows = {
        "idea": card["idea"],
        "formula": card.get("formula"),
        "needs": card.get("needs"),
        "labels": card.get("labels"),
        "keeps predictions": kept,
        "parameters": card.get("parameters"),
        "cost": card.get("cost"),
        "paper": card.get("paper"),
        "departures": card.get("departures"),
        "settings": ", ".join(f"{key}={value!r}" for key, value in card["settings"].items()) or "none",
        "module": card["module"],
    }
    for key, value in rows.items():
        if value is not None:
            table.add_row(key, str(value))
    Console(highlight=False, markup=False).print(table)


def _print_table(cards: dict[str, dict[str, Any]], own: int) -> None:
    """Our own calibrators, and below a line those of plug-ins."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for heading in ("name", "keeps predictions", "needs", "idea"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for place, (name, card) in enumerate(cards.items()):
        if place == own:
            table.add_section()
        kept = {True: "yes", False: "no", None: "?"}[card.get("keeps_predictions")]
        table.add_row(name, kept, card.get("needs", "?"), card["idea"])
    Console(highlight=False, markup=False).print(table)
