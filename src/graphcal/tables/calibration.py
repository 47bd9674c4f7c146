"""Calibrate predictions that are already there: arrays, data frames, Arrow tables, tables of files.

    result = graphcal.calibrate(scores, y, kind="logits")
    result.probs, result.calibration, result.measurement

Half of the labelled rows are fitted on and the others measure, unless ``on`` names them. `Study` does the fitting: no label of a
measured row is read before it is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from graphcal.core import Calibration, FinalLayer, Outputs, Recipe
from graphcal.methods import recipes_by_name
from graphcal.metrics import Measurement
from graphcal.metrics.bins import BINS
from graphcal.metrics.references import reference_summary
from graphcal.study import Study
from graphcal.tables.classes import class_numbers, class_order, declared
from graphcal.tables.files import align
from graphcal.tables.labels import RowSplit, random_split
from graphcal.tables.layouts import TableLayout, both_classes, find_layout
from graphcal.tables.metadata import FittedTable, with_metadata
from graphcal.tables.reading import PredictionTable, check_kind, remark_on_order
from graphcal.tables.score_types import ScoreType, infer_score_type, score_type_name
from graphcal.tables.scorer import with_columns
from graphcal.tables.two_classes import compare_calibrators, notes_on
from graphcal.tables.writing import write_table

WHERE = "scores"  # in errors


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Calibrated predictions, and how well they did on labelled rows that were not fitted on."""

    probs: Any  # (N, C) in the container that came: array, tensor, data frame or Arrow table
    calibration: Calibration
    measurement: Measurement
    before: Measurement  # of the scores as they came
    study: Study
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        before, after = self.before.ece, self.measurement.ece
        return (
            f"Calibrated({len(self.study.graph.y)} rows, {type(self.calibration).__name__}, ECE {100 * before:.2f} % -> "
            f"{100 * after:.2f} % on {self.measurement.nodes} rows)"
        )


def calibrate(
    scores: Any,
    y: Any,
    edges: Any = None,
    on: Any = None,
    calibrator: str | Recipe = "auto",
    kind: str | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
) -> Calibrated:
    """Calibrate scores of any framework; probabilities are returned in the same kind of container.

    Parameters
    ----------
    scores : array, Tensor, DataFrame or Arrow table of shape (N, C)
        Scores of the classes.
    y : array of shape (N,)
        Class numbers or names, -1 or None for no label. Leave out labels of rows the model was trained on.
    edges : array of shape (2, E), optional
        Row numbers.
    on : array of shape (N,) or row numbers, optional
        Rows to fit on; without it half of the labelled rows are drawn with ``seed``.
    calibrator : str or Recipe, default="auto"
        Name in `CALIBRATORS`, "file.py:Class", or a recipe.
    kind : {"logits", "log-probs", "probs"}, optional
        Type of the scores, if column names do not say it.
    classes : sequence of str, optional
        Class names, number 0 first: in the order of the scores, or in any order if columns are named after them.
    seed : int, default=0
        Seed of the random split.

    Returns
    -------
    Calibrated
        Probabilities, calibration, and measurements before and after.

    Examples
    --------
    >>> import numpy as np, graphcal
    >>> rng = np.random.default_rng(0)
    >>> z = rng.standard_normal((2000, 3))
    >>> y = (z + rng.gumbel(size=z.shape)).argmax(1)
    >>> result = graphcal.calibrate(4 * z, y, kind="logits")  # four times too sure
    >>> result.probs.shape, result.before.ece > 0.1, result.measurement.ece < result.before.ece / 3
    ((2000, 3), True, True)
    """
    given = arrays_of(scores, y, kind, classes)
    refuse_other_order(scores, on, "on")
    refuse_other_order(y, on, "on")
    split, note = split_rows(given.y, on, seed)
    out = outputs_of(given.logits, given.y, split, edges_of(edges), None)
    study = fit(out, [calibrator])
    measured = study.measure(torch.from_numpy(split.test), BINS)
    method = list(study.fitted)[-1]  # "none" where that was given
    fitted = study.fitted[method][0]
    attach_metadata(fitted.calibration, fitted.log_probs, given.layout, given.kind, given.classes, split)
    probs = like(scores, fitted.log_probs.exp(), given)
    notes = ([note] if note else []) + remark_on_order(given.logits, given.y) + notes_on(study)
    return Calibrated(probs, fitted.calibration, measured[method], measured["none"], study, tuple(notes))


@dataclass(frozen=True, eq=False)
class Arrays:
    """Scores and labels as numbers."""

    logits: Tensor  # (N, C)
    y: np.ndarray  # (N,) -1 where there is no label
    kind: ScoreType
    classes: tuple[str, ...]
    layout: TableLayout | None  # of tables


