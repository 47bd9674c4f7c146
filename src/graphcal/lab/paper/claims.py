"""The paper's sentences that state a result, each with our figure, a verdict that follows from it, and the command.

    python -m graphcal.lab.paper.claims            # write results/claims.md
    python -m graphcal.lab.paper.claims --check    # fail when it is not what the run files give

A claim is a function of the committed run files: it returns the figure as it is printed and the verdict. Where a verdict hangs on
a number, the number decides it here, not the writer. `claims_on_tables`, `claims_on_appendix` and
`claims_on_figures` hold the claims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import typer

from graphcal.files import read_toml
from graphcal.lab.bench.document import Block, Grid, Heading, cells, markdown, paragraph
from graphcal.lab.paper.run_files import RunFiles, write_or_check

HOLDS, PART, NOT, UNTESTED = "holds", "holds in part", "does not hold", "cannot be tested"
VERDICTS = (HOLDS, PART, NOT, UNTESTED)

Finding = tuple[str, str]  # our figure, the verdict


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper and what came of it."""

    where: str  # section, table or figure
    says: str
    command: str
    find: Callable[[RunFiles], Finding]


def claim(where: str, says: str, command: str) -> Callable[[Callable[[RunFiles], Finding]], Claim]:
    return lambda find: Claim(where, says, command, find)


def share_verdict(holding: int, of: int) -> str:
    """All, some, or none."""
    return HOLDS if holding == of else NOT if holding == 0 else PART


def printed_means(table: str, column: str, graphs: Sequence[str] = ()) -> np.ndarray:
    """A column of a table of the paper, as printed, in the order of its rows; rows that lack it are left out."""
    with resources.as_file(resources.files("graphcal.lab.paper") / "published.toml") as path:
        tree = read_toml(path)[table]
    rows = [row for graph, rates in tree.items() if not graphs or graph in graphs for row in rates.values()]
    return np.array([row[column][0] for row in rows if column in row])


def all_claims() -> list[Claim]:
    """In the order of the paper."""
    from graphcal.lab.paper import claims_on_appendix, claims_on_figures, claims_on_tables

    modules = (claims_on_tables, claims_on_appendix, claims_on_figures)
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Claim)]
    order = (
        "Abstract",
        "Sec. 3",
        "Fig. 2",
        "Sec. 4",
        "Table",
        "Fig. 3",
        "Sec. 5",
        "App. D",
        "App. E.1",
        "App. E.2",
        "App. E",
    )
    return sorted(found, key=lambda one: next(i for i, start in enumerate(order) if one.where.startswith(start)))


def grid_of_claims(runs: RunFiles) -> Grid:
    body = []
    for one in all_claims():
        figure, verdict = one.find(runs)
        if verdict not in VERDICTS:
            raise ValueError(f"{one.where}: verdict {verdict!r} is not one of {', '.join(VERDICTS)}")
        body.append(cells([one.where, one.says, figure, f"**{verdict}**", f"`{one.command}`" if one.command else ""]))
    return Grid(["where", "the paper says", "here", "verdict", "command"], body, range(5))


def count_verdicts(grid: Grid) -> str:
    verdicts = [row[3].words.strip("*") for row in grid.body]
    plural = ("hold", "hold in part", "do not hold", "cannot be tested")
    return ", ".join(f"{verdicts.count(name)} {words}" for name, words in zip(VERDICTS, plural))


def claims(folder: Path) -> str:
    """The text of claims.md."""
    grid = grid_of_claims(RunFiles(folder))
    blocks: list[Block] = [
        Heading(1, "The paper, claim by claim"),
        paragraph(
            "Every sentence of the SCAR paper (arXiv 2505.11335, later revision) that states a result. Of "
            f"{len(grid.body)} claims: "
            f"{count_verdicts(grid)}. Made by `python -m graphcal.lab.paper.claims` from the run files in this folder; "
            "the command in the "
            "last column remakes those. ECE and accuracy in points, 20 bins, ten runs, graphs Cora, Citeseer and "
            "Pubmed unless said "
            "otherwise. *Same recipe*: the network of SCAR's own code without SCAR. *Its own tables*: arithmetic on "
            "the published numbers."
        ),
        grid,
    ]
    return markdown(blocks)


def main(
    folder: Path = typer.Argument(Path("results"), help="The folder of run files."),  # noqa: B008
    check: bool = typer.Option(
        False, "--check", help="Write nothing; fail when claims.md is not what the run files give."
    ),
) -> None:
    write_or_check(folder / "claims.md", claims(folder), check, "python -m graphcal.lab.paper.claims")


if __name__ == "__main__":
    from graphcal.lab.paper.claims import main as run  # as a module: a claim made there is a claim here

    typer.run(run)
