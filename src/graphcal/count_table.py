"""From a table of predictions to counts per group of rows: the job of `graphcal count`.

    predictions, labels, edges -> graph scaling with sets=True -> counts per group (decisions.counts) -> files

With a target precision, half of the labels fit and order the groups by their expected share of the class, and the other half
certifies the union of the first groups (decisions.thresholds): the order does not depend on the labels that certify.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from graphcal import __version__
from graphcal.calibrate_table import labelled_note
from graphcal.core import Calibration, Outputs
from graphcal.decisions.counts import Count, count, event_class, grouped
from graphcal.decisions.thresholds import certified_set, nested_sets
from graphcal.files import write_atomically, write_record
from graphcal.methods import GraphScaling
from graphcal.study import Study
from graphcal.tables.edges import read_edges, remark_on_edges
from graphcal.tables.reading import PredictionTable
from graphcal.text import Summarized, plural, sentences

Array = NDArray[Any]
SCHEMA = 1  # of results.json
STEPS = 100_000  # every group may end a union


@dataclass(frozen=True)
class Union:
    """Groups pooled in the order of their expected share, and the precision that is certified for their rows."""

    precision: float
    certainty: float
    guarantee: bool  # the user stated that the labels are a random draw
    groups: tuple[str, ...]
    rows: int  # unlabelled ones of these groups
    labels: int  # that certify

    def text(self, event: str) -> str:
        if not self.groups:
            return (
                f"No union of groups can be certified to hold at least {100 * self.precision:g} % {event} "
                f"({plural(self.labels, 'label')} certify)."
            )
        word = "Guaranteed" if self.guarantee else "If labels were drawn at random"
        return (
            f"{word}, {100 * self.certainty:g} % certain: at least {100 * self.precision:g} % of the {self.rows:,} unlabelled "
            f"rows in the union of {plural(len(self.groups), 'group')} are {event}. This is about the rows together, not about "
            "one group."
        )


@dataclass(frozen=True, eq=False)
class CountTable(Summarized):
    """Counts of an event per group of rows, sorted by what is expected."""

    event: str  # "errors", or the name of a class
    by: str
    certainty: float
    counts: tuple[Count, ...]
    total: Count
    labels: int  # that fit
    union: Union | None
    notes: tuple[str, ...]
    ids: Any = field(repr=False)  # (N,)
    group: Array = field(repr=False)  # (N,) name of the group
    calibration: Calibration = field(repr=False)

    @property
    def sentence(self) -> str:
        """The first group in one sentence."""
        first, what = self.counts[0], self.event
        return (
            f"{self.total} {what} expected in {plural(len(self.counts), 'group')} by {self.by}; most in {first.name}: {first} of "
            f"{plural(first.nodes, 'row')}."
        )

    @property
    def summary(self) -> list[tuple[str, str]]:
        """Headings and texts."""
        return [
            ("Counts", self.sentence),
            *([] if self.union is None else [("Union", self.union.text(self.event))]),
            (
                "Intervals",
                f"Estimates that cover the truth in {100 * self.certainty:g} % of groups, for groups formed without looking at "
                "labels and labels drawn at random; not a statement about one given group.",
            ),
            ("Labels", f"{plural(self.labels, 'labelled row')} fit the probabilities and count as they are."),
            *(("Note", note) for note in self.notes),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The content of ``results.json``, see schemas/count.schema.json."""
        return {
            "schema": SCHEMA,
            "graphcal": __version__,
            "event": self.event,
            "by": self.by,
            "certainty": self.certainty,
            "sentence": self.sentence,
            "total": self.total.to_dict(),
            "counts": [one.to_dict() for one in self.counts],
            "labels": self.labels,
            "union": None if self.union is None else asdict(self.union),
            "notes": list(self.notes),
        }

    def table(self) -> pa.Table:
        """One row per group."""
        return pa.Table.from_pylist([{"group": one.name, **_without_name(one)} for one in self.counts])

    def save(self, folder: str | Path) -> Path:
        """Write counts.parquet, members.parquet, calibrator.safetensors, report.html, then results.json; return the folder."""
        from graphcal.reports.count_page import count_page
        from graphcal.saving import save
        from graphcal.tables.writing import write_table

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        members = pa.table({"id": self.ids, "group": pa.array(self.group.tolist())})
        written = [
            write_table(folder / "counts.parquet", iter([self.table()])),
            write_table(folder / "members.parquet", iter([members])),
            save(self.calibration, folder / "calibrator.safetensors"),
        ]
        write_atomically(folder / "report.html", count_page(self))
        write_record(folder / "results.json", self.to_dict(), written)
        return folder


