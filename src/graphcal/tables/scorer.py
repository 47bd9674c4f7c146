"""One function, RecordBatch -> RecordBatch, that adds calibrated columns: what every engine runs on every machine.

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
from graphcal.tables.blocks import check_columns, numbers_of, scores_of
from graphcal.tables.classes import Classes, number_type
from graphcal.tables.fitted_tables import FittedTable
from graphcal.tables.kinds import MANY, Kind, digits_of, kind_named, kind_of
from graphcal.tables.layouts import TableLayout, find_layout, is_calibrated, is_calibrated_name
from graphcal.tables.pivots import long_block, long_codes, top_label_block
from graphcal.tables.profiles import Profile

Array = NDArray[Any]
Batch = TypeVar("Batch", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, eq=False)
class Scorer:
    """A calibration and how to read the tables it is for."""

    calibration: Calibration
    layout: TableLayout
    kind: Kind
    classes: tuple[str, ...]
    keep_scores: bool = False

    def __call__(self, batch: Batch, context: Array | None = None) -> Batch:
        """The batch with calibrated columns; ``context`` (K, n) is the calibration's context of each row."""
        return self.profiled(batch, context)[0]

    def map(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batch by batch: the function of Spark's mapInArrow."""
        return (self(batch) for batch in batches)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns that come out for the columns that go in."""
        batch, count = pa.RecordBatch.from_pylist([], schema=schema), len(self.classes)
        nobody = np.empty((count, 0), np.float32), np.empty(0, np.int64)
        added = calibrated_columns(batch, self.layout, self.classes, *nobody)
        return with_columns(batch, added, () if self.keep_scores else self.layout.scores).schema

    def profiled(
        self,
        batch: Batch,
        context: Array | Callable[[int], Array] | None = None,
        where: str | Path = "the batch",
        first_row: int = 0,
    ) -> tuple[Batch, Profile]:
        """The same, and what its rows are like, for a comparison with those of the fit.

        A ``context`` that is a function is asked for the rows of as many predictions as the batch has.
        """
        logits = self.logits(batch, where, first_row)
        known = context(len(logits[0])) if callable(context) else context
        probs, pred = calibrated_block(self.calibration, logits, known)
        conf: Array = probs.max(0)
        added = calibrated_columns(batch, self.layout, self.classes, probs, pred, conf, where)
        made = with_columns(batch, added, () if self.keep_scores else self.layout.scores)
        return made, Profile.of(conf, pred, len(self.classes))

    def logits(self, batch: pa.RecordBatch | pa.Table, where: str | Path, first_row: int) -> Any:
        """C columns (n,) of logits."""
        check_columns(batch, self.layout, where)
        form, order = self.layout.form, Classes(self.classes, declared=True)
        if form == "wide" and self.kind.name == "logits":  # columns as they lie in the batch: nothing is copied
            columns = [numbers_of(batch[name], where, name) for name in self.layout.scores]
            self.kind.refuse_missing(columns, where, first_row)
            return columns
        if form == "long":
            scores, _ = long_block(batch, self.layout, self.classes, where)
        elif form == "top-label":
            scores = top_label_block(batch, self.layout, order, where)
        else:
            scores = scores_of(batch, self.layout, where, len(self.classes))
        return self.kind.logits(scores, where, first_row)


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
    """A block (C, n) to be written to, from Arrow's pool, which keeps the memory of blocks that nobody reads any more; NumPy
    gives it back, and asking the system for pages costs several per cent of scoring."""
    return np.frombuffer(pa.allocate_buffer(4 * count * n), dtype=np.float32).reshape(count, n)


def confidence_of(probs: Array, pred: Array) -> Array:
    """(n,) the probability, of (C, n), of each predicted class."""
    confidence: Array = probs[pred, np.arange(len(pred))]
    return confidence


def calibrated_columns(
    batch: pa.RecordBatch | pa.Table,
    layout: TableLayout,
    classes: tuple[str, ...],
    probs: Array,
    pred: Array,
    conf: Array | None = None,
    where: str | Path = "the batch",
) -> dict[str, pa.Array]:
    """The columns that are added to a batch for its calibrated probabilities (C, n) and predictions (n,).

    ``conf`` (n,) is the probability of each prediction, where it is computed already.
    """
    if layout.form == "long":
        row, label = long_codes(batch, layout, Classes(classes, declared=True), where)
        return {"calibrated_prob": pa.array(probs[label, row])}
    conf = confidence_of(probs, pred) if conf is None else conf
    both = {"calibrated_prediction": named(pred, classes), "calibrated_confidence": pa.array(conf)}
    if layout.form == "top-label":
        return both
    if layout.form == "wide":
        added = {f"calibrated_prob_{name}": pa.array(p) for name, p in zip(classes, probs)}
    elif layout.form == "list":
        flat = pa.array(np.ascontiguousarray(probs.T).reshape(-1))
        offsets = np.arange(0, len(flat) + 1, len(probs), dtype=np.int32)
        added = {"calibrated_probs": pa.ListArray.from_arrays(pa.array(offsets), flat)}
    else:
        added = {"calibrated_prob": pa.array(probs[1])}
    return {**added, **both}


def named(pred: Array, classes: tuple[str, ...]) -> pa.Array:
    """Predictions by the classes' names, as numbers where they are numbers."""
    numbers = pa.array(pred.astype(number_type(len(classes)), copy=False))
    if Classes(classes).are_numbers:
        return numbers
    return pa.DictionaryArray.from_arrays(numbers, pa.array(classes, pa.string()))


def with_columns(batch: Batch, added: Mapping[str, pa.Array], dropped: Sequence[str] = ()) -> Batch:
    """The batch with these columns at its end, without those of the same names and without the dropped ones."""
    kept = {name: batch[name] for name in batch.schema.names if name not in added and name not in dropped}
    columns = {**kept, **added}
    return type(batch).from_arrays(list(columns.values()), names=list(columns))


def check_shard(scorer: Scorer, batch: pa.RecordBatch, where: str | Path) -> None:
    """Refuse a shard that lacks a column, and a wide one that has scores of more classes than the calibration knows."""
    check_columns(batch, scorer.layout, where)
    if scorer.layout.form != "wide":
        return
    given = read_by(batch.schema, is_calibrated(scorer.layout))
    found = find_layout(given, scorer.kind.name, "wide", scorer.layout.roles, scorer.layout.names, where)
    more = [name for name in found.scores if name not in scorer.layout.scores]
    if more and not set(scorer.layout.scores) - set(found.scores):
        raise ValueError(f"{where}: a column {more[0]!r} of scores, which is none of {', '.join(scorer.classes)}")


def scorer_of(
    calibration: Calibration,
    sample: pa.RecordBatch | pa.Table,
    where: str | Path,
    kind: str | None = None,
    columns: Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
) -> Scorer:
    """The scorer of a calibration for tables like the ``sample``.

    What the calibration remembers of the table it was fitted on says what a column holds; its columns are found by name. A table
    of another kind, or of other classes, is refused. A table that is rounded to fewer digits than that of the fit is read as a
    rounded one.
    """
    known = FittedTable.of(calibration)
    wanted = known.kind or kind
    if kind is not None and wanted is not None and kind_named(kind) != kind_named(wanted):
        raise ValueError(f"{where}: the calibration was fitted on {wanted}, --kind says {kind}")
    schema = read_by(sample.schema, known.calibrated)
    given = {**known.columns, **(columns or {})}
    names = known.classes or tuple(classes or ())
    layout = find_layout(schema, wanted, known.form, given, names or None, where)
    if known.calibrated != is_calibrated(layout):
        raise ValueError(
            f"{where}: the calibration was fitted on calibrated scores (columns calibrated_...), and the table has none. Score "
            "it with the first calibrator before, or fit on the table as the model wrote it"
        )
    if wanted is not None and layout.kind != kind_named(wanted):
        raise ValueError(
            f"{where}: the calibration was fitted on {wanted}, the column {layout.scores[0]!r} is {layout.kind}"
        )
    names = checked_classes(layout, names, calibration.num_classes, where)
    if known.kind or layout.form in ("long", "top-label"):
        digits = fewest_digits(known.digits, sample, layout, where)
        return Scorer(calibration, layout, Kind(layout.kind, digits), names)
    return Scorer(calibration, layout, kind_of(layout.kind, scores_of(sample, layout, where), where), names)


def read_by(schema: pa.Schema, calibrated: bool) -> pa.Schema:
    """The columns that a scorer looks at: those called calibrated_... only where the fit read such ones."""
    return pa.schema([f for f in schema if calibrated or not is_calibrated_name(f.name)], schema.metadata)


def fewest_digits(
    at_fit: int | None, sample: pa.RecordBatch | pa.Table, layout: TableLayout, where: str | Path
) -> int | None:
    """The digits that the fit's probabilities were rounded to, or fewer, those of the sample."""
    if layout.kind != "probs" or layout.form == "top-label" or sample.num_rows < MANY:
        return at_fit
    one = layout.form == "long"
    scores = (
        numbers_of(sample[layout.scores[0]], where, layout.scores[0])[None] if one else scores_of(sample, layout, where)
    )
    digits = digits_of(scores)
    return digits if digits and (at_fit is None or digits < at_fit) else at_fit  # 0: all are nearly 0 or 1


def checked_classes(
    layout: TableLayout, names: tuple[str, ...], count: int | None, where: str | Path
) -> tuple[str, ...]:
    """The calibration's classes, which must be those of the columns."""
    if layout.names is not None and names and set(layout.names) != set(names):
        raise ValueError(
            f"{where}: the calibration was fitted on the classes {', '.join(names)}; the columns are those of "
            f"{', '.join(layout.names)}"
        )
    found = names or layout.names or Classes.numbered(len(layout.scores) if layout.form == "wide" else count or 2).names
    columns = len(layout.scores) if layout.form == "wide" else len(found)
    if columns != len(found) or count not in (None, len(found)):
        raise ValueError(
            f"{where}: the calibration was fitted on {count or len(found)} classes, the table has scores for {columns}"
        )
    return found
