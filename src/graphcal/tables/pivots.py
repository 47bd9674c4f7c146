"""The two layouts whose rows are not yet rows of scores: long (a row per id and class) and top-label (the winner alone).

*Top-label.* With the confidence p of the predicted class alone, the others share 1 - p evenly: log p, and log((1-p)/(C-1)) for
each. Accuracy and calibration error of the confidence are then exact; NLL and Brier score take the other classes for equal.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from graphcal.tables.blocks import numbers_of
from graphcal.tables.classes import NONE, WHOLE, Classes, canonical, class_numbers, distinct
from graphcal.tables.joining import plain_ids
from graphcal.tables.layouts import TableLayout


def sorted_names(names: Sequence[str]) -> tuple[str, ...]:
    """Numbers by value, text by name: either way a label finds its class by name."""
    whole = all(re.match(WHOLE, name) for name in names)
    return tuple(sorted(names, key=int) if whole else sorted(names))


def long_codes(
    table: pa.Table, layout: TableLayout, order: Classes, where: str | Path
) -> tuple[np.ndarray, np.ndarray]:
    """(M,) which prediction and which class each row is about; predictions in the order in which their ids appear."""
    name = layout.roles["id"]
    row = plain_ids(table[name], where, name).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    label = class_numbers(table[layout.roles["class"]], order, where, layout.roles["class"])
    return row.astype(np.int64), label


def long_block(
    table: pa.Table, layout: TableLayout, names: tuple[str, ...] | None, where: str | Path
) -> tuple[np.ndarray, Classes]:
    """Scores (C, N) of a long table, and its classes."""
    if names is None:
        present = classes_in(table[layout.roles["class"]], where, layout.roles["class"])
        order = Classes(sorted_names(list(present)))
    else:
        order = Classes(names, declared=True)
    row, label = long_codes(table, layout, order, where)
    if (label < 0).any():
        raise ValueError(f"{where}: row {int((label < 0).argmax())} has no class in column {layout.roles['class']!r}")
    count, rows = len(order.names), int(row.max(initial=-1)) + 1
    seen = np.bincount(row * count + label, minlength=rows * count)
    if (seen != 1).any():
        wrong = int((seen != 1).argmax())
        entity = pc.unique(table[layout.roles["id"]])[wrong // count].as_py()
        raise ValueError(
            f"{where}: id {entity!r} has {seen[wrong]} scores for class {order.names[wrong % count]!r}; every id needs one for "
            f"each of the {count} classes"
        )
    scores = np.empty((count, rows), dtype=np.float64)
    scores[label, row] = numbers_of(table[layout.scores[0]], where, layout.scores[0])
    return scores, order


def long_rows(table: pa.Table, layout: TableLayout) -> pa.Table:
    """The first row of every id: one row per prediction, for the columns that do not depend on the class."""
    codes = plain_ids(table[layout.roles["id"]], "", "id").dictionary_encode().indices.to_numpy(zero_copy_only=False)
    first = np.unique(codes, return_index=True)[1]
    return table.take(pa.array(first))


def top_label_classes(
    rows: pa.Table,
    layout: TableLayout,
    names: tuple[str, ...] | None,
    labels: Sequence[pa.ChunkedArray],
    where: str | Path,
) -> Classes:
    """The classes that are declared, or those that occur among predictions and labels."""
    if names is not None:
        return Classes(names, declared=True)
    name = layout.roles["prediction"]
    predicted = classes_in(rows[name], where, name)
    labelled = {v for column in labels for v in classes_in(column, where, "label")}
    if labelled and not labelled & predicted:
        raise ValueError(
            f"{where}: no label ({_some(labelled)}) occurs among the predictions ({_some(predicted)}): are they written "
            "in two ways? Say --classes with all names, number 0 first"
        )
    if len(predicted | labelled) < 2:
        raise ValueError(f"{where}: only {len(predicted | labelled)} class occurs; say all of them with --classes")
    return Classes(sorted_names(list(predicted | labelled)))


def classes_in(column: pa.ChunkedArray, where: str | Path, name: str) -> set[str]:
    """The classes that occur in a column."""
    return {v for v in canonical(distinct(column)[0], where, name).to_pylist() if v not in (None, NONE)}


def _some(names: Collection[str]) -> str:
    return ", ".join(sorted_names(list(names))[:4])


def winners_alone(log_probs: Tensor) -> Tensor:
    """Log-probabilities (N, C) as a top-label table tells them: the rest shared evenly by all but the winner."""
    top, pred = log_probs.double().max(-1, keepdim=True)
    rest = torch.log(-torch.expm1(top.clamp(max=-1e-12)) / (log_probs.shape[1] - 1))
    return rest.expand(log_probs.shape).scatter(1, pred, top).to(log_probs.dtype)


def top_label_block(
    rows: pa.Table | pa.RecordBatch, layout: TableLayout, order: Classes, where: str | Path
) -> np.ndarray:
    """Probabilities (C, n): the confidence at the predicted class, the rest shared evenly."""
    pred = class_numbers(rows[layout.roles["prediction"]], order, where, layout.roles["prediction"])
    conf = numbers_of(rows[layout.scores[0]], where, layout.scores[0])
    if (pred < 0).any():
        raise ValueError(f"{where}: row {int((pred < 0).argmax())} has no prediction")
    count = len(order.names)
    with np.errstate(invalid="ignore"):
        low = ~((conf >= 1 / count - 1e-6) & (conf <= 1 + 1e-6))
    if low.any():
        row = int(low.argmax())
        raise ValueError(
            f"{where}: row {row} has confidence {conf[row]:.4g}; the winner of {count} classes has 1/{count} or more and at most "
            "1. Are there more classes than occur here? Say them with --classes"
        )
    block = np.repeat((np.clip(1 - conf, 0, None) / (count - 1))[None], count, axis=0)
    block[pred, np.arange(len(pred))] = conf
    return block
