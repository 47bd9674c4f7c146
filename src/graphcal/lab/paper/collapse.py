"""Measure neural collapse of a GCN: the paper's remark that class weights and class means point the same way.

python -m graphcal.lab.paper.collapse            # write results/neural-collapse.csv

angle     degrees between class weight and class mean, both centred, mean over classes (`graphcal.lab.theory.neural_collapse`)
spread    variance of representations inside classes over that between class means
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from graphcal.files import write_atomically
from graphcal.lab.bench.files import csv_text
from graphcal.lab.datasets import load
from graphcal.lab.theory import neural_collapse
from graphcal.lab.training import published, train

GRAPHS = ("cora", "citeseer")
DECAYS = (5e-4, 5e-6)  # of the final layer


def measure(graph: str, seeds: int) -> list[list[str]]:
    """One line per final decay, seed and group of nodes; GCN of the recipe cagcn."""
    data, lines = load(graph), []
    recipe = published("cagcn", "gcn", graph).training
    for decay in DECAYS:
        for run in train(data, "gcn", replace(recipe, final_weight_decay=decay), seeds):
            for name, nodes in (("train", data.train_mask), ("test", data.test_mask)):
                at = neural_collapse(run.outputs, nodes)
                values = [f"{float(at.angles.mean()):.4f}", f"{at.spread:.4f}"]
                lines.append([graph, f"{decay:g}", name, str(run.seed), *values])
    return lines


def main(
    folder: Path = typer.Argument(Path("results"), help="The folder of results."),  # noqa: B008
    seeds: int = typer.Option(2, min=1, help="How many times to train."),
) -> None:
    lines = [line for graph in GRAPHS for line in measure(graph, seeds)]
    header = ["dataset", "final_weight_decay", "nodes", "seed", "angle", "spread"]
    print(write_atomically(folder / "neural-collapse.csv", csv_text(header, lines)))


if __name__ == "__main__":
    typer.run(main)
