"""Summary of the predictions that a calibrator was fitted on, small enough to be stored in its file.

    {"nodes": 5000, "confidence": [...20 counts...], "predicted": [...C counts...], "prior": [...C means...],
     "sample": {"classes": [0, 2], "degree": false, "values": "..."},
     "promise": {"threshold": 0.87, "max_error": 0.05, "certainty": 0.95}}

`graphcal score` and `graphcal watch` compare later rows with the sample (`compare_rows`): up to 1,000 rows, of each its
confidence, its probabilities of the most frequent classes, and its degree when the graph was given. The promise is there when a
decision was made. `score` counts rows batch by batch with `RowCounts`, which add up and hold such a sample as well.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcal.metrics.bins import BINS, confidence, equal_width_bin, equal_width_edges
from graphcal.metrics.inputs import check_log_probs
from graphcal.metrics.row_comparison import (
    Array,
    RowComparison,
    compare_rows,
    most_frequent,
    probability_names,
    sample_values,
)

SAMPLE = 1000  # rows
EDGES = equal_width_edges(BINS)


def reference_summary(log_probs: Tensor, graph: Any = None, decision: Any = None) -> dict[str, Any]:
    """Summarize predictions (N, C), with the degrees of ``graph`` and the promise of a ``decision`` where given.

    >>> log_probs = torch.tensor([[0.9, 0.1], [0.4, 0.6]]).log()
    >>> summary = reference_summary(log_probs)
    >>> summary["predicted"], [round(p, 2) for p in summary["prior"]]
    ([1, 1], [0.65, 0.35])
    """
    check_log_probs(log_probs)
    log_probs = log_probs.detach().cpu()
    conf, C = confidence(log_probs)[0], log_probs.shape[1]
    counts = RowCounts.of(conf.numpy(), log_probs.argmax(dim=1).numpy(), C)
    rows = torch.randperm(len(log_probs), generator=torch.Generator().manual_seed(0))[:SAMPLE]
    probs = log_probs.double().exp()
    classes = most_frequent(probs.mean(dim=0).numpy())
    values = sample_values(probs[rows].numpy(), classes)
    if graph is not None:
        values = np.column_stack([values, np.log1p(degrees(graph)[rows.numpy()])])
    summary: dict[str, Any] = {
        "nodes": len(log_probs),
        "confidence": counts.confidence.tolist(),
        "predicted": counts.predicted.tolist(),
        "prior": [round(p, 6) for p in probs.mean(dim=0).tolist()],
        "sample": {"classes": classes, "degree": graph is not None, "values": packed(values)},
    }
    if decision is not None and decision.threshold is not None:
        summary["promise"] = {k: getattr(decision, k) for k in ("threshold", "max_error", "certainty")}
    return summary


@dataclass(frozen=True, eq=False)
class RowCounts:
    """Counts of rows by confidence and by predicted class, and a random sample of rows; ``a + b`` counts both.

    Every row has a random key. The sample is the rows with the `SAMPLE` smallest keys, so that samples of parts make a sample of
    the whole.
    """

    confidence: Array  # (BINS,) rows by confidence, bins (lo, hi]
    predicted: Array  # (C,) rows by predicted class
    total: float  # sum of all confidences
    keys: Array  # (k,) of the rows of the sample
    sample: Array  # (k, d) `sample_values` of these rows

    @classmethod
    def of(cls, conf: Array, pred: Array, classes: int, keys: Array | None = None, sample: Any = None) -> RowCounts:
        cell = equal_width_bin(np.minimum(conf, conf.dtype.type(1)), EDGES)
        cell += BINS * pred.astype(np.int64)
        both = np.bincount(cell, minlength=BINS * classes).reshape(classes, BINS)
        total = float(conf.sum(dtype=np.float64))
        if keys is None:
            return cls(both.sum(0), both.sum(1), total, np.zeros(0, np.float32), np.zeros((0, 0)))
        return cls(both.sum(0), both.sum(1), total, keys, sample)

    @classmethod
    def none(cls, classes: int) -> RowCounts:
        """Counts of no rows."""
        return cls.of(np.zeros(0), np.zeros(0, np.int64), classes)

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> RowCounts:
        keys = np.frombuffer(base64.b64decode(entry["keys"]), dtype="<f4")
        sample = unpacked(entry["sample"], 1).reshape(max(len(keys), 1), -1)
        return cls(np.asarray(entry["confidence"]), np.asarray(entry["predicted"]), float(entry["total"]), keys, sample)

    def __add__(self, other: RowCounts) -> RowCounts:
        keys, sample = self.keys, self.sample
        if len(other.keys):
            keys = np.concatenate([keys, other.keys])
            sample = np.concatenate([sample, other.sample]) if len(self.keys) else other.sample
            smallest = np.argsort(keys, kind="stable")[:SAMPLE]
            keys, sample = keys[smallest], sample[smallest]
        return RowCounts(
            self.confidence + other.confidence, self.predicted + other.predicted, self.total + other.total, keys, sample
        )

    @property
    def rows(self) -> int:
        return int(self.predicted.sum())

    @property
    def mean_confidence(self) -> float:
        return self.total / max(self.rows, 1)

    def to_dict(self) -> dict[str, Any]:
        return {
            "confidence": self.confidence.tolist(),
            "predicted": self.predicted.tolist(),
            "total": self.total,
            "keys": base64.b64encode(self.keys.astype("<f4").tobytes()).decode(),
            "sample": packed(self.sample),
        }


def sample_keys(count: int, first_row: int) -> tuple[Array, Array]:
    """Draw keys for the rows from ``first_row`` on; return those that can be in a sample: positions and keys (k,), sorted."""
    keys = np.random.default_rng(first_row).random(count, dtype=np.float32)
    rows = np.argpartition(keys, SAMPLE)[:SAMPLE] if count > SAMPLE else np.arange(count)
    rows = rows[np.argsort(keys[rows], kind="stable")]
    return rows, keys[rows]


def drift_since(
    reference: Mapping[str, Any], counts: RowCounts, names: Sequence[str] | None = None
) -> dict[str, Any] | None:
    """Compare counted rows with those of a reference, by the test of `graphcal watch`; None where nothing was counted."""
    if not len(counts.keys):
        return None
    comparison = compare_with(reference, counts.sample, names=names)
    about = {"rows_at_fit": reference["nodes"], "mean_confidence": counts.mean_confidence, **comparison.to_dict()}
    return about | {"text": comparison.text("the rows of the fit", "these rows")}


def drift_text(drift: Mapping[str, Any]) -> str:
    """Describe the result of `drift_since` in a sentence."""
    start = f"mean confidence {drift['mean_confidence']:.3f}; "
    if not drift["differ"]:
        return start + f"these rows look like the {drift['rows_at_fit']:,} rows of the fit"
    return (
        f"{start}these rows are unlike those of the fit: {drift['text']} (AUC {drift['auc']:.2f}). Measure on "
        "fresh labels (graphcal check) before you rely on them"
    )


def degrees(graph: Any) -> Array:
    """Degrees (N,) of the nodes of a graph."""
    from graphcal.graphs import structure

    return np.asarray(structure(graph).degree.cpu().numpy(), dtype=np.float64)


def packed(values: Array) -> str:
    """An array (n, d) as text, row after row, in half precision."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f2").tobytes()).decode()


