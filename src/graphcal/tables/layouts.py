"""Layouts of a table of predictions: which columns hold the scores, how to read them, which columns to add.

    Wide       a column per class    prob_0, logit_3, log_prob_cat, calibrated_prob_2, cat_PROB; or the class names, with --kind
    List       one list per row      probs, logits, log_probs; any list column with --kind; in CSV text joined by ';'
    Long       a row per id, class   class, and prob, logit, log_prob; or score with --kind
    TopLabel   the winner alone      prediction and confidence; calibrated_prediction and calibrated_confidence
    Binary     one number per row    prob, logit, log_prob of the second class; or score with --kind

`find_layout` infers the layout of a schema from its column names. Where a table holds calibrated scores (calibrated_...) beside
others, the calibrated ones are read. Where columns are named after classes and the order of the classes is given, the scores are
in that order. Scores are blocks (C, n) with the classes along the first axis: columns are that already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcal.tables.classes import (
    Classes,
    canonical_name,
    class_numbers,
    class_order,
    classes_in,
    number_type,
    sorted_names,
)
from graphcal.tables.files import concat, holds_text, is_list, is_number, one_array, plain_ids
from graphcal.tables.score_types import score_type_name

ROLES = {  # what a column is for, and the names it is recognised by; another name is given by --columns role=name
    "id": ("id", "nid", "node_id", "nodeid", "entity", "n_id", "node"),
    "label": ("label", "y", "true_label", "labels"),
    "split": ("split",),
    "prediction": ("prediction", "predictedclass", "predicted_class", "predicted", "pred", "target_pred", "y_pred"),
    "confidence": ("calibrated_confidence", "confidence", "conf"),
    "class": ("class",),
    "source": ("src", "source", "src_nid", "source_id", "src_id", "src_node", "sourcenodeid", "from"),
    "target": ("dst", "target", "dst_nid", "target_id", "dst_id", "dst_node", "targetnodeid", "to"),
    "scores": (),
}
OTHER_NAMES = ("id", "source", "target")  # of a node: files may have different names for it
KIND_WORDS = {
    "log_prob": "log-probs", "logprob": "log-probs", "log_proba": "log-probs", "prob": "probs", "proba": "probs",
    "probability": "probs", "logit": "logits",
}  # fmt: skip
_WORDS = "|".join(KIND_WORDS)
PREFIXED = re.compile(rf"(calibrated_)?({_WORDS})_(.+)", re.IGNORECASE)
SUFFIXED = re.compile(rf"(.+?)_({_WORDS})", re.IGNORECASE)
WHOLE_ROW = re.compile(rf"(calibrated_)?(?:({_WORDS})s|probabilities)", re.IGNORECASE)
ONE_NUMBER = re.compile(rf"(calibrated_)?({_WORDS}|score)s?", re.IGNORECASE)
NUMBERED = re.compile(r"(.*?)[ _.]?([0-9]+)")  # score_3, p3, 3
OPPOSITE = {"True": "False", "true": "false", "TRUE": "FALSE", "1": "0"}  # of the class a single column is named after
NAMED, IN_ROLE, SINGLE, WINNER, COUNTED = range(5)  # how a layout was recognised, the surest first

Array = NDArray[Any]
Rows: TypeAlias = pa.RecordBatch | pa.Table
Names: TypeAlias = tuple[str, ...]  # of classes, in their order
Where: TypeAlias = str | Path  # the file that an error names
Tables: TypeAlias = Sequence[pa.Table]
Shards: TypeAlias = Sequence[Path]
Labels: TypeAlias = Sequence[pa.ChunkedArray]
TableScores: TypeAlias = tuple[Array, Classes, pa.Table]  # scores (C, N), classes, the other columns


def roles_of(names: Sequence[str], given: Mapping[str, str], where: Where) -> dict[str, str]:
    """Return the column of each role: as given, else by the names of `ROLES`.

    One --columns goes with several files: predictions may say ``paper`` where labels say ``nid``. `check_given` refuses names
    that no file has.
    """
    unknown = sorted(set(given) - set(ROLES))
    if unknown:
        raise ValueError(f"--columns: unknown role {unknown[0]!r}; choose among {', '.join(ROLES)}")
    by_lower = {name.lower(): name for name in reversed(names)}
    roles = {}
    for role, usual in ROLES.items():
        if given.get(role) in names:
            roles[role] = given[role]
        elif role not in given or role in OTHER_NAMES:
            match = next((by_lower[name] for name in usual if name in by_lower), None)
            if match is not None:
                roles[role] = match
    return roles


def is_calibrated_name(column: str) -> bool:
    return column.lower().startswith("calibrated_")


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table, as detection looks at them."""

    schema: pa.Schema
    kind: str | None
    roles: Mapping[str, str]
    classes: Names | None
    where: Where

    @property
    def scores(self) -> str | None:
        """The column that --columns names as scores."""
        return self.roles.get("scores")

    def type(self, name: str) -> pa.DataType:
        return self.schema.field(name).type

    @cached_property
    def by_class(self) -> list[tuple[str, dict[str, str]]]:
        """Groups of columns of one score type, class name -> column: prob_0, prob_1, ...; cat_PROB, dog_PROB, ..."""
        groups: dict[tuple[str, bool], dict[str, str]] = {}
        for name in self.schema.names if self.scores is None else ():
            start, end = PREFIXED.fullmatch(name), SUFFIXED.fullmatch(name)
            if start:
                group = groups.setdefault((KIND_WORDS[start[2].lower()], bool(start[1])), {})
                group[canonical_name(start[3])] = name
            elif end and not ONE_NUMBER.fullmatch(name):
                groups.setdefault((KIND_WORDS[end[2].lower()], False), {})[canonical_name(end[1])] = name
        return [(kind, group) for (kind, _), group in groups.items()]

    def single(self) -> Iterator[tuple[int, str, str, bool]]:
        """Columns of one number per row: how sure, name, score type, and whether it is text joined by ';'."""
        for name in self.schema.names if self.scores is None else [self.scores]:
            word, named = ONE_NUMBER.fullmatch(name), name == self.scores
            text = holds_text(self.type(name))
            if (word or named) and (text or is_number(self.type(name))):
                kind = (KIND_WORDS.get(word[2].lower()) if word else None) or self.kind or ""
                sure = NAMED if name == "calibrated_prob" and not named else SINGLE
                yield sure, name, kind, text and (named or name.lower().endswith("s"))