def _without_name(one: Count) -> dict[str, Any]:
    return {key: value for key, value in one.to_dict().items() if key != "name"}


def count_rows(
    table: PredictionTable,
    by: str,
    edges: str | Path | None = None,
    event: str = "",
    groups: Sequence[str] = (),
    certainty: float = 0.95,
    precision: float | None = None,
    random_draw: bool = False,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
) -> CountTable:
    """Fit graph scaling on the labelled rows of a table and count per group.

    ``by`` is "community", "prediction" or a column; ``event`` a class, or "" for errors. Without edges, the columns ``groups``
    (and ``by``) say which rows err together. ``precision`` asks for a union of groups with that share of the class.
    """
    from torch_geometric.data import Data

    if by == table.layout.roles.get("label"):
        raise ValueError(f"--by {by} is the column of the labels, and intervals hold for groups formed without them.")
    y, notes = table.labels.clone(), list(table.notes)
    train = torch.zeros_like(table.labelled) if table.split is None else torch.from_numpy(table.split.train)
    labelled = table.labelled & ~train
    fit = labelled.clone()
    if precision is not None:
        if not event:
            raise ValueError("A target precision is about a class: pass --class.")
        drawn = np.random.default_rng(seed).permutation(np.flatnonzero(labelled.numpy()))
        fit[drawn[: len(drawn) // 2]] = False
    graph = Data(y=torch.where(fit | train, y, -1), train_mask=train & (y >= 0), val_mask=fit, num_nodes=len(y))
    if edges is not None:
        graph.edge_index = read_edges(edges, table.ids, columns)
        notes += remark_on_edges(graph.edge_index)
    graph.class_names = list(table.classes)
    out = Outputs(table.logits, graph)
    notes += labelled_note(table, out)
    study = Study.of([out], {"graph-scaling": GraphScaling(sets=True)}, on=fit)
    calibration, out = study.fitted["graph-scaling"][0].calibration, study.outputs[0]
    calibration.fitted_on["table"] = {"kind": table.kind.name, "digits": None, "classes": list(table.classes)}
    values: Any = by if by in ("community", "prediction") else _texts(table.column(by))
    given = {name: _texts(table.column(name)) for name in groups}
    wanted: str | int = event_class(out, event) if event else "error"
    counts = count(calibration, out, event=wanted, certainty=certainty, by=values, groups=given)
    total = count(calibration, out, torch.ones(len(y), dtype=torch.bool), wanted, certainty, groups=given)
    matrix, names, _ = grouped(calibration, out, values)
    members = np.empty(len(y), dtype=object)
    for k, name in enumerate(names):
        members[matrix.indices[matrix.indptr[k] : matrix.indptr[k + 1]]] = name
    union = None
    if precision is not None:
        certify = (labelled & ~fit).numpy()
        hit = (y == event_class(out, event)).numpy()
        held = (fit | train).numpy()
        union = certified_union(counts, members, hit, certify, held, precision, certainty, random_draw)
    return CountTable(
        event or "errors",
        by,
        certainty,
        tuple(counts),
        total,
        int(fit.sum()),
        union,
        sentences(notes),
        table.ids,
        members,
        calibration,
    )


def certified_union(
    counts: Sequence[Count],
    members: Array,
    hit: Array,
    certify: Array,
    held: Array,
    precision: float,
    certainty: float,
    random_draw: bool,
) -> Union:
    """The largest union of groups, by falling expected share, that the walk of `decide` certifies on the labels ``certify``.

    ``held`` rows have fitted the order and are in no set. The shares of ``counts`` must not depend on ``certify``.
    """
    share = {one.name: one.expected / max(one.nodes, 1) for one in counts}
    score = np.array([share[name] for name in members])
    sets = nested_sets(score, ~hit, certify, ~held, steps=STEPS)
    last = certified_set(sets, 1 - precision, 1 - certainty)
    names: tuple[str, ...] = ()
    rows = 0
    if last is not None:
        names = tuple(sorted((n for n in share if share[n] >= sets.threshold[last]), key=lambda n: -share[n]))
        rows = int(sets.unlabelled[last])
    return Union(precision, certainty, random_draw, names, rows, int(certify.sum()))


def _texts(column: pa.ChunkedArray) -> Array:
    """Values of a column as text."""
    return np.array(["(missing)" if value in (None, "") else str(value) for value in column.to_pylist()], dtype=str)
