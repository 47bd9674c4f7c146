"""The main jobs, from end to end:

    run                a graph -> train -> study -> results
    calibrate_files    predictions, labels, edges -> study -> results

Both give one `graphcal.results.Results`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from torch_geometric.data import Data

from graphcal.core import Outputs
from graphcal.datasets import load
from graphcal.engine.threads import threads_for
from graphcal.graphs import structure
from graphcal.methods import CALIBRATORS
from graphcal.metrics.row_comparison import compare_rows, prediction_covariates
from graphcal.results import Results, choose_method, results_of
from graphcal.study import StageProgress, Study
from graphcal.tables.calibration import (
    attach_metadata,
    fit,
    outputs_of,
    read_final_layer,
    write_calibrated,
)  # fmt: skip
from graphcal.tables.edges import read_edges, remark_on_direction
from graphcal.tables.labels import is_of_edges, random_split
from graphcal.tables.reading import PredictionTable
from graphcal.tables.two_classes import notes_on
from graphcal.tables.writing import attach_classes, calibrated_table, class_names_of, write_table
from graphcal.training import Training, published, train


def run(
    dataset: str | Data = "citeseer",
    backbone: str = "gcn",
    calibrators: Sequence[str] = ("ts", "scar", "graph-scaling-keep", "graph-scaling"),
    seeds: Iterable[int] = range(10),
    labels_per_class: int = 20,
    protocol: str | None = None,
    split: int = 0,
    training: Training | None = None,
    final_weight_decay: float | None = None,
    bins: int = 20,
    progress: StageProgress | None = None,
) -> Results:
    """Train ``backbone`` once per seed, fit each calibrator on the validation nodes, measure on the test nodes.

    What is saved, drawn and decided is of one method: the only calibrator given, or of several the recommended one
    (`graphcal.results.choose_method`). ``dataset`` is a name or your own `Data`. ``progress(stage, done, total)`` is called
    while training and while calibrating.

    >>> import graphcal as gc
    >>> data = gc.synthetic(500, seed=0)
    >>> results = gc.run(data, calibrators=["ts"], seeds=range(1), training=gc.Training(epochs=5))
    >>> results.value("ts", "nll") < results.value("none", "nll"), results.verdict[:31]
    (True, 'The model is under-confident by')
    """
    recipes = {name: CALIBRATORS[name]() for name in dict.fromkeys(["none", *calibrators])}
    data = load(dataset, protocol, labels_per_class, split) if isinstance(dataset, str) else dataset
    seeds = list(seeds)
    settings = published("cagcn", backbone, data.get("name"), labels_per_class)
    training = training or settings.training
    if final_weight_decay is not None:
        training = replace(training, final_weight_decay=final_weight_decay)

    def epoch_done(epoch: int, epochs: int, running: int) -> None:
        if progress:
            progress(f"training {len(seeds)} seeds together, {running} still learning", epoch, epochs)

    started = time.perf_counter()
    runs = train(data, settings.backbone, training, seeds, progress=epoch_done)
    train_seconds = time.perf_counter() - started
    about = {
        "dataset": data.get("name", "your graph"),
        "protocol": data.get("protocol", "as given"),
        "source": data.get("source", "as given"),
        "labels_per_class": labels_per_class,
        "split": split,
        "backbone": backbone,
        "training": asdict(training),
        "seeds": seeds,
        "train_seconds": train_seconds,
    }
    with threads_for(runs[0].outputs.logits.numel()):
        study = Study.of([run.outputs for run in runs], recipes, on=data.val_mask, progress=progress)
        choice = choose_method(study, calibrators)
        chosen = study.fitted[choice.method][0]
        out = replace(study.outputs[0], graph=data)  # with its test labels

        def write(path: Path) -> Path:
            return write_table(path, [calibrated_table(out, chosen.log_probs)])

        attach_classes(chosen.calibration, class_names_of(data, out.num_classes))
        return results_of(study, choice, about, bins, write)


def calibrate_files(
    table: PredictionTable,
    edges: str | Path | None = None,
    final_layer: str | Path | None = None,
    calibrators: Sequence[str] = ("auto",),
    seed: int = 0,
    bins: int = 20,
    columns: Mapping[str, str] | None = None,
) -> Results:
    """Fit each calibrator on the validation rows of a table of predictions, measure on its test rows.

    The predictions of one calibrator are written: the only one given, or of several the recommended one
    (`graphcal.results.choose_method`). Without a split, half of the labelled rows are drawn.
    """
    y, notes = table.labels.numpy(), list(table.notes)
    split = table.split
    if split is None:
        split, note = random_split(y, seed)
        notes.append(note)
    if edges is not None and is_of_edges(table.layout.roles):
        raise ValueError(
            f"{table.source.shards[0]}: every row is an edge (it has a source and a target, and no id), and --edges is about "
            "nodes: leave it out, or name the column of node ids with --columns id=NAME"
        )
    edge_index = None if edges is None else read_edges(edges, table.ids, columns)
    final = None if final_layer is None else read_final_layer(final_layer)
    out = outputs_of(table.logits, y, split, edge_index, final)
    out.graph.class_names, out.graph.node_ids = list(table.classes), table.ids.to_numpy(zero_copy_only=False)
    notes += [] if edge_index is None else remark_on_direction(edge_index)
    notes += labelled_note(table, out)
    about = {
        "dataset": table.source.shards[0].parent.name if len(table.source.shards) > 1 else table.source.shards[0].name,
        "protocol": f"drawn with seed {seed}" if table.split is None else "as given",
        "source": ", ".join(str(shard) for shard in table.source.shards[:3]),
        "backbone": "predictions",
        "seeds": [seed],
        "classes": list(table.classes),
        "layout": table.layout.name,
        "kind": table.kind.name,
        "notes": notes,
    }
    with threads_for(out.logits.numel()):
        study = fitted(out, calibrators)
        notes += notes_on(study)
        choice = choose_method(study, calibrators)
        chosen = study.fitted[choice.method][0]
        attach_metadata(chosen.calibration, chosen.log_probs, table.layout, table.kind, table.classes, split)
        write = partial(write_calibrated, table, chosen.log_probs, split=split)
        results = results_of(study, choice, about, bins, write)
        reference = chosen.calibration.fitted_on["reference"]  # of the table as it is written
        return replace(results, reference={**(results.reference or {}), **reference})


def labelled_note(table: PredictionTable, out: Outputs) -> list[str]:
    """How the labelled rows differ from the others, where they do so by more than chance."""
    degree = None if out.graph.get("edge_index") is None else structure(out.graph).degree.numpy()
    columns = prediction_covariates(table.log_probs.double().numpy(), table.classes, degree, table.times())
    labelled = table.labelled.numpy()
    if labelled.all():
        return []
    comparison = compare_rows(
        {name: column[labelled] for name, column in columns.items()},
        {name: column[~labelled] for name, column in columns.items()},
    )
    if not comparison.differ:
        return []
    return [
        f"the labelled rows were not drawn at random from all rows: {comparison.text()}. What is measured here holds for rows "
        "like the labelled ones"
    ]


def fitted(out: Outputs, calibrators: Sequence[str]) -> Study:
    """The study of a table; a calibrator that lacks something is told by the name of the option that gives it."""
    try:
        return fit(out, calibrators)
    except ValueError as fault:
        cards = [CALIBRATORS[name].card for name in calibrators if name in CALIBRATORS]  # type: ignore[attr-defined]
        edges = any(card.graph for card in cards) and out.graph.get("edge_index") is None
        layer = any(card.final_layer for card in cards) and out.final is None
        options = ["--edges FILE"] * edges + ["--final-layer FILE"] * layer
        raise ValueError(f"{fault}. Of a table: {' and '.join(options)}" if options else str(fault)) from None
