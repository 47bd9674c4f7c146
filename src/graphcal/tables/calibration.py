"""Calibrate predictions that are already there: arrays, data frames, Arrow tables, tables of files.

    found = gc.calibrate(scores, y, kind="logits")
    found.probs, found.calibration, found.measurement

Half of the labelled rows are fitted on and the others measure, unless ``on`` says which. `gc.Study` does the fitting, so that no
label of a measured row is seen before it is measured.
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
from torch_geometric.data import Data

from graphcal.core import Calibration, FinalLayer, Outputs
from graphcal.methods import CALIBRATORS
from graphcal.metrics import Measurement
from graphcal.study import Study
from graphcal.tables.arrays import arrays_of, like, refuse_other_order
from graphcal.tables.classes import Classes
from graphcal.tables.exporting import write_table
from graphcal.tables.fitted_tables import FittedTable
from graphcal.tables.kinds import Kind
from graphcal.tables.layouts import TableLayout, is_calibrated
from graphcal.tables.pivots import long_codes
from graphcal.tables.profiles import Profile
from graphcal.tables.reading import PredictionTable
from graphcal.tables.scorer import calibrated_columns, with_columns
from graphcal.tables.shards import aligned
from graphcal.tables.splits import RowSplit, drawn
from graphcal.tables.table_checks import remark_on_order
from graphcal.tables.table_metadata import remembering
from graphcal.tables.two_classes import compare_calibrators, notes_on

BINS = 20


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
    calibrator: str = "auto",
    kind: str | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
) -> Calibrated:
    """Calibrate scores (N, C) of any framework; the probabilities come back in the same kind of container.

    ``scores`` is a NumPy array, a torch tensor, a pandas data frame or an Arrow table; ``kind`` is logits, log-probs or probs,
    where columns do not say it by their names. ``y`` (N,) are class numbers or names, -1 or None where there is no label: leave
    out the labels of rows the model was trained on. ``classes`` names the classes, number 0 first: in the order of the scores,
    or, where columns are named after them, in any order. ``edges`` (2, E) are row numbers. ``on`` are the rows to fit on, as a
    mask or as row numbers; without it half of the labelled rows are drawn with ``seed``.

    >>> import numpy as np, graphcal as gc
    >>> rng = np.random.default_rng(0)
    >>> z = rng.standard_normal((2000, 3))
    >>> y = (z + rng.gumbel(size=z.shape)).argmax(1)
    >>> found = gc.calibrate(4 * z, y, kind="logits")  # four times too sure
    >>> found.probs.shape, found.before.ece > 0.1, found.measurement.ece < found.before.ece / 3
    ((2000, 3), True, True)
    """
    given = arrays_of(scores, y, kind, classes)
    refuse_other_order(scores, on, "on")
    refuse_other_order(y, on, "on")
    split, note = chosen_rows(given.y, on, seed)
    out = outputs_of(given.logits, given.y, split, edges_of(edges), None)
    study = fit(out, [calibrator])
    measured = study.measure(torch.from_numpy(split.test), BINS)
    fitted = study.fitted[calibrator][0]
    remember(fitted.calibration, fitted.log_probs, given.layout, given.kind, given.classes, split)
    probs = like(scores, fitted.log_probs.exp(), given)
    notes = ([note] if note else []) + remark_on_order(given.logits, given.y) + notes_on(study)
    return Calibrated(probs, fitted.calibration, measured[calibrator], measured["none"], study, tuple(notes))


def chosen_rows(y: np.ndarray, on: Any, seed: int) -> tuple[RowSplit, str]:
    """The rows to fit on and, of the other labelled ones, to measure on."""
    if on is None:
        return drawn(y, seed)
    rows = np.asarray(on)
    val = np.zeros(len(y), dtype=bool)
    if rows.dtype == bool and rows.shape != val.shape:
        raise ValueError(f"on has {len(rows)} entries, but there are {len(y)} rows")
    if rows.dtype != bool:
        rows = row_numbers(rows, len(y))
    val[rows] = True
    return RowSplit(np.zeros_like(val), val & (y >= 0), ~val & (y >= 0)), ""


def row_numbers(rows: np.ndarray, count: int) -> np.ndarray:
    """Numbers of rows, each there and named once."""
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
    found = edges.cpu().numpy() if isinstance(edges, Tensor) else np.asarray(edges)
    if not np.issubdtype(found.dtype, np.integer):
        raise ValueError(
            f"edges must be (2, E) row numbers; got {type(edges).__name__} of {found.dtype} (of a matrix: np.stack(A.nonzero()))"
        )
    return torch.as_tensor(found.astype(np.int64))


def outputs_of(
    logits: Tensor, y: np.ndarray, split: RowSplit, edge_index: Tensor | None, final: FinalLayer | None
) -> Outputs:
    """The predictions as what every calibrator takes. Labels of rows in no part are not used."""
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


def fit(out: Outputs, calibrators: Sequence[str]) -> Study:
    """The uncalibrated scores and each calibrator, in one study; for two classes ``auto`` is the best of several."""
    recipes = {name: CALIBRATORS[name]() for name in dict.fromkeys(["none", *calibrators])}
    compared = compare_calibrators(out) if "auto" in recipes and out.num_classes == 2 else {}
    if compared:
        recipes["auto"] = CALIBRATORS[min(compared, key=lambda name: compared[name])]()
    study = Study.of([out], recipes, on=out.graph.val_mask)
    if compared:
        study.fitted["auto"][0].calibration.fitted_on["compared"] = compared
    return study


def remember(
    calibration: Calibration,
    log_probs: Tensor,
    layout: TableLayout | None,
    kind: Kind,
    classes: tuple[str, ...],
    split: RowSplit,
) -> None:
    """Let the calibration know what its table was like: `graphcal score` reads others the same way, and tells how they differ."""
    fresh = torch.from_numpy(~split.train)
    conf, pred = log_probs[fresh].exp().max(-1)
    profile = Profile.of(conf.float().numpy(), pred.numpy(), len(classes))
    columns: dict[str, str] = {}
    if layout is not None:
        columns = {role: name for role, name in layout.roles.items() if role in ("id", "prediction", "class", "scores")}
        if layout.form in ("list", "binary") and len(layout.scores) == 1:
            columns["scores"] = layout.scores[0]
    table = FittedTable(
        kind.name,
        kind.digits,
        classes,
        layout.form if layout else None,
        columns,
        layout is not None and is_calibrated(layout),
        int(split.train.sum()),
        profile,
    )
    calibration.fitted_on["table"] = table.to_dict()


def write_calibrated(table: PredictionTable, log_probs: Tensor, path: Path, split: RowSplit) -> Path:
    """The rows of a table as they came, in their order, with calibrated columns added, and with label and split.

    Labels from a file of their own travel along, so that `graphcal decide` finds them. The split does because rows that were
    fitted on must not certify a decision later.
    """
    probs = np.ascontiguousarray(log_probs.exp().float().numpy().T)  # (C, N)
    pred = log_probs.argmax(-1).numpy()
    known: dict[str, np.ndarray] = {}
    if table.split is not split or "split" in table.joined or table.layout.roles.get("split") != "split":
        known["split"] = np.select([split.train, split.val, split.test], ["train", "val", "test"], "")
    if "label" in table.joined:
        known["label"] = np.array([*table.classes, ""])[table.labels.numpy()]  # -1, no label: the empty word
    return write_table(path, _with_calibrated(table, probs, pred, known, path))


def _with_calibrated(
    table: PredictionTable, probs: np.ndarray, pred: np.ndarray, known: dict[str, np.ndarray], path: Path
) -> Iterator[pa.Table]:
    tables, first = aligned([table.source.read(shard) for shard in table.source.shards]), 0
    if table.layout.form == "long":  # the rows of an id may lie in several shards
        tables = [pa.concat_tables(tables)]
    roles = {role: name for role, name in table.layout.roles.items() if role not in known}
    for one in tables:
        rows = slice(None) if table.layout.form == "long" else slice(first, first + one.num_rows)
        block = probs[:, rows]
        added = calibrated_columns(one, table.layout, table.classes, block, pred[rows])
        places: slice | np.ndarray = rows
        if table.layout.form == "long":  # a row per id and class
            places, _ = long_codes(one, table.layout, Classes(table.classes, declared=True), path)
        for name, words in known.items():
            added[name] = pa.array([word or None for word in words[places].tolist()], pa.string())
        made = with_columns(one, added)
        yield made.cast(remembering(made.schema, table.classes, roles, table.numbered))
        first += one.num_rows


def read_final_layer(path: str | Path) -> FinalLayer:
    """The last linear layer from a safetensors file: ``weight`` (C, D) and, if it has one, ``bias`` (C,)."""
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
