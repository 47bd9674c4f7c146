"""Predictions from any framework, as a table: what `graphcal check` reads.

A row is a node. The columns' names say what they hold, so nothing is guessed:
    label                                   class number 0..C-1, or any text (then classes are sorted by name)
    prob_0 ... prob_{C-1}                   probabilities;  or logit_0 ...,  or log_prob_0 ...
    probs  (or logits, or log_probs)        the same as one list column
Parquet, CSV (.csv, .tsv) or .npz (arrays `label` and one of `probs`, `logits`, `log_probs`).
A row without a label is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

KINDS = ("log_prob", "prob", "logit")


@dataclass(frozen=True, eq=False)
class Predictions:
    """Log-probabilities and labels of the rows that have one."""

    log_probs: Tensor  # (N, C)
    y: Tensor  # (N,)
    left_out: int  # rows without a label


def columns(path: Path) -> dict[str, np.ndarray]:
    """A file's columns as arrays, text as objects."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if path.suffix in (".csv", ".tsv"):
        options = pyarrow.csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
        table = pyarrow.csv.read_csv(path, parse_options=options)
    elif path.suffix in (".parquet", ".pq"):
        table = pyarrow.parquet.read_table(path)
    else:
        raise ValueError(
            f"{path}: cannot read {path.suffix or 'a file without a suffix'}; use .parquet, .csv, .tsv or .npz"
        )
    found = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
            width = {len(row) if row is not None else 0 for row in column.to_pylist()}
            if len(width) != 1:
                raise ValueError(f"{path}: the lists in column {name!r} have different lengths, {sorted(width)[:5]}")
            found[name] = np.asarray(column.to_pylist(), dtype=float)
        else:
            found[name] = column.to_numpy(zero_copy_only=False)
    return found


def scores_of(found: dict[str, np.ndarray], path: Path) -> tuple[str, np.ndarray]:
    """Which kind of scores the file holds, and the scores (N, C)."""
    present: dict[str, np.ndarray] = {}
    for kind in KINDS:
        if f"{kind}s" in found:
            present[kind] = np.asarray(found[f"{kind}s"], dtype=float)
            continue
        numbered = {int(m[1]): name for name in found if (m := re.fullmatch(rf"{kind}_(\d+)", name))}
        if numbered:
            gaps = sorted(set(range(max(numbered) + 1)) - set(numbered))
            if gaps:
                raise ValueError(f"{path}: column {kind}_{gaps[0]} is missing; there is {kind}_{max(numbered)}")
            present[kind] = np.stack([np.asarray(found[numbered[k]], dtype=float) for k in sorted(numbered)], axis=1)
    if len(present) != 1:
        what = "none of them" if not present else " and ".join(sorted(present))
        raise ValueError(
            f"{path}: expected columns prob_0.., logit_0.. or log_prob_0.. (or one list column probs, logits, log_probs), "
            f"found {what}; the columns are {', '.join(found)}"
        )
    kind, scores = next(iter(present.items()))
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise ValueError(f"{path}: {kind} needs two classes or more, got an array of shape {scores.shape}")
    return kind, scores


def labels_of(values: np.ndarray, classes: int, path: Path, column: str) -> np.ndarray:
    """Labels as class numbers, -1 where there is none."""
    if values.dtype.kind == "f":
        missing = np.isnan(values)
        if np.any(values[~missing] % 1):
            raise ValueError(f"{path}: column {column!r} must hold class numbers or names, got {values[~missing][0]}")
        return np.where(missing, -1, np.nan_to_num(values)).astype(np.int64)
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    text = np.array(["" if v is None else str(v) for v in values.tolist()])
    names = sorted(set(text) - {""})
    if len(names) > classes:
        raise ValueError(f"{path}: column {column!r} has {len(names)} classes, but there are scores for {classes}")
    number = {name: k for k, name in enumerate(names)}
    return np.array([number.get(t, -1) for t in text], dtype=np.int64)


def log_probs_of(kind: str, scores: np.ndarray, path: Path) -> Tensor:
    """Scores as log-probabilities; refuses what the column's name does not promise."""
    bad = ~np.isfinite(scores) if kind != "log_prob" else np.isnan(scores)
    if bad.any():
        raise ValueError(f"{path}: row {int(np.argwhere(bad)[0][0])} has a {kind} that is not a number")
    values = torch.from_numpy(scores)
    if kind == "logit":
        return values.log_softmax(dim=1)
    if kind == "prob":
        sums = values.sum(dim=1)
        wrong = ((sums - 1).abs() > 1e-3) | (values < 0).any(dim=1)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise ValueError(
                f"{path}: probabilities of row {row} must lie in 0..1 and sum to 1, they sum to {float(sums[row]):.4g}"
            )
        return (values / sums[:, None]).log()
    return values


def read_predictions(path: str | Path, label: str = "label") -> Predictions:
    """Read a table of predictions with its labels."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"no predictions at {path}: the file does not exist")
    try:
        found: dict[str, Any] = columns(path)
    except (OSError, ValueError) as error:
        raise error if isinstance(error, ValueError) else ValueError(f"{path} cannot be read: {error}") from None
    if label not in found:
        raise ValueError(f"{path}: no column {label!r} with the labels; the columns are {', '.join(found)}")
    kind, scores = scores_of(found, path)
    y = labels_of(np.asarray(found[label]), scores.shape[1], path, label)
    if len(y) != len(scores):
        raise ValueError(f"{path}: {len(y)} labels for {len(scores)} rows of {kind}s")
    known = y >= 0
    if not known.any():
        raise ValueError(f"{path}: no row has a label in column {label!r}")
    if y.max() >= scores.shape[1]:
        raise ValueError(f"{path}: labels must lie in 0..{scores.shape[1] - 1}, got {y.max()}")
    return Predictions(log_probs_of(kind, scores[known], path), torch.from_numpy(y[known]), int((~known).sum()))