@dataclass(frozen=True)
class TableLayout:
    """Columns of a table that hold the scores of its predictions."""

    kind: str  # name of the score type; '' where it is unknown
    scores: tuple[str, ...]  # the columns of scores, in the order of the classes
    names: Names | None = None  # of the classes, where the columns are named after them
    roles: Mapping[str, str] = field(default_factory=dict)  # role -> column

    name: ClassVar[str]
    needed_roles: ClassVar[tuple[str, ...]] = ()  # beside the scores
    row_per_prediction: ClassVar[bool] = True
    all_classes: ClassVar[bool] = True  # a row holds the scores of all classes
    keeps_column: ClassVar[bool] = False  # a calibrator stores the name of the single column of scores

    @classmethod
    def detect(cls, columns: TableColumns) -> Iterator[tuple[int, TableLayout]]:
        """Yield the layouts of this class that the column names allow, with how sure each is."""
        raise NotImplementedError

    @property
    def is_calibrated(self) -> bool:
        return is_calibrated_name(self.scores[0])

    @property
    def num_columns(self) -> int | None:
        """Number of classes, where the columns say it."""
        return None

    def check_columns(self, batch: Rows, where: Where) -> None:
        """Refuse a batch without a column that the layout needs."""
        needed = [*self.scores, *(self.roles[role] for role in self.needed_roles if role in self.roles)]
        there = set(batch.schema.names)
        missing = [name for name in needed if name not in there]
        if missing:
            raise ValueError(f"{where}: no column {missing[0]!r}; the columns are {', '.join(batch.schema.names)}")

    def read(self, batch: Rows, where: Where, classes: Classes | None = None) -> Array:
        """Read the scores (C, n) of a batch, which must be those of ``classes`` where given."""
        self.check_columns(batch, where)
        scores = self._block(batch, where, classes)
        if classes is not None and len(scores) != len(classes.names) and scores.shape[1]:
            raise ValueError(f"{where}: scores for {len(scores)} classes, expected {len(classes.names)}")
        return scores

    def read_columns(self, batch: Rows, where: Where, classes: Classes | None = None) -> list[Array]:
        """Read the scores as C columns (n,), without a copy where they lie so in the batch."""
        return list(self.read(batch, where, classes))

    def _block(self, batch: Rows, where: Where, classes: Classes | None) -> Array:
        raise NotImplementedError

    def read_tables(self, tables: Tables, shards: Shards, names: Names | None, labels: Labels = ()) -> TableScores:
        """Read the shards of a table: scores (C, N), the classes in their order, and the other columns.

        ``names`` are the classes of --classes. ``labels`` are the labels that occur, for a layout that does not hold all classes.
        """
        blocks, order = [], None
        for shard, table in zip(shards, tables):
            block = self.read(table, shard, order)
            if not table.num_rows:
                continue
            if len(block) < 2:
                raise ValueError(
                    f"{shards[0]}: {self.scores[0]} needs two classes or more, got scores for {len(block)}"
                )
            order = order or class_order(len(block), self.names, names, shards[0])
            blocks.append(block)
        assert order is not None, "a table without rows"
        others = [name for name in tables[0].column_names if name not in self.scores]
        return np.concatenate(blocks, axis=1), order, concat([table.select(others) for table in tables])

    def rounded_scores(self, batch: Rows, where: Where) -> Array | None:
        """Scores (k, n) whose rounding is that of the table; None where rounding tells nothing."""
        return self.read(batch, where)

    def score_columns(self, schema: pa.Schema, where: Where) -> tuple[str, ...]:
        """Return the columns of scores in the schema of another shard."""
        return self.scores

    def prediction_rows(self, table: Rows, classes: Names, where: Where) -> slice | Array:
        """Return the prediction that each row of a table belongs to."""
        return slice(None)

    def as_written(self, log_probs: Tensor) -> Tensor:
        """Return log-probabilities (N, C) as a reader of the written columns sees them."""
        return log_probs

    def calibrated_columns(
        self,
        batch: Rows,
        classes: Names,
        probs: Array,
        pred: Array,
        conf: Array | None = None,
        where: Where = "the batch",
    ) -> dict[str, pa.Array]:
        """Return the columns to add for calibrated probabilities (C, n) and predictions (n,).

        ``conf`` (n,) is the probability of each prediction, where it is computed already.
        """
        conf = confidence_of(probs, pred) if conf is None else conf
        both = {"calibrated_prediction": _named(pred, classes), "calibrated_confidence": pa.array(conf)}
        return {**self._calibrated_scores(classes, probs), **both}

    def _calibrated_scores(self, classes: Names, probs: Array) -> dict[str, pa.Array]:
        raise NotImplementedError


