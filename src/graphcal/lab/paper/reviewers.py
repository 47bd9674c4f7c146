"""Two tables that reviewers of SCAR (arXiv:2505.11335) asked for; the general ones are `graphcal shift`.

    python -m graphcal.lab.paper.reviewers citeseer --table weights      one weight or two, or only one side?
    python -m graphcal.lab.paper.reviewers citeseer --table zero-decay   what is left when the final layer trains without decay?

How sensitive the result is to the decay of each layer is `graphcal.lab.tuning.sweep_decay(which=("final", "others", "global"))`.
"""

from __future__ import annotations

import json as json_format
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from torch_geometric.data import Data

from graphcal.core import Recipe
from graphcal.lab.cli.arguments import graph_of
from graphcal.lab.cli.shift import show_rows
from graphcal.lab.paper.quirks.scar_variants import SCARWithoutGuard
from graphcal.lab.shift.experiments import TableRows, measured_rows, study_of
from graphcal.lab.training import Replica, Training, train, train_replicas
from graphcal.methods import SCAR, TemperatureScaling, Uncalibrated

WEIGHTS: dict[str, Recipe] = {
    "none": Uncalibrated(),
    "alpha only": SCAR(beta=0.0),
    "beta only": SCAR(alpha=0.0),
    "one weight": SCAR(shared=True),
    "two weights": SCAR(),
    "two weights and a temperature": SCAR(temperature=True),
}
WITHOUT_GUARD: dict[str, Recipe] = {
    "none": Uncalibrated(),
    "ts": TemperatureScaling(),
    "scar": SCAR(),
    "scar (no guard)": SCARWithoutGuard(),
}


def weights_table(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    methods: Mapping[str, Recipe] = WEIGHTS,
) -> TableRows:
    """SCAR with one weight, two, and only one of them."""
    return measured_rows(study_of(train(data, backbone, training, seeds), data, methods))


def zero_decay(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    methods: Mapping[str, Recipe] = WITHOUT_GUARD,
) -> TableRows:
    """Every method on models whose final layer has the training's own decay, and none."""
    seeds = list(seeds)
    rows: TableRows = []
    for name, decay in (("as trained", None), ("zero", 0.0)):
        runs = train_replicas(data, backbone, training, [Replica(seed, final_weight_decay=decay) for seed in seeds])
        rows += measured_rows(study_of(runs, data, methods), final_decay=name)
    return rows


ASKED_FOR = {"weights": weights_table, "zero-decay": zero_decay}


def reviewers(
    dataset: str = typer.Argument("citeseer", help="A dataset name or a path to a graph."),
    table: str = typer.Option("weights", help=f"Which table: {', '.join(ASKED_FOR)}."),
    backbone: str = typer.Option("gcn", help="The model to train."),
    seeds: int = typer.Option(3, min=1, help="How many times to train."),
    json: bool = typer.Option(False, "--json", help="Print the rows as JSON."),
) -> None:
    """A table that reviewers of the SCAR paper asked for."""
    if table not in ASKED_FOR:
        raise typer.BadParameter(f"--table {table!r} is not one of {', '.join(ASKED_FOR)}")
    rows = ASKED_FOR[table](graph_of(dataset), backbone, seeds=range(seeds))
    if json:
        typer.echo(json_format.dumps(rows))
    else:
        show_rows(rows)


if __name__ == "__main__":
    typer.run(reviewers)
