"""`Scorer`: one function, RecordBatch -> RecordBatch, that adds calibrated columns. Every engine runs it on every machine.

    wide        calibrated_prob_<class> ..., calibrated_prediction, calibrated_confidence
    list        calibrated_probs, calibrated_prediction, calibrated_confidence
    binary      calibrated_prob (of the second class), calibrated_prediction, calibrated_confidence
    top-label   calibrated_prediction, calibrated_confidence
    long        calibrated_prob, in every row

All other columns are kept; the scores themselves only with ``keep_scores``. `Scorer` is picklable: it is the function of Ray
Data's ``map_batches(batch_format="pyarrow")``, and ``Scorer.map`` that of Spark's ``mapInArrow``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from graphcal.core import BLOCK, Calibration
from graphcal.metrics.inputs import first_largest
from graphcal.metrics.references import RowCounts, sample_keys
from graphcal.metrics.row_comparison import sample_values
from graphcal.tables.classes import Classes, number_type
from graphcal.tables.layouts import TableLayout, confidence_of, find_layout, is_calibrated_name
from graphcal.tables.metadata import FittedTable
from graphcal.tables.score_types import MANY, ScoreType, digits_of, infer_score_type, score_type_name

Array = NDArray[Any]
Batch = TypeVar("Batch", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, eq=False)
class Scorer:
    """A calibration and how to read the tables it is for."""

    calibration: Calibration
    layout: TableLayout
    kind: ScoreType
    classes: tuple[str, ...]
    keep_scores: bool = False

    def __call__(self, batch: Batch, context: Array | None = None) -> Batch:
        """Return the batch with calibrated columns; ``context`` (K, n) is the calibration's context of each row."""
        return self.score(batch, context)[0]

    def map(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Score batch by batch: the function of Spark's mapInArrow."""
        return (self(batch) for batch in batches)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns that come out for the columns that go in."""
        batch, count = pa.RecordBatch.from_pylist([], schema=schema), len(self.classes)
        added = self.layout.calibrated_columns(
            batch, self.classes, np.empty((count, 0), np.float32), np.empty(0, np.int64)
        )
        return self._with(batch, added).schema

    def score(
        self,
        batch: Batch,
        context: Array | Callable[[int], Array] | None = None,
        where: str | Path = "the batch",
        first_row: int = 0,
        sample: Sequence[int] | None = None,
        sample_seed: int = 0,
    ) -> tuple[Batch, RowCounts]:
        """Score a batch and count its rows.

        A ``context`` that is a function is called with the number of predictions. ``first_row`` is the position of the batch
        in its file. ``sample`` are the classes whose probabilities a sample of the rows holds; no sample is drawn without it.
        """
        logits = self.logits(batch, where, first_row)
        nearby = context(len(logits[0])) if callable(context) else context
        probs, pred = calibrated_block(self.calibration, logits, nearby)
        conf = confidence_of(probs, pred)
        added = self.layout.calibrated_columns(batch, self.classes, probs, pred, conf, where)
        drawn = () if sample is None else self._sample(probs, sample, sample_seed)
        return self._with(batch, added), RowCounts.of(conf, pred, len(self.classes), *drawn)

    def _with(self, batch: Batch, added: Mapping[str, pa.Array]) -> Batch:
        return with_columns(batch, added, () if self.keep_scores else self.layout.scores)

    def _sample(self, probs: Array, classes: Sequence[int], seed: int) -> tuple[Array, Array]:
        """Draw rows of probabilities (C, n): keys (k,) and `sample_values` (k, d) of the columns as written."""
        rows, keys = sample_keys(probs.shape[1], seed)
        with np.errstate(divide="ignore"):
            written = self.layout.as_written(torch.from_numpy(np.log(probs[:, rows].T.astype(np.float64))))
        return keys, sample_values(written.exp().numpy(), classes)

    def logits(self, batch: pa.RecordBatch | pa.Table, where: str | Path, first_row: int) -> Any:
        """Read the logits of a batch as C columns (n,)."""
        classes = Classes(self.classes, declared=True)
        if self.kind.name != "logits":
            return self.kind.logits(self.layout.read(batch, where, classes), where, first_row)
        columns = self.layout.read_columns(batch, where, classes)
        self.kind.refuse_missing(columns, where, first_row)
        return columns

    def check_shard(self, batch: pa.RecordBatch, where: str | Path) -> None:
        """Refuse a shard that lacks a column, or has scores of more classes than the calibration."""
        self.layout.check_columns(batch, where)
        there = self.layout.score_columns(readable(batch.schema, self.layout.is_calibrated), where)
        more = [name for name in there if name not in self.layout.scores]
        if more and not set(self.layout.scores) - set(there):
            raise ValueError(f"{where}: a column {more[0]!r} of scores, which is none of {', '.join(self.classes)}")


def calibrated_block(
    calibration: Calibration, logits: Sequence[Array] | Array, context: Array | None = None
) -> tuple[Array, Array]:
    """Probabilities (C, n) and predicted classes (n,) of logits, C columns (n,), and context (K, n)."""
    classes, n = len(logits), len(logits[0])
    probs, pred = reused_block(classes, n), np.empty(n, dtype=number_type(classes))
    for at in range(0, n, BLOCK):
        rows = slice(at, at + BLOCK)
        z = torch.from_numpy(np.stack([column[rows] for column in logits]))
        around = z[:0] if context is None else torch.from_numpy(np.ascontiguousarray(context[:, rows]))
        with torch.inference_mode():
            log_probs = calibration.kernel(z, around).numpy()
        np.exp(log_probs, out=probs[:, rows], casting="same_kind")
        pred[rows] = first_largest(log_probs)[1]
    return probs, pred


def reused_block(count: int, n: int) -> Array:
    """Allocate a block (C, n) from Arrow's memory pool.

    The pool reuses freed memory. NumPy returns it to the system, which costs several per cent of scoring.
    """
    return np.frombuffer(pa.allocate_buffer(4 * count * n), dtype=np.float32).reshape(count, n)


def with_columns(batch: Batch, added: Mapping[str, pa.Array], dropped: Sequence[str] = ()) -> Batch:
    """Add columns at the end of a batch in place of those of the same names; leave out the dropped ones."""
    kept = {name: batch[name] for name in batch.schema.names if name not in added and name not in dropped}
    columns = {**kept, **added}
    return type(batch).from_arrays(list(columns.values()), names=list(columns))


def scorer_of(
    calibration: Calibration,
    sample: pa.RecordBatch | pa.Table,
    where: str | Path,
    kind: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Scorer:
    """Return the scorer of a calibration for tables like the ``sample``.

    The table of the fit tells what a column holds; columns are found by name. A table of another score type, or of other classes,
    is refused. A table that is rounded to fewer digits than that of the fit is read as a rounded one.
    """
    fitted = FittedTable.of(calibration)
    wanted = fitted.kind or kind
    if kind is not None and wanted is not None and score_type_name(kind) != score_type_name(wanted):
        raise ValueError(f"{where}: the calibration was fitted on {wanted}, --kind says {kind}")
    schema = readable(sample.schema, fitted.calibrated)
    given = {**fitted.columns, **(columns or {})}
    layout = find_layout(schema, wanted, fitted.layout, given, fitted.classes or None, where)
    if fitted.calibrated != layout.is_calibrated:
        raise ValueError(
            f"{where}: the calibration was fitted on calibrated scores (columns calibrated_...), and the table has none. Score "
            "it with the first calibrator before, or fit on the table as the model wrote it"
        )
    if wanted is not None and layout.kind != score_type_name(wanted):
        raise ValueError(
            f"{where}: the calibration was fitted on {wanted}, the column {layout.scores[0]!r} is {layout.kind}"
        )
    names = checked_classes(layout, fitted.classes, calibration.num_classes, where)
    if fitted.kind or not layout.all_classes:
        digits = fewest_digits(fitted.digits, sample, layout, where)
        return Scorer(calibration, layout, ScoreType(layout.kind, digits), names)
    score_type = infer_score_type(layout.kind, layout.read(sample, where), where)
    return Scorer(calibration, layout, score_type, names)


def readable(schema: pa.Schema, calibrated: bool) -> pa.Schema:
    """Return the columns that a scorer looks at: those called calibrated_... only where the fit read such ones."""
    return pa.schema([f for f in schema if calibrated or not is_calibrated_name(f.name)], schema.metadata)


def fewest_digits(
    at_fit: int | None, sample: pa.RecordBatch | pa.Table, layout: TableLayout, where: str | Path
) -> int | None:
    """Return the digits that the fit's probabilities were rounded to, or those of the sample where they are fewer."""
    if layout.kind != "probs" or sample.num_rows < MANY:
        return at_fit
    scores = layout.rounded_scores(sample, where)
    digits = None if scores is None else digits_of(scores)
    return digits if digits and (at_fit is None or digits < at_fit) else at_fit  # 0: all are nearly 0 or 1


def checked_classes(
    layout: TableLayout, names: tuple[str, ...], count: int | None, where: str | Path
) -> tuple[str, ...]:
    """Return the calibration's classes, which must be those of the columns."""
    if layout.names is not None and names and set(layout.names) != set(names):
        raise ValueError(
            f"{where}: the calibration was fitted on the classes {', '.join(names)}; the columns are those of "
            f"{', '.join(layout.names)}"
        )
    classes = names or layout.names or Classes.numbered(layout.num_columns or count or 2).names
    columns = layout.num_columns or len(classes)
    if columns != len(classes) or count not in (None, len(classes)):
        raise ValueError(
            f"{where}: the calibration was fitted on {count or len(classes)} classes, the table has scores for {columns}"
        )
    return classes