class Wide(TableLayout):
    """A column of scores per class."""

    name = "wide"

    @classmethod
    def detect(cls, columns: TableColumns) -> Iterator[tuple[int, TableLayout]]:
        for kind, group in columns.by_class:
            if len(group) == 1 and _is_of_one_class(kind, group):
                continue
            if not all(c.isdigit() for c in group):
                yield NAMED, cls(kind, tuple(group.values()), tuple(group), columns.roles)
                continue
            last = max(map(int, group))
            if last >= len(group):
                gap = next(k for k in range(last) if str(k) not in group)
                example = group[str(last)]
                missing = example[: example.rindex(str(last))] + str(gap)
                raise ValueError(f"{columns.where}: column {missing} is missing; there is {example}")
            yield NAMED, cls(kind, tuple(group[str(k)] for k in range(len(group))), None, columns.roles)
        if columns.scores is None and columns.kind:
            names, classes = {canonical_name(name): name for name in columns.schema.names}, columns.classes
            if classes and not columns.by_class and all(c in names for c in classes):
                yield NAMED, cls(columns.kind, tuple(names[c] for c in classes), classes, columns.roles)
            for counted in _counted(columns):
                yield COUNTED, cls(columns.kind, counted, None, columns.roles)

    @property
    def num_columns(self) -> int | None:
        return len(self.scores)

    def _block(self, batch: Rows, where: Where, classes: Classes | None) -> Array:
        return np.stack(self._columns(batch, where))

    def read_columns(self, batch: Rows, where: Where, classes: Classes | None = None) -> list[Array]:
        self.check_columns(batch, where)
        return self._columns(batch, where)

    def _columns(self, batch: Rows, where: Where) -> list[Array]:
        return [numbers_of(batch[name], where, name) for name in self.scores]

    def score_columns(self, schema: pa.Schema, where: Where) -> tuple[str, ...]:
        return find_layout(schema, self.kind, Wide.name, self.roles, self.names, where).scores

    def _calibrated_scores(self, classes: Names, probs: Array) -> dict[str, pa.Array]:
        return {f"calibrated_prob_{name}": pa.array(p) for name, p in zip(classes, probs)}


