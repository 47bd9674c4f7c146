"""What the papers of GETS and WATS leave open, settled on validation labels alone: results/defaults.md.

    GRAPHCAL_DATA=... python -m graphcal.lab.paper.default_candidates --publish results

For every candidate the validation nodes are cut into five folds; the calibrator is fitted on four and judged by its NLL on the
fifth. Graphs are blinded first: no test label is in memory while this runs. The table is all there is to choose by.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import typer

from graphcal.core import Outputs, Recipe, blinded
from graphcal.engine.node_order import kfold
from graphcal.files import write_atomically
from graphcal.lab.baselines.gets import GETS
from graphcal.lab.baselines.wats import WATS
from graphcal.lab.bench.document import Grid, Heading, cells, markdown, paragraph
from graphcal.lab.datasets import load
from graphcal.lab.training import published, train

PROTOCOL_OF = {
    "cora": "public",
    "citeseer": "public",
    "pubmed": "public",
    "chameleon": "geom-gcn",
    "photo": "per-class",
}
CANDIDATES: dict[str, tuple[Recipe, str]] = {  # and the nodes that decide when to stop
    "GETS, lr 0.1, stop on training nodes": (GETS(lr=0.1), "train"),
    "GETS, lr 0.01, stop on training nodes": (GETS(lr=0.01), "train"),
    "GETS, lr 0.001, stop on training nodes": (GETS(lr=0.001), "train"),
    "WATS, stop on training nodes": (WATS(), "train"),
    "WATS, stop on fitted nodes": (WATS(), "fitted"),
}


def cross_validated_nll(candidate: Recipe, stop: str, out: Outputs) -> float:
    """Mean NLL of the validation nodes, each from a fit without its fold."""
    val = out.graph.val_mask.nonzero().flatten()
    total = 0.0
    for fold in kfold(len(val), 5, torch.Generator().manual_seed(0)):
        held = val[fold]
        on = out.graph.val_mask.clone()
        on[held] = False
        log_probs = candidate.fit(out, on, out.graph.train_mask if stop == "train" else on)(out)
        total -= float(log_probs[held].gather(1, out.graph.y[held][:, None]).sum())
    return total / len(val)


def measure(graphs: list[str], runs: int) -> dict[str, list[float]]:
    """The NLL of every candidate on every graph, averaged over trained models."""
    nll: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    for graph in graphs:
        data = blinded(load(graph, protocol=PROTOCOL_OF[graph]))
        trained = train(data, training=published("cagcn", "gcn", graph).training, seeds=range(runs))
        for name, (candidate, stop) in CANDIDATES.items():
            nll[name].append(sum(cross_validated_nll(candidate, stop, run.outputs) for run in trained) / runs)
            print(f"{graph:10s} {name:40s} {nll[name][-1]:.4f}", file=sys.stderr, flush=True)
    return nll


def main(
    runs: int = typer.Option(2, min=1, help="Trained models for each graph."),
    graphs: str = typer.Option(",".join(PROTOCOL_OF), help="Graphs, separated by commas."),
    publish: str = typer.Option("", help="Folder for defaults.md."),
) -> None:
    names = graphs.split(",")
    rows = {name: [*values, sum(values) / len(values)] for name, values in measure(names, runs).items()}
    text = markdown(
        [
            Heading(1, "Defaults of GETS and WATS, settled on validation labels"),
            paragraph(
                f"Five-fold cross-validated NLL of the validation nodes; GCN, recipe cagcn, {runs} models per graph. "
                "No test label is read (`python -m graphcal.lab.paper.default_candidates --publish results`)."
            ),
            Grid(
                ["candidate", *names, "mean"],
                [cells([name, *(f"{value:.4f}" for value in row)]) for name, row in rows.items()],
            ),
        ]
    )
    print(text)
    if publish:
        write_atomically(Path(publish) / "defaults.md", text)


if __name__ == "__main__":
    typer.run(main)
