"""Measure under-confidence near and far from the training set: V_F and V_S of the paper's Eq. 10.

python -m graphcal.lab.paper.far_nodes            # write results/far-nodes-runs.csv

near   test nodes with a neighbour in the training set      far   all other test nodes
signed_gap = accuracy - mean confidence                     positive: under-confident
"""

from __future__ import annotations

from pathlib import Path

import typer

from graphcal.files import write_atomically
from graphcal.graphs import structure
from graphcal.lab.bench.files import csv_text
from graphcal.lab.datasets import load
from graphcal.lab.training import published, train
from graphcal.metrics.scores import score

GRAPHS = ("cora", "citeseer", "pubmed")
METRICS = ("accuracy", "confidence", "signed_gap")


def measure(graph: str, seeds: int) -> list[list[str]]:
    """One line per seed and group of test nodes, uncalibrated GCN of the recipe cagcn."""
    data = load(graph)
    near = structure(data).next_to_training
    groups = {"near": data.test_mask & near, "far": data.test_mask & ~near}
    lines = []
    for run in train(data, "gcn", published("cagcn", "gcn", graph).training, seeds):
        log_probs = run.outputs.logits.log_softmax(1)
        for name, nodes in groups.items():
            scores = score(log_probs[nodes], data.y[nodes])
            values = [f"{getattr(scores, metric):.6f}" for metric in METRICS]
            lines.append([graph, "20", "gcn", name, "0", str(run.seed), str(int(nodes.sum())), *values])
    return lines


def main(
    folder: Path = typer.Argument(Path("results"), help="The folder of run files."),  # noqa: B008
    seeds: int = typer.Option(5, min=1, help="How many times to train."),
) -> None:
    header = ["dataset", "labels_per_class", "backbone", "method", "split", "seed", "nodes", *METRICS]
    lines = [line for graph in GRAPHS for line in measure(graph, seeds)]
    print(write_atomically(folder / "far-nodes-runs.csv", csv_text(header, lines)))


if __name__ == "__main__":
    typer.run(main)