class List(TableLayout):
    """One list of scores per row; in CSV text joined by ';'."""

    name = "list"
    keeps_column = True

    @classmethod
    def detect(cls, columns: TableColumns) -> Iterator[tuple[int, TableLayout]]:
        kind, roles, named = columns.kind, columns.roles, columns.scores
        for name in [named] if named else columns.schema.names:
            word = WHOLE_ROW.fullmatch(name)
            of_name = KIND_WORDS[(word[2] or "prob").lower()] if word else kind or ""
            if is_list(columns.type(name)):
                if word or named or (name not in roles.values() and kind):
                    yield NAMED, cls(of_name, (name,), None, roles)
            elif named is None and holds_text(columns.type(name)) and (word or (kind and name.lower() == "scores")):
                yield NAMED, cls(of_name, (name,), None, roles)
        lists = [n for n in columns.schema.names if is_list(columns.type(n)) and n in roles.values() and kind]
        if len(lists) == 1:  # GraphStorm calls its list `pred`
            yield IN_ROLE, cls(kind or "", (lists[0],), None, {r: n for r, n in roles.items() if n != lists[0]})
        for sure, name, of_name, joined in columns.single():
            if joined:
                yield sure, cls(of_name, (name,), None, roles)

    def _block(self, batch: Rows, where: Where, classes: Classes | None) -> Array:
        return list_block(batch[self.scores[0]], where, self.scores[0])

    def _calibrated_scores(self, classes: Names, probs: Array) -> dict[str, pa.Array]:
        flat = pa.array(np.ascontiguousarray(probs.T).reshape(-1))
        offsets = np.arange(0, len(flat) + 1, len(probs), dtype=np.int32)
        return {"calibrated_probs": pa.ListArray.from_arrays(pa.array(offsets), flat)}


class Binary(TableLayout):
    """One number per row: the score of the second of two classes."""

    name = "binary"
    keeps_column = True

    @classmethod
    def detect(cls, columns: TableColumns) -> Iterator[tuple[int, TableLayout]]:
        for kind, group in columns.by_class:
            if len(group) == 1 and _is_of_one_class(kind, group):
                ((positive, name),) = group.items()
                names = None if SUFFIXED.fullmatch(name) is None or positive.isdigit() else _opposites(positive)
                yield NAMED, cls(kind, (name,), names, columns.roles)
        if not {"class", "id"} <= set(columns.roles):
            for sure, name, kind, joined in columns.single():
                if not joined:
                    yield sure, cls(kind, (name,), None, columns.roles)

    def _block(self, batch: Rows, where: Where, classes: Classes | None) -> Array:
        return both_classes(numbers_of(batch[self.scores[0]], where, self.scores[0]), self.kind)

    def _calibrated_scores(self, classes: Names, probs: Array) -> dict[str, pa.Array]:
        return {"calibrated_prob": pa.array(probs[1])}


