"""``graphcal methods``: the calibrators, one line each, or the card of one."""

from __future__ import annotations

import json as json_format
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from graphcal.cli.completion import complete_calibrator, read_cards
from graphcal.cli.console import plain_console
from graphcal.plugins import announced

if TYPE_CHECKING:
    from graphcal.core import Recipe
    from graphcal.methods import Card


def methods(
    name: str = typer.Argument(
        "", autocompletion=complete_calibrator, help="A calibrator, for its card; without it all are listed."
    ),
    everything: bool = typer.Option(
        False, "--all", metavar="", help="Include the variants that only the reproduction of the SCAR paper needs."
    ),
    json: bool = typer.Option(False, "--json", metavar="", help="Print the cards as JSON."),
    bibtex: bool = typer.Option(False, "--bibtex", metavar="", help="Print the papers as BibTeX."),
) -> None:
    """List calibrators: what they do, need and cost.

    graphcal methods            # all of them, a line each
    graphcal methods gats       # the card of one
    graphcal methods --bibtex   # the papers to cite
    """
    cards = _all_cards(everything) if not name else {name: _card(name)}
    if bibtex:
        typer.echo(_bibtex(cards))
    elif json:
        typer.echo(json_format.dumps({"schema": 1, **(cards[name] if name else {"methods": cards})}, indent=2))
    elif name:
        _print_card(name, cards[name])
    else:
        _print_table(cards, num_builtin=len(read_cards()))


REFERENCES = ("methods/references.bib", "lab/baselines/references.bib")
REPRODUCTION = "graphcal.lab.paper."  # its variants are shown by --all


def _all_cards(everything: bool) -> dict[str, dict[str, Any]]:
    builtin = read_cards()
    others = {
        key: point.module
        for key, point in announced("calibrator").items()
        if key not in builtin and (everything or not point.module.startswith(REPRODUCTION))
    }
    return {**builtin, **{key: {"module": module} for key, module in sorted(others.items())}}


def _bibtex(cards: dict[str, dict[str, Any]]) -> str:
    """Entries of the papers behind these calibrators: those that name one of them under ``keywords``."""
    files = [Path(__file__).parents[1] / name for name in REFERENCES]
    entries = [entry.strip() for f in files if f.exists() for entry in f.read_text("utf-8").split("\n\n")]
    return "\n\n".join(entry for entry in entries if cards.keys() & _methods_of(entry))


def _methods_of(entry: str) -> set[str]:
    keywords = entry.partition("keywords = {")[2].partition("}")[0]
    return {name.strip() for name in keywords.split(",")}


def _card(name: str) -> dict[str, Any]:
    builtin = read_cards()
    if name in builtin:
        return builtin[name]
    from graphcal.methods import CALIBRATORS

    return described(CALIBRATORS[name])


def described(recipe: type[Recipe]) -> dict[str, Any]:
    """A card as plain values; a plug-in without one is described by its docstring."""
    from graphcal.methods.card import idea_of

    card: Card | None = getattr(recipe, "card", None)
    defaults = {f.name: f.default for f in fields(cast(Any, recipe))}
    settings = {key: value for key, value in defaults.items() if isinstance(value, str | int | float | tuple | None)}
    details = {"idea": idea_of(recipe), "settings": settings, "module": recipe.__module__}
    if card is None:
        return details
    shown = {f.name: getattr(card, f.name) for f in fields(card)}
    return {**shown, "needs": card.needs, **details}


def _print_card(name: str, card: dict[str, Any]) -> None:
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
    plain_console().print(table)


def _print_table(cards: dict[str, dict[str, Any]], num_builtin: int) -> None:
    """Our own calibrators, and below them the names of plug-ins."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for heading in ("name", "keeps predictions", "needs", "idea"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for name, card in list(cards.items())[:num_builtin]:
        table.add_row(name, "yes" if card["keeps_predictions"] else "no", card["needs"], card["idea"])
    console = plain_console()
    console.print(table)
    others = list(cards)[num_builtin:]
    if others:
        console.print(f"By plug-in: {', '.join(others)}. `graphcal methods NAME` shows the card of one.")
