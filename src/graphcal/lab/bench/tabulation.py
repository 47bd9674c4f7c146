"""Build a table from records: means over runs beside the published values, with tests.

A cell differs from the published one (mark ≠) by Welch's test at 5 %; the published one is taken to be of as
many runs as ours. Agreement is counted by `graphcal.lab.bench.comparisons`: equivalent within a margin, differs, or open.
Bold is for the method that differs significantly (paired test) from every other in its row; italic for those that do not differ
from the row's best. A cell without numbers says why.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graphcal.lab.bench.comparisons import (
    LEVEL,
    MARGIN,
    Difference,
    MeanDifference,
    Sample,
    against,
    best_of,
    marks_of,
    welch,
)
from graphcal.lab.bench.expansion import Blank, Slot
from graphcal.lab.bench.presets import Preset, matches
from graphcal.lab.bench.records import Record, Store
from graphcal.metrics.floor import limit_in_bins
from graphcal.metrics.names import metric_of

Published = tuple[float, float]  # mean, sd


def number(value: float, metric: str, sign: str = "") -> str:
    """A value as `Entry.values` has it, in percent where the metric is a share; ``sign="+"`` for a difference."""
    return f"{value:{sign}.{metric_of(metric).digits}f}"


@dataclass(frozen=True)
class Entry:
    """One method in one row."""

    records: tuple[Record, ...]
    keys: tuple[str, ...]
    planned: int
    published: Published | None = None
    remarks: tuple[str, ...] = ()
    missing: str = ""  # why there is no number
    best: bool = False  # significantly different from every other method in the row
    tied: bool = False  # not significantly different from the best
    styles: Mapping[str, str] = field(
        default_factory=dict
    )  # metric beside the table's -> bold (best), italic (tied) or ""
    against: Mapping[str, Difference] = field(default_factory=dict)  # metric -> this minus the reference

    def values(self, metric: str, where: str = "test") -> list[float]:
        """One value per run, in percent where the metric is a share."""
        scale = metric_of(metric).scale
        if metric == "label_limit":
            return [scale * _label_limit(record) for record in self.records]
        return [scale * float(record.result[where][metric]) for record in self.records]

    def has(self, metric: str, where: str = "test") -> bool:
        """Was it measured in every run? Older records lack what came later."""
        return all(record.result[where].get(metric) is not None for record in self.records)

    def mean(self, metric: str, where: str = "test") -> float:
        return statistics.fmean(self.values(metric, where))

    def sd(self, metric: str, where: str = "test") -> float:
        values = self.values(metric, where)
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def minus(self, other: Entry, metric: str) -> list[float]:
        """Values of this method minus the other's, over the runs that both have."""
        a, b = (dict(zip((tuple(r.spec["run"]) for r in e.records), e.values(metric))) for e in (self, other))
        return [a[run] - b[run] for run in a if run in b]

    def plus_minus(self, metric: str, where: str = "test") -> str:
        return f"{number(self.mean(metric, where), metric)} ± {number(self.sd(metric, where), metric)}"

    def seconds(self, part: str) -> float:
        return statistics.fmean(float(record.seconds[part]) for record in self.records)

    def gap(self, metric: str) -> MeanDifference | None:
        """Ours minus published, where both are there."""
        runs = len(self.records)
        if self.published is None or runs < 2:
            return None
        return welch(Sample(self.mean(metric), self.sd(metric), runs), Sample(*self.published, runs))

    def differs(self, metric: str) -> bool:
        """Significantly different from the published mean by Welch's test at 5 %."""
        gap = self.gap(metric)
        return gap is not None and gap.p < LEVEL


def _label_limit(record: Record) -> float:
    bins = record.result["bins"]
    return limit_in_bins(bins["count"], bins["confidence"], record.result["nodes"]["val"])


@dataclass(frozen=True)
class Row:
    axis_values: Mapping[str, Any]  # the values of the axes
    entries: Mapping[str, Entry]  # method -> entry
    same_nodes: bool = True  # run by run, its methods were measured on the same test nodes: only then are they compared

    @property
    def runs(self) -> int:
        """Finished runs of all methods together."""
        return sum(len(entry.records) for entry in self.entries.values())


@dataclass(frozen=True)
class Table:
    preset: Preset
    rows: tuple[Row, ...]

    @property
    def methods(self) -> list[str]:
        """Columns that have a place in at least one row."""
        return [m for m in self.preset.methods if any(m in row.entries for row in self.rows)]

    @property
    def axes(self) -> list[str]:
        """Axes that vary, or the first one."""
        names = list(self.rows[0].axis_values)
        varying = [n for n in names if len({str(row.axis_values[n]) for row in self.rows}) > 1]
        return varying or names[:1]

    @property
    def agreement(self) -> Counter[str]:
        """Counts of cells that are equivalent to the published value, differ from it, or are open."""
        gaps = (entry.gap(self.preset.metric) for row in self.rows for entry in row.entries.values())
        return Counter(gap.verdict(MARGIN) for gap in gaps if gap is not None)


