"""Calibrate a table of predictions and measure it: the job of `graphcal calibrate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from graphcal.core import Outputs
from graphcal.graphs import structure
from graphcal.methods import CALIBRATORS
from graphcal.metrics.bins import BINS
from graphcal.metrics.row_comparison import compare_rows, prediction_covariates
from graphcal.results import Provenance, Results, choose_method, results_of
from graphcal.study import Study
from graphcal.tables.calibration import attach_metadata, fit, outputs_of, read_final_layer, write_calibrated
from graphcal.tables.edges import read_edges, remark_on_edges
from graphcal.tables.labels import is_of_edges, random_split
from graphcal.tables.reading import PredictionTable
from graphcal.tables.two_classes import notes_on
from graphcal.threads import threads_for


def calibrate_files(
    table: PredictionTable,
    edges: str | Path | None = None,
    final_layer: str | Path | None = None,
    calibrators: Sequence[str] = ("auto",),
    seed: int = 0,
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
    notes += [] if edge_index is None else remark_on_edges(edge_index)
    notes += labelled_note(table, out)
    shards = table.source.shards
    with threads_for(out.logits.numel()):
        study = fitted_study(out, calibrators)
        choice = choose_method(study, list(study.recipes))
        fitted = study.fitted[choice.method][0]
        attach_metadata(fitted.calibration, fitted.log_probs, table.layout, table.kind, table.classes, split)
        return results_of(
            study,
            choice,
            Provenance(
                input="table",
                dataset=shards[0].parent.name if len(shards) > 1 else shards[0].name,
                protocol=f"drawn with seed {seed}" if table.split is None else "as given",
                source=", ".join(str(shard) for shard in shards[:3]),
                seeds=(seed,),
                notes=(*notes, *notes_on(study)),
                classes=tuple(table.classes),
                layout=table.layout.name,
                kind=table.kind.name,
            ),
            BINS,
            partial(write_calibrated, table, fitted.log_probs, split=split),
            served=table.layout.as_written(fitted.log_probs),
        )


def labelled_note(table: PredictionTable, out: Outputs) -> list[str]:
    """A note on how the labelled rows differ from the others, where they do so by more than chance."""
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


def fitted_study(out: Outputs, calibrators: Sequence[str]) -> Study:
    """Fit the calibrators; on a missing input, name the option that provides it."""
    try:
        return fit(out, calibrators)
    except ValueError as fault:
        recipes = [CALIBRATORS[name] for name in calibrators if name in CALIBRATORS]
        cards = [recipe.card for recipe in recipes if hasattr(recipe, "card")]
        edges = any(card.graph for card in cards) and out.graph.get("edge_index") is None
        layer = any(card.final_layer for card in cards) and out.final is None
        options = ["--edges FILE"] * edges + ["--final-layer FILE"] * layer
        raise ValueError(f"{fault}. Of a table: {' and '.join(options)}" if options else str(fault)) from None
