"""``graphcal explain``: explain a node's confidence by the training nodes."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphcal.cli.arguments import JSON
from graphcal.cli.completion import complete_calibrator
from graphcal.cli.console import plain_console, print_line
from graphcal.lab.cli import arguments

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from graphcal.lab.explanation import Explanation


def explain(
    dataset: str = arguments.DATASET,
    node: str = typer.Option(
        ..., metavar="ID", help="The node to explain: its id in your files, or its number where it has none."
    ),
    backbone: str = arguments.BACKBONE,
    calibrator: str = typer.Option(
        "graph-scaling-keep",
        metavar="NAME",
        autocompletion=complete_calibrator,
        help="The calibrator whose effect is shown; `none` for no calibration.",
    ),
    seed: int = typer.Option(0, min=0, metavar="N", help="Seed of the training."),
    labels_per_class: int = arguments.LABELS_PER_CLASS,
    protocol: str = arguments.PROTOCOL,
    split: int = arguments.SPLIT,
    columns: str = arguments.GRAPH_COLUMNS,
    delimiter: str = arguments.DELIMITER,
    picture: Path = typer.Option(None, metavar="FILE", help="Draw the explanation to this file (svg, png or pdf)."),
    json: bool = JSON,
) -> None:
    """Explain one node's confidence by the training nodes for and against its prediction.

    graphcal explain citeseer --node 2000
    graphcal explain cora --node 5 --backbone gat --picture node5.svg

    Trains BACKBONE on DATASET, takes the node's logits apart (Eq. 8 of the SCAR paper) and shows what calibration changes.
    """
    from graphcal.lab.explanation import explain as explain_node
    from graphcal.lab.training import train
    from graphcal.methods import CALIBRATORS
    from graphcal.study import Study

    recipe = CALIBRATORS[calibrator]()
    data = arguments.graph_of(dataset, protocol, labels_per_class, split, columns, delimiter)
    number = node_number(data, node, dataset)
    (run,) = train(data, backbone, seeds=[seed])
    study = Study.of([run.outputs], {calibrator: recipe}, on=data.val_mask)
    fitted = None if calibrator == "none" else study.fitted[calibrator][0].calibration
    explanation = explain_node(study.outputs[0], number, fitted)
    if json:
        typer.echo(json_format.dumps({"schema": 1, **explanation.to_dict()}))
    else:
        _show(explanation, f"{backbone} on {dataset}")
    if picture is not None:
        from graphcal.lab.plots.explanation import save_explanation

        save_explanation(explanation, picture)
        print_line(f"Picture: {picture}", stderr=True)


def node_number(data: Data, node: str, dataset: str) -> int:
    """The node of this id; of this number, where the graph has no ids of its own."""
    ids = data.get("node_ids")
    if ids is not None:
        places = [k for k, name in enumerate(ids) if str(name) == node]
        if not places:
            raise ValueError(f"node {node} does not exist: {dataset} has ids such as {', '.join(map(str, ids[:3]))}")
        return places[0]
    if not node.isdigit() or int(node) >= int(data.num_nodes):
        raise ValueError(f"node {node} does not exist: {dataset} has nodes 0..{int(data.num_nodes) - 1}")
    return int(node)


def _show(explanation: Explanation, title: str) -> None:
    from rich.table import Table

    console = plain_console()
    console.print(f"{title}: {explanation.sentence}", highlight=False, markup=False)
    agreement = (
        "no neighbours"
        if not explanation.degree
        else f"{explanation.agreement:.0%} of {explanation.degree} neighbours agree"
    )
    console.print(f"{agreement}; distance to the training set: {_steps(explanation.hops)}\n", style="dim")

    terms = Table(box=None, pad_edge=False, header_style="bold", title="logits = intra + inter + bias + residual")
    names = ("class", "logit", "intra", "inter", "bias", "residual", "prob", "after", "cos(h,w)")
    for name in names:
        terms.add_column(name, justify="right")
    for row in sorted(explanation.classes, key=lambda row: -row.logit):
        style = "bold" if row.label == explanation.pred else None
        values = (row.logit, row.intra, row.inter, row.bias, row.residual)
        after = "–" if row.calibrated is None else f"{row.calibrated:.3f}"
        terms.add_row(
            explanation.class_names[row.label],
            *(f"{v:+.3f}" for v in values),
            f"{row.prob:.3f}",
            after,
            f"{row.cosine:+.2f}",
            style=style,
        )
    console.print(terms)

    predicted, second = explanation.class_names[explanation.pred], explanation.class_names[explanation.runner_up]
    title = f"\ntraining nodes that push most for class {predicted} and against it (over class {second})"
    pushes = Table(box=None, pad_edge=False, header_style="bold", title=title)
    for name in ("training node", "class", "push", "cos(h, h_u)", "steps away"):
        pushes.add_column(name, justify="right")
    for push in (*explanation.pushes_for, *explanation.pushes_against):
        pushes.add_row(
            push.name, explanation.class_names[push.label], f"{push.push:+.3f}", f"{push.cosine:.2f}", _steps(push.hops),
            style="green" if push.push > 0 else "red",
        )  # fmt: skip
    console.print(pushes)
    console.print(
        f"\nEffective decay {explanation.effective_decay:.2g}; coefficients corrected by {explanation.correction:.0%} of "
        f"the paper's; {explanation.unexplained:.2%} of this node's logits not explained.",
        style="dim",
    )


def _steps(hops: int) -> str:
    return "no path" if hops < 0 else str(hops)