def tabulate(preset: Preset, slots: Sequence[Slot], blanks: Sequence[Blank], store: Store) -> Table:
    """The table of what is finished so far."""
    done, failed = store.finished(), store.failed()
    keys: dict[str, dict[str, list[str]]] = {}  # row -> method -> keys of its cells
    places: dict[str, Mapping[str, Any]] = {}
    for slot in slots:
        places.setdefault(str(slot.row), slot.row)
        keys.setdefault(str(slot.row), {}).setdefault(slot.method, []).append(slot.cell.key)
    rows = []
    for name, axis_values in places.items():
        entries = {m: _entry(preset, axis_values, m, cells, store, done, failed) for m, cells in keys[name].items()}
        same_nodes = _on_the_same_nodes(entries)
        compared = _compared(preset, entries, store) if same_nodes or preset.main_method else entries
        compared |= {blank.method: empty(preset, blank) for blank in blanks if str(blank.row) == name}
        rows.append(Row(axis_values, {m: compared[m] for m in preset.methods if m in compared}, same_nodes))
    return Table(preset, tuple(rows))


def empty(preset: Preset, blank: Blank) -> Entry:
    published, remarks = printed(preset, blank.row, blank.method)
    return Entry((), (), 0, published, remarks, blank.reason)


def printed(preset: Preset, axis_values: Mapping[str, Any], method: str) -> tuple[Published | None, tuple[str, ...]]:
    """Published value of a slot, and remarks on it."""
    slot = {**axis_values, "method": method}
    here = [p.get("values", {}).get(method, p.get("every")) for p in preset.published if matches(p["where"], slot)]
    values = [value for value in here if value is not None]
    remarks = tuple(str(remark["text"]) for remark in preset.remarks if matches(remark["where"], slot))
    return ((float(values[-1][0]), float(values[-1][1])) if values else None), remarks


def _entry(
    preset: Preset,
    axis_values: Mapping[str, Any],
    method: str,
    planned: Sequence[str],
    store: Store,
    done: set[str],
    failed: set[str],
) -> Entry:
    keys = tuple(key for key in planned if key in done)
    published, remarks = printed(preset, axis_values, method)
    broken = [key for key in planned if key in failed]
    missing = ""
    if not keys and broken:
        missing = f"failed: {_first_line(store.error(broken[0]))}"
    elif not keys:
        missing = preset.reasons.get(str(axis_values.get("dataset")), "not run yet")
    elif broken:
        remarks += (f"{len(broken)} of {len(planned)} runs failed: {_first_line(store.error(broken[0]))}",)
    elif len(keys) < len(planned):
        remarks += (f"{len(keys)} of {len(planned)} runs finished",)
    return Entry(tuple(store.record(key) for key in keys), keys, len(planned), published, remarks, missing)


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _complete(entries: Mapping[str, Entry]) -> dict[str, tuple[str, ...]]:
    """Keys of the methods that finished every run: only those are compared."""
    return {m: entry.keys for m, entry in entries.items() if entry.records and len(entry.records) == entry.planned}


def _on_the_same_nodes(entries: Mapping[str, Entry]) -> bool:
    complete = _complete(entries)
    return len({tuple(_split_of(record) for record in entries[m].records) for m in complete}) <= 1


def _split_of(record: Record) -> tuple[str, str, int, int]:
    group = record.spec["groups"][0]
    return group["dataset"], group["protocol"], group["labels_per_class"], record.spec["run"][0]


def _compared(preset: Preset, entries: Mapping[str, Entry], store: Store) -> dict[str, Entry]:
    complete = _complete(entries)
    if preset.main_method and preset.against:  # of a preset with a method of its own only that one is compared
        complete = {m: complete[m] for m in (preset.against, preset.main_method) if m in complete}
    if preset.kind == "list" and preset.against in complete and len(complete) > 1:
        comparisons = {metric: against(preset.against, complete, store, metric) for metric in ("ece", "nll")}
        return {
            m: replace(entry, against={metric: by[m] for metric, by in comparisons.items() if m in by})
            for m, entry in entries.items()
        }
    if preset.kind != "table" or len(complete) < 2:
        return dict(entries)
    return with_marks(preset, entries, {metric: best_of(complete, store, metric) for metric in marked_metrics(preset)})


def marked_metrics(preset: Preset) -> list[str]:
    """The table's own and those beside it; predictions are kept for test nodes only."""
    return [metric for metric in (preset.metric, *preset.beside) if not metric.startswith("all_")]


def with_marks(
    preset: Preset, entries: Mapping[str, Entry], tests: Mapping[str, tuple[str, Mapping[str, Difference]]]
) -> dict[str, Entry]:
    """The entries with what the tests say; for each metric the row's best method, and every other one minus it."""
    marks = {metric: marks_of(best, others) for metric, (best, others) in tests.items()}
    ranking = marks.pop(preset.metric, {})
    return {
        m: replace(
            entry,
            best=ranking.get(m) == "bold",
            tied=ranking.get(m) == "italic",
            styles={metric: styles.get(m, "") for metric, styles in marks.items()},
        )
        for m, entry in entries.items()
    }
