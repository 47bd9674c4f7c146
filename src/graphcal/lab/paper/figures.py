"""The paper's figures drawn again from the committed files, and the two schematics of its method.

    python -m graphcal.lab.paper.figures            # results/fig-*.svg, docs/images/scar-*.svg

The same files give the same bytes. `graphcal bench fig-...` draws the same figures from records.
"""

from __future__ import annotations

from pathlib import Path

import typer

from graphcal.files import write_atomically
from graphcal.lab.bench.figures import figure_of
from graphcal.lab.bench.files import read_table
from graphcal.lab.bench.presets import preset_titles, read_preset
from graphcal.lab.paper.schematics import draw_method, draw_node_level
from graphcal.plots.figure import svg


def figures_of(results: Path) -> dict[str, str]:
    """File name -> SVG, for every figure of the paper."""
    drawn = {}
    for name in preset_titles():
        if name.startswith("fig-"):
            figure = figure_of(read_table(results, read_preset(name)))
            if figure is None:
                raise ValueError(
                    f"{results} has no runs of {name}: `graphcal bench {name} --publish {results}` makes them"
                )
            drawn[f"{name}.svg"] = svg(figure)
    return drawn


def schematics() -> dict[str, str]:
    """File name -> SVG."""
    return {"scar-method.svg": svg(draw_method()), "scar-node-level.svg": svg(draw_node_level())}


def main(
    results: Path = typer.Option(Path("results"), help="The folder of run files; figures go there too."),  # noqa: B008
    images: Path = typer.Option(Path("docs/images"), help="Where the schematics go."),  # noqa: B008
) -> None:
    for folder, drawn in ((results, figures_of(results)), (images, schematics())):
        for name, text in drawn.items():
            print(write_atomically(folder / name, text))


if __name__ == "__main__":
    typer.run(main)