def arrays_of(scores: Any, y: Any, kind: str | None, classes: Sequence[str] | None) -> Arrays:
    names, layout = declared(classes), None
    table = arrow_table(scores)
    if table is not None:
        layout = find_layout(table.schema, kind, None, {}, names, WHERE)
        check_kind(layout, kind, WHERE)
        if not layout.all_classes:
            raise ValueError(f"scores in the {layout.name} layout come from a file: graphcal.tables.reading.read_table")
        block, name = layout.read(table, WHERE), layout.kind
    else:
        if kind is None:
            raise ValueError("Cannot tell what an array holds. Pass kind='logits', 'log-probs' or 'probs'")
        name = score_type_name(kind)
        values = as_numpy(scores)
        values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        block = both_classes(values, name) if values.ndim == 1 else np.ascontiguousarray(values.T)
        if block.ndim != 2 or len(block) < 2:
            raise ValueError(
                f"scores must be (N, C) with two classes or more, or (N,) of the second; got {values.shape}"
            )
    order = class_order(len(block), layout.names if layout else None, names, WHERE)
    score_type = infer_score_type(name, block, WHERE)
    logits = torch.from_numpy(np.ascontiguousarray(score_type.logits(block, WHERE).T))
    refuse_other_order(scores, y, "y")
    labels = as_numpy(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.shape != (len(logits),):
        raise ValueError(f"y must have shape ({len(logits)},) to match the scores, got {labels.shape}")
    column = pa.array(labels.tolist() if labels.dtype == object else labels, from_pandas=True)
    return Arrays(logits, class_numbers(column, order, "y", "y"), score_type, order.names, layout)


def as_numpy(values: Any) -> np.ndarray:
    """Convert an array or a tensor of any precision to NumPy."""
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return np.asarray(values.float() if values.dtype == torch.bfloat16 else values)


def refuse_other_order(rows: Any, values: Any, name: str) -> None:
    """Refuse ``values`` (N,) whose index has a row of ``rows`` at another position: values are taken by position."""
    mine, theirs = getattr(rows, "index", None), getattr(values, "index", None)
    if mine is None or theirs is None or callable(mine) or callable(theirs) or mine.equals(theirs):
        return
    if len(mine) != len(theirs):
        return
    moved = theirs.isin(mine) & (np.asarray(theirs, dtype=object) != np.asarray(mine, dtype=object))
    if moved.any():
        raise ValueError(
            f"{name} has {int(moved.sum()):,} labels of the scores' index at another position, and rows are taken by position. "
            f"Pass {name}.loc[scores.index], or {name}.to_numpy() if the positions are right"
        )


def arrow_table(scores: Any) -> pa.Table | None:
    """Convert an Arrow table or a data frame to an Arrow table; None for an array."""
    if isinstance(scores, pa.Table | pa.RecordBatch):
        return scores if isinstance(scores, pa.Table) else pa.Table.from_batches([scores])
    if type(scores).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(scores, preserve_index=False)
    return None


def like(scores: Any, probs: Tensor, given: Arrays) -> Any:
    """Return probabilities (N, C) in the container of ``scores``."""
    if isinstance(scores, torch.Tensor):
        return probs
    if arrow_table(scores) is None:
        return probs.numpy()
    columns = {f"prob_{name}": column for name, column in zip(given.classes, probs.numpy().T)}
    if isinstance(scores, pa.Table | pa.RecordBatch):
        return pa.table({name: np.ascontiguousarray(column) for name, column in columns.items()})
    return type(scores)(columns, index=scores.index)  # a data frame


def split_rows(y: np.ndarray, on: Any, seed: int) -> tuple[RowSplit, str]:
    """Return the rows to fit on and, of the other labelled ones, to measure on."""
    if on is None:
        return random_split(y, seed)
    rows = np.asarray(on)
    val = np.zeros(len(y), dtype=bool)
    if rows.dtype == bool and rows.shape != val.shape:
        raise ValueError(f"on has {len(rows)} entries, but there are {len(y)} rows")
    if rows.dtype != bool:
        rows = row_numbers(rows, len(y))
    val[rows] = True
    return RowSplit(np.zeros_like(val), val & (y >= 0), ~val & (y >= 0)), ""


def row_numbers(rows: np.ndarray, count: int) -> np.ndarray:
    """Check row numbers: each there and named once."""
    if not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(
            f"on must be a mask of {count} booleans or row numbers; got {rows.dtype} of shape {rows.shape}"
        )
    if rows.ndim != 1 or (rows < 0).any() or (rows >= count).any():
        raise ValueError(f"on must name rows 0..{count - 1}; got shape {rows.shape}, {rows.min()}..{rows.max()}")
    if len(np.unique(rows)) < len(rows):
        raise ValueError(f"on names rows more than once (first: {rows[0]}): a mask is of booleans, (on == 1)")
    return rows


def edges_of(edges: Any) -> Tensor | None:
    if edges is None:
        return None
    rows = as_numpy(edges)
    if not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(
            f"edges must be (2, E) row numbers; got {type(edges).__name__} of {rows.dtype} (of a matrix: np.stack(A.nonzero()))"
        )
    return torch.as_tensor(rows.astype(np.int64))


def outputs_of(
    logits: Tensor, y: np.ndarray, split: RowSplit, edge_index: Tensor | None, final: FinalLayer | None
) -> Outputs:
    """Return predictions as `Outputs`. Labels of rows in no part are not used."""
    from torch_geometric.data import Data

    masks = {f"{part}_mask": torch.from_numpy(getattr(split, part) & (y >= 0)) for part in ("val", "test")}
    train = torch.from_numpy(split.train)
    used = train | masks["val_mask"] | masks["test_mask"]
    if not bool(masks["val_mask"].any()) or not bool(masks["test_mask"].any()):
        lacking = "fit on (val)" if not bool(masks["val_mask"].any()) else "measure on (test)"
        raise ValueError(f"there are no labelled rows to {lacking}: the split must have both")
    train = train & torch.from_numpy(y >= 0)
    labels = torch.where(used, torch.from_numpy(y), -torch.ones_like(torch.from_numpy(y)))
    graph = Data(y=labels, train_mask=train, **masks, num_nodes=len(logits))
    if edge_index is not None:
        graph.edge_index = edge_index
    return Outputs(logits, graph, final)


def fit(out: Outputs, calibrators: Sequence[str | Recipe]) -> Study:
    """Fit no calibrator and each of those given in one study.

    "auto" becomes the method that it stands for: graph scaling, and for two classes the best of several.
    """
    compared = compare_calibrators(out) if "auto" in calibrators and out.num_classes == 2 else {}
    best = min(compared, key=lambda name: compared[name]) if compared else "graph-scaling"
    study = Study.of(
        [out], recipes_by_name(best if one == "auto" else one for one in calibrators), on=out.graph.val_mask
    )
    if compared:
        study.fitted[best][0].calibration.fitted_on["compared"] = compared
    return study


def attach_metadata(
    calibration: Calibration,
    log_probs: Tensor,
    layout: TableLayout | None,
    kind: ScoreType,
    classes: tuple[str, ...],
    split: RowSplit,
) -> None:
    """Store in a calibration how its table is read and what its rows looked like: `graphcal score` reads and compares others."""
    columns: dict[str, str] = {}
    if layout is not None:
        columns = {role: name for role, name in layout.roles.items() if role in ("id", "prediction", "class", "scores")}
        if layout.keeps_column:
            columns["scores"] = layout.scores[0]
    table = FittedTable(
        kind.name,
        kind.digits,
        classes,
        layout.name if layout else None,
        columns,
        layout is not None and layout.is_calibrated,
        int(split.train.sum()),
    )
    calibration.fitted_on["table"] = table.to_dict()
    calibration.fitted_on["reference"] = table_reference(log_probs, layout, split)


def table_reference(log_probs: Tensor, layout: TableLayout | None, split: RowSplit) -> dict[str, Any]:
    """Summarize the rows that were not trained on, as a reader of the written table sees them."""
    fresh = log_probs[torch.from_numpy(~split.train)]
    return reference_summary(fresh if layout is None else layout.as_written(fresh))


def write_calibrated(table: PredictionTable, log_probs: Tensor, path: Path, split: RowSplit) -> Path:
    """Write the rows of a table in their order, with calibrated columns, label and split.

    Labels from another file are written too, so that `graphcal decide` finds them. The split is written because rows that were
    fitted on must not certify a decision later.
    """
    more: dict[str, np.ndarray] = {}
    if table.split is not split or "split" in table.joined or table.layout.roles.get("split") != "split":
        more["split"] = np.select([split.train, split.val, split.test], ["train", "val", "test"], "")
    if "label" in table.joined:
        more["label"] = np.array([*table.classes, ""])[table.labels.numpy()]  # -1, no label: the empty word
    return write_table(path, _calibrated_tables(table, log_probs, more, path))


def _calibrated_tables(
    table: PredictionTable, log_probs: Tensor, more: dict[str, np.ndarray], path: Path
) -> Iterator[pa.Table]:
    probs = np.ascontiguousarray(log_probs.exp().float().numpy().T)  # (C, N)
    pred, layout, first = log_probs.argmax(-1).numpy(), table.layout, 0
    tables = align(table.tables)
    if not layout.row_per_prediction:  # the rows of a prediction may lie in several shards
        tables = [pa.concat_tables(tables)]
    roles = {role: name for role, name in layout.roles.items() if role not in more}
    for one in tables:
        rows = slice(first, first + one.num_rows) if layout.row_per_prediction else slice(None)
        added = layout.calibrated_columns(one, table.classes, probs[:, rows], pred[rows])
        positions = layout.prediction_rows(one, table.classes, path)
        for name, words in more.items():
            added[name] = pa.array([word or None for word in words[rows][positions].tolist()], pa.string())
        written = with_columns(one, added)
        yield written.cast(with_metadata(written.schema, table.classes, roles, table.numbered))
        first += one.num_rows


def read_final_layer(path: str | Path) -> FinalLayer:
    """Read the last linear layer from a safetensors file: ``weight`` (C, D) and, if it has one, ``bias`` (C,)."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as fault:
        raise ValueError(f"{path} is not a readable safetensors file: {fault}") from None
    names = {name.rsplit(".", 1)[-1]: name for name in tensors}
    if "weight" not in names:
        raise ValueError(f"{path}: expected tensors weight (C, D) and bias (C,), found {', '.join(tensors) or 'none'}")
    bias = tensors[names["bias"]] if "bias" in names else None
    return FinalLayer.from_weight(tensors[names["weight"]], bias)
