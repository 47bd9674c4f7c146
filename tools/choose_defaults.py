"""Settle what the papers of GETS and WATS leave open, on validation labels alone: results/defaults.md.

    GRAPHCAL_DATA=... python tools/choose_defaults.py --publish results

For every candidate the validation nodes are cut into five folds; the calibrator is fitted on four and judged by its NLL on the
fifth. Graphs are blinded first: no test label is in memory while this runs. The table is all there is to choose by.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import typer

import graphcal as gc
from graphcal.core import Outputs, blinded
from graphcal.engine.node_order import kfold
from graphcal.methods.gets import GETS
from graphcal.methods.wats import WATS

GRAPHS = {
    "cora": "public",
    "citeseer": "public",
    "pubmed": "public",
    "chameleon": "geom-gcn",
    "photo": "per-class",
}
CANDIDATES = {  # (recipe, nodes that decide when to stop)
    "GETS, lr 0.1, stop on training nodes": (GETS(lr=0.1), "train"),
    "GETS, lr 0.01, stop on training nodes": (GETS(lr=0.01), "train"),
    "GETS, lr 0.001, stop on training nodes": (GETS(lr=0.001), "train"),
    "WATS, stop on training nodes": (WATS(), "train"),
    "WATS, stop on fitted nodes": (WATS(), "fitted"),
}


def unseen_nll(recipe: gc.core.Recipe, stop: str, out: Outputs) -> float:
    """Mean NLL of the validation nodes, each from a fit without its fold."""
    val = out.graph.val_mask.nonzero().flatten()
    total = 0.0
    for fold in kfold(len(val), 5, torch.Generator().manual_seed(0)):
        held = val[fold]
        on = out.graph.val_mask.clone()
        on[held] = False
        log_probs = recipe.fit(out, on, out.graph.train_mask if stop == "train" else on)(out)
        total -= float(log_probs[held].gather(1, out.graph.y[held][:, None]).sum())
    return total / len(val)


def main(
    runs: int = typer.Option(2, min=1, help="Trained models for each graph."),
    graphs: str = typer.Option(",".join(GRAPHS), help="Graphs, separated by commas."),
    publish: str = typer.Option("", help="Folder for defaults.md."),
) -> None:
    names = graphs.split(",")
    found: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    for graph in names:
        data = blinded(gc.load(graph, protocol=GRAPHS[graph]))
        trained = gc.train(data, training=gc.training.published("cagcn", "gcn", graph).training, seeds=range(runs))
        for name, (recipe, stop) in CANDIDATES.items():
            nll = [unseen_nll(recipe, stop, run.outputs) for run in trained]
            found[name].append(sum(nll) / runs)
            print(f"{graph:10s} {name:40s} {found[name][-1]:.4f}", file=sys.stderr, flush=True)
    lines = [
        "# Defaults of GETS and WATS, settled on validation labels",
        "",
        f"Five-fold cross-validated NLL of the validation nodes; GCN, recipe cagcn, {runs} models a graph. "
        "No test label is read (`python tools/choose_defaults.py --publish results`).",
        "",
        "| candidate | " + " | ".join(names) + " | mean |",
        "|---|" + "---:|" * (len(names) + 1),
    ]
    for name, values in found.items():
        row = [*values, sum(values) / len(values)]
        lines.append(f"| {name} | " + " | ".join(f"{v:.4f}" for v in row) + " |")
    text = "\n".join(lines) + "\n"
    print(text)
    if publish:
        (Path(publish) / "defaults.md").write_text(text)


if __name__ == "__main__":
    typer.run(main)