def unpacked(text: str, columns: int) -> Array:
    """The array (n, ``columns``) behind `packed`."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f2").reshape(-1, columns).astype(np.float64)


def compare_with(
    reference: Mapping[str, Any], values: Array, degree: Array | None = None, names: Sequence[str] | None = None
) -> RowComparison:
    """Compare rows, given by their `sample_values`, with those of a reference."""
    sample = reference["sample"]
    labels = probability_names(sample["classes"], names)
    then = unpacked(sample["values"], len(labels) + sample["degree"])
    first, second = dict(zip(labels, then.T)), dict(zip(labels, values.astype("<f2").astype(np.float64).T))
    if sample["degree"] and degree is not None:
        first["degree"] = np.expm1(then[:, -1])
        second["degree"] = np.expm1(np.log1p(degree).astype("<f2").astype(np.float64))
    return compare_rows(first, second)


def reference_fault(reference: Any) -> str | None:
    """Describe what is wrong with a reference that was read from a file; None if nothing is."""
    if not isinstance(reference, Mapping):
        return f"an object was expected, got {type(reference).__name__}"
    nodes, prior = reference.get("nodes"), reference.get("prior")
    counts: Any = reference.get("predicted")
    if type(nodes) is not int or not 0 < nodes < 2**63:
        return "nodes must be a positive integer"
    if not _is_counts(counts, nodes) or len(counts) < 2:
        return "predicted must be a count for each class, and these must add up to nodes"
    if not _is_counts(reference.get("confidence"), nodes) or len(reference["confidence"]) != BINS:
        return f"confidence must be {BINS} counts that add up to nodes"
    if not isinstance(prior, list) or len(prior) != len(counts) or not all(map(_is_share, prior)):
        return "prior must be a number from 0 to 1 for each class"
    promise = reference.get("promise")
    if promise is not None:
        named = promise if isinstance(promise, Mapping) else {}
        terms: list[Any] = [named.get(key) for key in ("threshold", "max_error", "certainty")]
        if not all(map(_is_share, terms)) or terms[1] in (0, 1) or not 0.5 <= terms[2] < 1:
            return "promise must be a threshold, a max_error between 0 and 1 and a certainty in 0.5..1"
    sample = reference.get("sample")
    if not isinstance(sample, Mapping) or not isinstance(sample.get("degree"), bool):
        return "sample must hold classes, degree and values"
    classes = sample.get("classes")
    if not isinstance(classes, list) or not all(type(k) is int and 0 <= k < len(counts) for k in classes):
        return f"the classes of sample must be numbers below {len(counts)}"
    try:
        values = unpacked(sample["values"], 1 + len(classes) + sample["degree"])
    except (KeyError, TypeError, ValueError):
        return "the values of sample cannot be decoded"
    if len(values) != min(SAMPLE, nodes) or not np.isfinite(values).all():
        return f"the values of sample must be {min(SAMPLE, nodes)} rows of numbers"
    return None


def _is_counts(values: Any, total: int) -> bool:
    """Return whether this is a list of non-negative integers that add up to ``total``."""
    integers = isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
    return integers and sum(values) == total


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1