class Long(TableLayout):
    """A row per id and class; predictions are in the order in which their ids appear."""

    name = "long"
    needed_roles = ("id", "class")
    row_per_prediction = False
    all_classes = False

    @classmethod
    def detect(cls, columns: TableColumns) -> Iterator[tuple[int, TableLayout]]:
        if {"class", "id"} <= set(columns.roles):
            for sure, name, kind, joined in columns.single():
                if not joined:
                    yield sure, cls(kind, (name,), None, columns.roles)

    def _block(self, batch: Rows, where: Where, classes: Classes | None) -> Array:
        class_column, count = self.roles["class"], len(classes.names) if classes else 0
        assert classes is not None
        row, label = self.prediction_rows(batch, classes.names, where), self._labels(batch, classes.names, where)
        if (label < 0).any():
            raise ValueError(f"{where}: row {int((label < 0).argmax())} has no class in column {class_column!r}")
        rows = int(row.max(initial=-1)) + 1
        times = np.bincount(row * count + label, minlength=rows * count)
        if (times != 1).any():
            wrong = int((times != 1).argmax())
            entity = pc.unique(batch[self.roles["id"]])[wrong // count].as_py()
            raise ValueError(
                f"{where}: id {entity!r} has {times[wrong]} scores for class {classes.names[wrong % count]!r}; every id needs "
                f"one for each of the {count} classes"
            )
        scores = np.empty((count, rows), dtype=np.float64)
        scores[label, row] = numbers_of(batch[self.scores[0]], where, self.scores[0])
        return scores

    def prediction_rows(self, table: Rows, classes: Names, where: Where) -> Array:
        ids = plain_ids(table[self.roles["id"]], where, self.roles["id"])
        codes: Array = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return codes

    def _labels(self, table: Rows, classes: Names, where: Where) -> Array:
        return class_numbers(table[self.roles["class"]], Classes(classes, declared=True), where, self.roles["class"])

    def read_tables(self, tables: Tables, shards: Shards, names: Names | None, labels: Labels = ()) -> TableScores:
        table, name = concat(tables), self.roles["class"]
        order = Classes(names or sorted_names(classes_in(table[name], shards[0], name)), declared=names is not None)
        scores = self.read(table, shards[0], order)
        first = np.unique(self.prediction_rows(table, order.names, shards[0]), return_index=True)[1]
        return scores, order, table.take(pa.array(first))

    def rounded_scores(self, batch: Rows, where: Where) -> Array | None:
        return numbers_of(batch[self.scores[0]], where, self.scores[0])[None]

    def calibrated_columns(
        self,
        batch: Rows,
        classes: Names,
        probs: Array,
        pred: Array,
        conf: Array | None = None,
        where: Where = "the batch",
    ) -> dict[str, pa.Array]:
        label, row = self._labels(batch, classes, where), self.prediction_rows(batch, classes, where)
        return {"calibrated_prob": pa.array(probs[label, row])}


class TopLabel(TableLayout):
    """The predicted class and its confidence p; the other classes share 1 - p evenly: log p, and log((1-p)/(C-1)) for each.

    Accuracy and calibration error of the confidence are then exact; NLL and Brier score take the other classes for equal.
    """

    name = "top-label"
    needed_roles = ("prediction",)
    all_classes = False

    @classmethod
    def detect(cls, columns: TableColumns) -> Iterator[tuple[int, TableLayout]]:
        roles = dict(columns.roles)
        if "confidence" in roles:
            if is_calibrated_name(roles["confidence"]) and "calibrated_prediction" in columns.schema.names:
                roles["prediction"] = "calibrated_prediction"  # of which it is the confidence
            if "prediction" in roles:
                yield WINNER, cls("probs", (roles["confidence"],), None, roles)

    def _block(self, batch: Rows, where: Where, classes: Classes | None) -> Array:
        assert classes is not None
        pred = class_numbers(batch[self.roles["prediction"]], classes, where, self.roles["prediction"])
        conf = numbers_of(batch[self.scores[0]], where, self.scores[0])
        if (pred < 0).any():
            raise ValueError(f"{where}: row {int((pred < 0).argmax())} has no prediction")
        count = len(classes.names)
        with np.errstate(invalid="ignore"):
            low = ~((conf >= 1 / count - 1e-6) & (conf <= 1 + 1e-6))
        if low.any():
            row = int(low.argmax())
            raise ValueError(
                f"{where}: row {row} has confidence {conf[row]:.4g}; the winner of {count} classes has 1/{count} or more and at "
                "most 1. Are there more classes than occur here? Name them with --classes"
            )
        block = np.repeat((np.clip(1 - conf, 0, None) / (count - 1))[None], count, axis=0)
        block[pred, np.arange(len(pred))] = conf
        return block

    def read_tables(self, tables: Tables, shards: Shards, names: Names | None, labels: Labels = ()) -> TableScores:
        rows = concat(tables)
        order = Classes(names, declared=True) if names else self._occurring(rows, labels, shards[0])
        return self.read(rows, shards[0], order), order, rows

    def _occurring(self, rows: pa.Table, labels: Sequence[pa.ChunkedArray], where: Where) -> Classes:
        """Return the classes that occur among predictions and labels."""
        predicted = classes_in(rows[self.roles["prediction"]], where, self.roles["prediction"])
        labelled = {v for column in labels for v in classes_in(column, where, "label")}
        if labelled and not labelled & predicted:
            some = [", ".join(sorted_names(names)[:4]) for names in (labelled, predicted)]
            raise ValueError(
                f"{where}: no label ({some[0]}) occurs among the predictions ({some[1]}): are they written in two ways? Name all "
                "classes with --classes, number 0 first"
            )
        if len(predicted | labelled) < 2:
            raise ValueError(f"{where}: only {len(predicted | labelled)} class occurs; name all of them with --classes")
        return Classes(sorted_names(predicted | labelled))

    def rounded_scores(self, batch: Rows, where: Where) -> Array | None:
        return None

    def as_written(self, log_probs: Tensor) -> Tensor:
        top, pred = log_probs.double().max(-1, keepdim=True)
        rest = torch.log(-torch.expm1(top.clamp(max=-1e-12)) / (log_probs.shape[1] - 1))
        return rest.expand(log_probs.shape).scatter(1, pred, top).to(log_probs.dtype)

    def _calibrated_scores(self, classes: Names, probs: Array) -> dict[str, pa.Array]:
        return {}


LAYOUTS: dict[str, type[TableLayout]] = {layout.name: layout for layout in (Wide, List, Long, TopLabel, Binary)}


def find_layout(
    schema: pa.Schema,
    kind: str | None = None,
    layout: str | None = None,
    columns: Mapping[str, str] | None = None,
    classes: Names | None = None,
    where: Where = "the table",
) -> TableLayout:
    """Infer the layout of a table from its column names, or refuse and name what would do.

    ``kind`` is the score type of columns without such a word in their name. ``layout`` is the name of a layout, where two are
    possible. ``columns`` gives columns by role, ``classes`` the names of the classes.
    """
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}; choose one of {', '.join(LAYOUTS)}")
    kind = None if kind is None else score_type_name(kind)
    roles = roles_of(schema.names, columns or {}, where)
    looked_at = TableColumns(schema, kind, roles, classes, where)
    detected = [pair for one in LAYOUTS.values() for pair in one.detect(looked_at)]
    surest = min((sure for sure, _ in detected), default=NAMED)
    possible = [one for sure, one in detected if sure == surest and layout in (None, one.name)]
    possible = [one for one in possible if one.is_calibrated] or possible
    if len(possible) > 1 and kind is not None:
        possible = [one for one in possible if one.kind == kind]
    if not possible and layout is None and "prediction" in roles:
        raise ValueError(
            f"{where}: the column {roles['prediction']!r} is a class without its confidence, which cannot be calibrated; write "
            f"the scores beside it, as prob_0.. or logit_0.., or its probability as `confidence`. The columns are "
            f"{', '.join(schema.names)}"
        )
    if len(possible) != 1:
        names = " and ".join(one.scores[0] + ".." * (len(one.scores) > 1) for one in possible) or "none of them"
        raise ValueError(
            f"{where}: expected columns prob_0.., logit_0.. or log_prob_0.. (or one list column probs, logits, log_probs; or "
            f"class with prob; or prediction with confidence; or one column prob), found {names}; "
            f"the columns are {', '.join(schema.names)}. Name the score type of other columns with --kind logits|log-probs|probs "
            "(score_0.., or those that --classes names), or the column with --columns scores=NAME"
        )
    (result,) = possible
    if not result.kind:
        raise ValueError(
            f"{where}: cannot tell whether column {result.scores[0]!r} holds probabilities or logits. Pass --kind logits, "
            "log-probs or probs"
        )
    if result.num_columns and result.names is not None and classes and set(classes) == set(result.names):
        by_name = dict(zip(result.names, result.scores))
        return replace(result, names=classes, scores=tuple(by_name[name] for name in classes))
    return result


def _is_of_one_class(kind: str, group: Mapping[str, str]) -> bool:
    """Return whether a single column is that of the second class: prob_1 or fraud_PROB, which leave the rest to the first."""
    ((positive, name),) = group.items()
    return (positive == "1" and kind == "probs") or (not positive.isdigit() and SUFFIXED.fullmatch(name) is not None)


def _opposites(positive: str) -> tuple[str, str]:
    return OPPOSITE.get(positive, f"not {positive}"), positive


def _counted(columns: TableColumns) -> list[tuple[str, ...]]:
    """Group columns of numbers that are counted from 0 without a gap, by how their names begin: score_0, score_1, ..."""
    groups: dict[str, dict[int, str]] = {}
    for name in columns.schema.names:
        match = NUMBERED.fullmatch(name)
        if match and name not in columns.roles.values() and is_number(columns.type(name)):
            groups.setdefault(match[1].lower(), {})[int(match[2])] = name
    whole = [group for group in groups.values() if len(group) > 1 and set(group) == set(range(len(group)))]
    return [tuple(group[k] for k in range(len(group))) for group in whole]


def confidence_of(probs: Array, pred: Array) -> Array:
    """Return the probability (n,), of (C, n), of each predicted class."""
    confidence: Array = probs[pred, np.arange(len(pred))]
    return confidence


def _named(pred: Array, classes: Names) -> pa.Array:
    """Return predictions by the names of the classes, as numbers where they are numbers."""
    numbers = pa.array(pred.astype(number_type(len(classes)), copy=False))
    if Classes(classes).are_numbers:
        return numbers
    return pa.DictionaryArray.from_arrays(numbers, pa.array(classes, pa.string()))


def numbers_of(column: pa.ChunkedArray | pa.Array, where: Where, name: str) -> Array:
    """Read a column of numbers, float32 where it is that on the disk, else float64; null becomes NaN."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if holds_text(column.type):
        try:
            column = pc.utf8_trim_whitespace(column.cast(pa.string())).cast(pa.float64())
        except pa.ArrowInvalid as fault:
            raise ValueError(f"{where}: column {name!r} must hold numbers ({str(fault).splitlines()[0]})") from None
    if not is_number(column.type):
        raise ValueError(f"{where}: column {name!r} must hold numbers, found {column.type}")
    if not pa.types.is_floating(column.type) or column.type.bit_width < 32:
        column = column.cast(pa.float32() if pa.types.is_float16(column.type) else pa.float64())
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def list_block(column: pa.ChunkedArray | pa.Array, where: Where, name: str) -> Array:
    """Read a list column as (C, n); text is split at ';'."""
    column = one_array(column)
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise ValueError(f"{where}: row {row} of column {name!r} is empty; was the engine told to write probabilities?")
    if holds_text(column.type):
        plain = pc.replace_substring(pc.utf8_trim(column.cast(pa.string()), "[] "), ",", ";")  # [0.1, 0.9] as well
        parts = pc.split_pattern(plain, ";")
        try:
            column = pa.ListArray.from_arrays(parts.offsets, pc.utf8_trim_whitespace(parts.values).cast(pa.float64()))
        except pa.ArrowInvalid as fault:
            raise ValueError(f"{where}: column {name!r} must hold numbers joined by ';' ({fault})") from None
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
    else:
        widths = pc.unique(pc.list_value_length(column)).to_pylist()
        if len(widths) > 1:
            raise ValueError(
                f"{where}: the lists in column {name!r} have different lengths, {', '.join(map(str, sorted(widths)[:5]))}"
            )
        width = widths[0] if widths else 0
    flat = numbers_of(column.flatten(), where, name)
    return np.ascontiguousarray(flat.reshape(len(column), width).T)


def both_classes(second: Array, kind: str) -> Array:
    """Return the scores (2, n) of both classes from those (n,) of the second."""
    if kind == "logits":
        return np.stack([np.zeros_like(second), second])
    if kind == "probs":
        return np.stack([1 - second, second])
    second = np.minimum(second, 0)
    with np.errstate(divide="ignore"):
        return np.stack([np.log(-np.expm1(second)), second])
