"""From one score per row to a queue of alerts: the job of `graphcal alerts`.

    scores, labels -> calibrated probabilities (tables.two_classes) -> sets of the highest rows (decisions.alerts) -> files

Without edges every calibration keeps the order of the scores, so all labels may fit it and judge it. With edges, half of the
labels choose and fit, and the other half judges: the order depends on the first half only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from graphcal import __version__
from graphcal.core import Calibration
from graphcal.decisions.alerts import (
    AlertThreshold,
    Closing,
    Estimate,
    LabelSample,
    PrecisionPromise,
    percent,
)
from graphcal.decisions.bounds import check_inclusion
from graphcal.decisions.windows import QueueEstimate, WindowEstimate, cut_windows
from graphcal.files import write_atomically, write_record
from graphcal.methods.positive_curves import BetweenCurves, after_shift, apply_curve, fit_curve
from graphcal.metrics.references import reference_summary
from graphcal.metrics.row_comparison import FEWEST, compare_rows
from graphcal.tables.score_column import KINDS, ScoreColumn, duration, kind_of
from graphcal.tables.two_classes import CurveChoice, average_precision, choose_curve, cross_fitted, curve_folds
from graphcal.text import Summarized, class_title, plural, sentences

Array = NDArray[Any]
SCHEMA = 1  # of results.json
TARGETS = (0.9, 0.5)
CURVE = 60  # numbers of rows sent between which the page draws lines
SURE = 3.5  # standard errors between the number of labels and the one that the stated chances expect
MATERIAL = 0.01  # fall of the average precision that is worth a warning
DECISIONS = ("review", "close", "undecided", "labelled", "training")


@dataclass(frozen=True)
class LabelEvidence:
    """Verdict on the labelled rows: can they carry intervals and promises about the others?"""

    design: str  # "random draw", "known chances"
    carries: bool
    guarantee: bool  # the user stated the design, and nothing speaks against it
    labels: int
    positives: int
    sentence: str


@dataclass(frozen=True, eq=False)
class Alerts(Summarized):
    """A queue of alerts with its thresholds, what may be closed, and how far the labels carry it.

    >>> import numpy as np, graphcal
    >>> rng = np.random.default_rng(0)
    >>> p = rng.beta(0.3, 6, 8000)
    >>> y = np.where(np.arange(8000) < 2000, rng.random(8000) < p, -1)  # the first 2,000 rows are labelled
    >>> queue = graphcal.alerts(p, y, kind="probs", capacity=200)
    >>> queue.threshold.rows, queue.evidence.carries, int((queue.decision == "review").sum())
    (200, True, 200)
    """

    positive: str  # name of the class
    thresholds: tuple[AlertThreshold, ...]
    threshold: AlertThreshold
    closing: Closing
    promises: tuple[PrecisionPromise, ...]
    evidence: LabelEvidence
    choice: CurveChoice
    expected: float  # positives among unlabelled rows
    average_precision: tuple[float, float]  # of the scores as given and after calibration, on labelled rows
    notes: tuple[str, ...]
    ids: Any = field(repr=False)  # (N,)
    probability: Array = field(repr=False)  # (N,)
    rank: Array = field(repr=False)  # (N,) 1 is the highest unlabelled row; 0 for labelled ones
    decision: Array = field(repr=False)  # (N,) review, close, undecided, labelled or training
    judged: Array = field(repr=False)  # (N,) labels that judge the calibration; -1 elsewhere
    calibration: Calibration = field(repr=False)
    curve: tuple[AlertThreshold, ...] = field(repr=False)  # from one row to all, for the page
    windows: tuple[WindowEstimate, ...] = ()

    @property
    def sentence(self) -> str:
        """The chosen threshold in one sentence."""
        c, name = self.threshold, class_title(self.positive)
        interval = (
            "" if c.precision.low is None else f" ({percent(c.precision.low)} to {percent(c.precision.high or 0)} %)"
        )
        about = "" if self.evidence.carries else " This is an estimate."
        rows = f"{c.rows:,} highest rows" if c.rows > 1 else "highest row"
        return (
            f"Sending the {rows} to review finds about {percent(c.recall.value)} % of {name}; "
            f"{percent(c.precision.value)} % of them will be {name}{interval}.{about}"
        )

    @property
    def summary(self) -> list[tuple[str, str]]:
        """Headings and texts, the most useful first."""
        return [
            ("Alerts", self.sentence),
            ("Close", self.closing_text()),
            ("Promise", self.promise_text()),
            ("Labels", self.evidence.sentence),
            ("Method", self.choice.reason()),
            *(("Note", note) for note in self.notes),
        ]

    def closing_text(self) -> str:
        """Rows that may be closed, or the labels that are missing."""
        c, name = self.closing, class_title(self.positive)
        goal = f"at most {100 * c.max_missed:g} % of {name} lost, {100 * c.certainty:g} % certain"
        if not self.evidence.carries:
            return f"Nothing can be closed with certainty: the labels cannot carry it. {self._missing_text()}"
        if c.rows:
            rows = f"{c.rows:,} lowest rows" if c.rows > 1 else "lowest row"
            return f"The {rows} can be closed: {goal}. Expected among them: {plural(c.missed, 'row')} of {name}."
        if c.labels_missing:
            there = f"there {'is' if self.evidence.positives == 1 else 'are'} {self.evidence.positives:,}"
            return (
                f"Nothing can be closed yet ({goal}): this takes {c.positives_needed:,} labelled rows of {name}, {there}. "
                f"About {round_up(c.labels_missing):,} more random labels would bring them."
            )
        return f"Nothing can be closed ({goal}): {name} occurs among the lowest rows, too."

    def promise_text(self) -> str:
        """The promised precisions, or the labels that are missing."""
        if not self.evidence.carries:
            return "None: all figures are estimates from calibrated probabilities."
        word = "Guaranteed" if self.evidence.guarantee else "If labels were drawn at random"
        name = class_title(self.positive)
        kept = [
            f"at least {100 * p.precision:g} % of the {p.rows:,} highest rows are {name}"
            for p in self.promises
            if p.rows
        ]
        missing = [
            f"{p.labels_missing:,} more random labels among the {p.among:,} highest rows for {100 * p.precision:g} %"
            for p in self.promises
            if p.labels_missing
        ]
        distant = [f"{100 * p.precision:g} %" for p in self.promises if not p.rows and not p.labels_missing]
        text = "No target precision can be promised yet."
        if kept:
            text = f"{word}, {100 * self.closing.certainty:g} % certain: {'; '.join(kept)}."
        text += f" Missing: {'; '.join(missing)}." if missing else ""
        return text + (f" Too few rows are expected to be clearly above {' or '.join(distant)}." if distant else "")

    def _missing_text(self) -> str:
        """Random labels that intervals at the chosen threshold would take."""
        p = min(max(self.threshold.precision.value, 0.05), 0.95)
        among = min(round_up(4 * p * (1 - p) / 0.01), self.threshold.rows)
        of_all = round_up(self.closing.positives_needed * self.num_unlabelled / max(self.expected, 0.5))
        return (
            f"Label about {among:,} random rows of the {self.threshold.rows:,} highest for their precision to 10 points, and "
            f"{min(of_all, self.num_unlabelled):,} random rows of all to close any."
        )

    @property
    def num_unlabelled(self) -> int:
        """Rows without a label, which are ranked."""
        return int((self.rank > 0).sum())

    def to_dict(self) -> dict[str, Any]:
        """The content of ``results.json``, see schemas/alerts.schema.json."""
        before, after = self.average_precision
        counts = {word: int((self.decision == word).sum()) for word in DECISIONS}
        return {
            "schema": SCHEMA,
            "graphcal": __version__,
            "positive": self.positive,
            "sentence": self.sentence,
            "threshold": asdict(self.threshold),
            "thresholds": [asdict(one) for one in self.thresholds],
            "closing": asdict(self.closing),
            "promises": [asdict(one) for one in self.promises],
            "evidence": asdict(self.evidence),
            "calibration": self.choice.to_dict(),
            "average_precision": {"before": before, "after": after},
            "expected_positives": self.expected,
            "rows": counts,
            "windows": [asdict(one) for one in self.windows],
            "notes": list(self.notes),
        }

    def table(self) -> pa.Table:
        """The rows with probability, rank and decision."""
        rank, decision = pa.array(self.rank, mask=self.rank == 0), pa.array(self.decision.tolist())
        return pa.table({"id": self.ids, "probability": self.probability, "rank": rank, "decision": decision})

    def save(self, folder: str | Path) -> Path:
        """Write alerts.parquet, calibrator.safetensors and report.html, then results.json; return the folder."""
        from graphcal.reports.alerts_page import alerts_page
        from graphcal.saving import save
        from graphcal.tables.writing import write_table

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        written = [write_table(folder / "alerts.parquet", iter([self.table()]))]
        written.append(save(self.calibration, folder / "calibrator.safetensors"))
        write_atomically(folder / "report.html", alerts_page(self))
        write_record(folder / "results.json", self.to_dict(), written)
        return folder


def alerts(
    scores: Any,
    y: Any,
    *,
    kind: str | None = None,
    positive: str = "1",
    negative: str = "0",
    ids: Any = None,
    edges: Any = None,
    training: Any = None,
    inclusion: Any = None,
    reviewed_above: float | None = None,
    random_share: float | None = None,
    time: Any = None,
    label_delay: str | float | None = None,
    fit_until: str | float | None = None,
    window: str = "auto",
    capacity: int | None = None,
    cost_alert: float | None = None,
    cost_miss: float | None = None,
    precisions: Sequence[float] = TARGETS,
    max_missed: float = 0.05,
    certainty: float = 0.95,
    class_weight: float | None = None,
    random_draw: bool = False,
    seed: int = 0,
) -> Alerts:
    """Turn one score per row into a queue of alerts with honest precision and recall.

    Parameters
    ----------
    scores : (N,)
        Probability of the positive class, log-odds, or any score that grows with it.
    y : (N,)
        1, 0, or -1 (or NaN) where no label is known.
    kind : "probs", "logits" or "scores", optional
        What the scores are; inferred from their range with a note.
    positive, negative : str
        Names of the classes 1 and 0, for sentences and files.
    ids : (N,), optional
        Names of the rows; row numbers without them.
    edges : (2, E), optional
        Row numbers of neighbours; makes graph scaling a candidate.
    training : (N,) bool, optional
        Rows that trained the model: they are neither sent nor used.
    inclusion : (N,), optional
        Known probability with which each row was drawn for labelling.
    reviewed_above, random_share : float, optional
        The labelling policy "all rows with a score above this, and this share of the others at random".
    time, label_delay, fit_until : optional
        Times (N,); rows younger than the delay ("30d"), or later than ``fit_until``, count as unlabelled.
    window : "auto", "day", "week" or "month"
        Calendar windows of the estimates over time.
    capacity : int, optional
        Number of rows that can be reviewed.
    cost_alert, cost_miss : float, optional
        Cost of reviewing a row and of missing a positive one.
    precisions : sequence of float
        Target precisions that are marked and promised where the labels allow it.
    max_missed : float
        Share of the positives that may be lost by closing rows.
    certainty : float
        Certainty of intervals and promises.
    class_weight : float, optional
        Weight of the positive class in training (or how many times negatives were thinned); it is undone.
    random_draw : bool
        State that the labelled rows are a random sample. Required for a guarantee.
    seed : int
        Seed of cross-validation and of the split with edges.

    Returns
    -------
    Alerts
        Thresholds with precision and recall, rows to close, and a decision per row.

    >>> import numpy as np, graphcal
    >>> rng = np.random.default_rng(0)
    >>> p = rng.beta(0.3, 6, 8000)
    >>> y = np.where(np.arange(8000) < 2000, rng.random(8000) < p, -1)
    >>> graphcal.alerts(p, y, capacity=200).threshold.precision.text()
    '32 % (20 to 49)'
    """
    values, labels = np.asarray(scores, dtype=np.float64).reshape(-1), as_labels(y)
    if len(labels) != len(values):
        raise ValueError(f"y must have shape ({len(values)},) to match the scores, got ({len(labels)},)")
    notes: list[str] = []
    odds, kind, remarks = log_odds_of(values, kind)
    notes += remarks
    if class_weight is not None:
        odds = odds - np.log(class_weight)
    young, remarks = too_young(time, label_delay, fit_until, labels)
    notes += remarks
    trained = np.zeros(len(values), bool) if training is None else np.asarray(training, dtype=bool)
    labels = np.where(young | trained, -1, labels)
    chance = inclusion_of(values, labels, young, trained, inclusion, reviewed_above, random_share)
    labelled, hit = labels >= 0, labels == 1
    name = class_title(positive)
    if not hit.any():
        if young.any():
            raise ValueError(f"No row that is old enough is labelled {name}. Use a shorter delay or a later last day.")
        raise ValueError(f"No row is labelled {name}: its share cannot be estimated. Label some rows of {name}.")
    if labelled.sum() < 2:
        raise ValueError("Only one row has a label. Label some rows drawn at random.")
    some, when = ~trained, None if time is None else np.asarray(time)[~trained]
    inclusions = None if chance is None else chance[some]
    evidence = judge_labels(odds[some], labels[some], inclusions, young[some], when, name, random_draw)
    weight = np.ones(len(odds)) if chance is None else 1 / chance
    span = (float(odds.min()), float(odds.max()) + 1e-9)

    if edges is None:
        fit_rows, judging = labelled, labelled
        choice = choose_curve(odds[labelled], hit[labelled], weight[labelled], span, kind == "probs")
        prob, ranking, calibration = apply_curve(choice.calibration, odds), odds, choice.calibration
    else:
        rng = np.random.default_rng(seed)
        rows = rng.permutation(np.flatnonzero(labelled))
        fit_rows = np.zeros(len(odds), bool)
        fit_rows[rows[: len(rows) // 2]] = True
        judging = labelled & ~fit_rows
        choice, prob, ranking, calibration = with_graph(odds, labels, fit_rows, weight, span, kind, edges)
    before = average_precision(odds[judging], hit[judging], weight[judging])
    after = average_precision(ranking[judging], hit[judging], weight[judging])
    if after < before - MATERIAL:
        notes.append(f"Ranking got worse: average precision {before:.3f} before and {after:.3f} after calibration.")
    elif after > before + MATERIAL:
        notes.append(f"Ranking got better: average precision {before:.3f} before and {after:.3f} after calibration.")

    pool = np.flatnonzero((judging | ~labelled) & ~trained)
    if chance is not None and young.any():  # a row that could be labelled is an old one
        chance = np.where(chance >= 1, 1 - 1e-9, chance) * float((~young).mean())
    if chance is not None and edges is not None:  # half of the labelled rows have left the pool
        chance = chance / (2 - chance)
    drawn_with = None if chance is None else chance[pool]
    sample = LabelSample(ranking[pool], prob[pool], judging[pool], hit[pool], drawn_with, certainty, seed)
    if not sample.num_unlabelled:
        raise ValueError(
            "Every row has a label: there is nothing to send. Add the rows to be reviewed, without a label."
        )
    table, threshold = threshold_table(sample, evidence.carries, capacity, cost_alert, cost_miss, precisions)
    sizes = {*np.geomspace(1, sample.num_unlabelled, CURVE).astype(int).tolist(), *(row.rows for row in table)}
    curve = sample.thresholds(sorted(sizes), evidence.carries)
    closing = sample.closing(max_missed, evidence.carries)
    promises = tuple(sample.promised_precision(p) for p in precisions) if evidence.carries else ()
    queue = pool[sample.order[sample.unlabelled_at]]  # highest first
    rank = np.zeros(len(odds), np.int64)
    rank[queue] = np.arange(1, len(queue) + 1)
    decision = np.full(len(odds), "labelled", dtype=object)
    decision[trained] = "training"
    decision[queue] = "undecided"
    decision[queue[len(queue) - closing.rows :]] = "close"
    decision[queue[: threshold.rows]] = "review"
    estimate = queue_estimate(sample, threshold, evidence.carries, name)
    old = ~young & ~trained
    served = after_shift(calibration, 0.0 if class_weight is None else -float(np.log(class_weight)))
    fitting_period = prob[old if old.any() else ~trained]
    attach_metadata(served, kind, (negative, positive), int(fit_rows.sum()), fitting_period, estimate)
    return Alerts(
        positive, tuple(table), threshold, closing, promises, evidence, choice, estimate.expected.value, (before, after),
        tuple(notes), pa.array(np.arange(len(odds))) if ids is None else ids, prob, rank, decision,
        np.where(judging, labels, -1), served, tuple(curve),
        windows_of(estimate, prob, rank, decision == "review", odds, time, old, window),
    )  # fmt: skip


def queue_estimate(sample: LabelSample, threshold: AlertThreshold, intervals: bool, positive: str) -> QueueEstimate:
    """Estimates of all unlabelled rows at the chosen threshold, to be carried to windows."""
    start, end = np.array([0]), np.array([len(sample.prob)])
    value = float(sample.expected(start, end, intervals)[0])
    counts = sample.positives_between(start, end, 1 - sample.certainty) if intervals else None
    expected = Estimate(value) if counts is None else Estimate(value, float(counts[0][0]), float(counts[1][0]))
    prob = sample.prob[sample.unlabelled_at]
    above, total = float(prob[: threshold.rows].sum()), max(float(prob.sum()), 1e-12)
    return QueueEstimate(
        positive, threshold.threshold, threshold.precision, threshold.recall, expected,
        above / threshold.rows, above / total, total, sample.certainty,
    )  # fmt: skip


def windows_of(
    queue: QueueEstimate, prob: Array, rank: Array, sent: Array, odds: Array, time: Any, old: Array, window: str
) -> tuple[WindowEstimate, ...]:
    """Estimates for each calendar window of the unlabelled rows; empty without times."""
    if time is None:
        return ()
    raw = 1 / (1 + np.exp(-np.clip(odds, -30, 30)))
    result = []
    for name, inside in cut_windows(time, len(rank), window):
        older = old.copy()
        older[inside] = False
        inside = inside[rank[inside] > 0]
        drift = ""
        if min(len(inside), int(older.sum())) >= FEWEST:
            covariate = f"probability of {queue.positive}"
            comparison = compare_rows({covariate: raw[inside]}, {covariate: raw[older]}, most=(1000, 2000), draws=399)
            drift = comparison.text("the window", "the fitting period") if comparison.differ else ""
        if len(inside):
            result.append(queue.window(name, prob[inside], sent[inside], drift))
    return tuple(result)


def alerts_of_table(
    path: str | Path,
    column: ScoreColumn,
    id_: str = "",
    label: str = "",
    labels: str | Path | None = None,
    edges: str | Path | None = None,
    time: str = "",
    inclusion: str = "",
    **options: Any,
) -> Alerts:
    """Read a table that `graphcal.tables.score_column.look` has seen, and call `alerts`; roles are names of columns."""
    from graphcal.tables.edges import read_edges
    from graphcal.tables.reading import read_table, remark_on_order

    columns = {"scores": column.column} | ({"id": id_} if id_ else {}) | ({"label": label} if label else {})
    kind = {"scores": "logits"}.get(column.kind or "", column.kind)
    table = read_table(path, kind, "binary", column.classes, labels, columns)
    y = table.labels.numpy()
    accuracy = remark_on_order(table.logits, y)  # at 50 %, which is no threshold of alerts
    notes = [*column.notes, *(note for note in table.notes if note not in accuracy)]
    training = None if table.split is None else table.split.train
    if training is not None and training.any():
        notes.append(f"{int(training.sum()):,} training rows are neither sent nor used")
    logits = table.logits.double()
    values = np.asarray((logits[:, 1] - logits[:, 0]).numpy())
    kind = column.kind or table.kind.name
    if kind != "logits" and kind != "scores":
        values = 1 / (1 + np.exp(-values))
    chance = None if not inclusion else table.column(inclusion).to_numpy().astype(np.float64)
    edge_index = None if edges is None else read_edges(edges, table.ids, {})
    result = alerts(
        values, y, kind="probs" if kind in ("probs", "log-probs") else kind, positive=column.classes[1],
        negative=column.classes[0], ids=table.ids, edges=edge_index, training=training, inclusion=chance,
        time=table.times(time) if time else None, **options,
    )  # fmt: skip
    return replace(result, notes=(*sentences(notes), *result.notes))


# Input


def as_labels(y: Any) -> Array:
    """(N,) 1, 0 and -1 for no label, from numbers, booleans or missing values."""
    values = np.asarray(
        [np.nan if v is None else v for v in y] if np.asarray(y).dtype == object else y, dtype=np.float64
    )
    values = np.where(np.isnan(values), -1, values).reshape(-1)
    strange = ~np.isin(values, (-1, 0, 1))
    if strange.any():
        raise ValueError(f"y must be 1, 0, or -1 for no label; got {values[strange][0]:g}.")
    return values.astype(np.int64)


def log_odds_of(values: Array, kind: str | None) -> tuple[Array, str, list[str]]:
    """Scores as log-odds, their kind, and a note where it was inferred."""
    if not np.isfinite(values).all():
        raise ValueError(
            f"{int((~np.isfinite(values)).sum()):,} scores are missing or infinite. Fill them or leave the rows out."
        )
    if len(values) == 0 or values.min() == values.max():
        raise ValueError("All scores are equal: there is nothing to rank.")
    notes = []
    if kind is None:
        kind = kind_of(values.min(), values.max())
        notes.append(f"Scores from {values.min():.3g} to {values.max():.3g} are taken as {KINDS[kind]}.")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    if kind != "probs":
        return values, kind, notes
    if values.min() < 0 or values.max() > 1:
        raise ValueError(f"Probabilities must lie in 0..1; got {values.min():.3g} to {values.max():.3g}.")
    clipped = np.clip(values, 1e-12, 1 - 1e-12)
    return np.log(clipped) - np.log1p(-clipped), kind, notes


def too_young(
    time: Any, delay: str | float | None, until: str | float | None, labels: Array
) -> tuple[Array, list[str]]:
    """(N,) bool: rows whose labels do not count yet, and a note."""
    young = np.zeros(len(labels), bool)
    if delay is None and until is None:
        return young, []
    if time is None:
        raise ValueError(
            "A label delay or a last day of fitting needs the times of the rows. Pass the column of times."
        )
    times = np.asarray(time)
    dates = np.issubdtype(times.dtype, np.datetime64)
    try:
        if delay is not None:
            young |= times > times.max() - (duration(str(delay)) if dates else float(delay))
        if until is not None:
            last: Any = np.datetime64(str(until)) if dates else float(until)
            young |= times >= last + np.timedelta64(1, "D") if dates and len(str(until)) == 10 else times > last
    except ValueError as fault:
        kind = (
            "dates: write a delay as 30d and a day as 2026-09-30"
            if dates
            else "numbers: write delay and day as numbers"
        )
        raise ValueError(f"The times of the rows are {kind}. {fault}".rstrip(".") + ".") from None
    count = int((young & (labels >= 0)).sum())
    note = f"{plural(int(young.sum()), 'row')} too recent for a label count as unlabelled"
    return young, [note + (f", also {count:,} that have one." if count else ".")]


def inclusion_of(
    values: Array, labels: Array, young: Array, trained: Array, inclusion: Any, above: float | None, share: float | None
) -> Array | None:
    """Known probability (N,) with which each row that is old enough was labelled; None for a simple random sample."""
    if (above is None) != (share is None):
        raise ValueError("A labelling policy needs both parts: reviewed_above and random_share.")
    if inclusion is not None and above is not None:
        raise ValueError("Pass the inclusion probabilities or a labelling policy, not both.")
    if above is not None and share is not None:
        if not 0 < share < 1:
            raise ValueError(f"The share of the other rows must lie between 0 and 1, got {share:g}; 0.02 means 2 %.")
        chance, of = (
            np.where(values > above, 1.0, share),
            f"The policy says that every row with a score above {above:g}",
        )
    elif inclusion is not None:
        chance, of = check_inclusion(inclusion, len(values)), "An inclusion probability of 1 says that every such row"
    else:
        return None
    if missing := int(((chance >= 1) & (labels < 0) & ~young & ~trained).sum()):
        raise ValueError(
            f"{of} is labelled, but {missing:,} are not. Pass the chances with which rows were really drawn."
        )
    return chance


# Labels


def judge_labels(
    odds: Array, labels: Array, chance: Array | None, young: Array, time: Array | None, positive: str, random_draw: bool
) -> LabelEvidence:
    """Compare labelled rows with what the stated design, or a random draw, would have drawn."""
    labelled, design = labels >= 0, "random draw" if chance is None else "known chances"
    count, hits = int(labelled.sum()), int((labels == 1).sum())
    have = f"{plural(count, 'label')}, {hits:,} of {positive}"

    def evidence(carries: bool, text: str) -> LabelEvidence:
        promised = carries and (random_draw or chance is not None)
        start = f"The labels can{'' if carries else 'not'} carry a promise"
        return LabelEvidence(design, carries, promised, count, hits, f"{start}{text} ({have}).")

    if count < FEWEST:
        return evidence(False, f": fewer than {FEWEST}")
    score = {f"probability of {positive}": 1 / (1 + np.exp(-np.clip(odds, -30, 30)))}
    frame = ~young if chance is None else ~young & (chance < 1)
    drawn, others = labelled & frame, frame & ~labelled
    if chance is not None:
        spread = chance * (1 - chance)
        due, come = float(chance[frame].sum()), int(drawn.sum())
        if abs(come - due) > SURE * np.sqrt(float(spread[frame].sum())):
            rows = f"{come:,} rows are labelled"
            if np.ptp(chance[frame]) > 0:
                return evidence(False, f": {rows}, the stated chances would have drawn about {due:,.0f}")
            share, of = float(chance[frame][0]), "rows below the threshold" if (chance[~young] >= 1).any() else "rows"
            seen = come / int(frame.sum())
            return evidence(
                False,
                f": {100 * seen:.4g} % of the {of} are labelled, {100 * share:.4g} % were stated; if they were drawn at random, "
                f"state {seen:.4g}",
            )
        off = float(chance[drawn].sum() - (chance**2)[frame].sum())
        if abs(off) > SURE * np.sqrt(float((chance**2 * spread)[frame].sum())):
            return evidence(False, ": rows with a higher stated chance are not labelled more often in that measure")
    older = labelled if chance is None else ~young  # with known chances all older rows, whatever their chance
    groups = [(drawn, others, score, chance), (older, young, score, None)]
    if time is not None:
        groups.insert(0, (drawn, others, {**score, "time": time}, chance))
    for first, second, covariates, inclusion in groups:
        if min(first.sum(), second.sum()) < FEWEST:
            continue
        comparison = compare_rows(
            {name: column[first] for name, column in covariates.items()},
            {name: column[second] for name, column in covariates.items()},
            inclusion=None if inclusion is None else (inclusion[first], inclusion[second]),
        )
        if comparison.differ and second is young:
            return evidence(
                False, f" about recent rows, which have changed; {comparison.text('older rows', 'recent rows')}"
            )
        if comparison.differ:
            fault = (
                "labelled rows are not a random draw"
                if chance is None
                else "they were not drawn with the stated chances"
            )
            return evidence(False, f": {fault}; {comparison.text('labelled rows')}")
    if young.any():
        have += "; for recent rows it also takes that they are like the older ones, and their scores are"
    if chance is not None:
        return evidence(True, ": they look as drawn with the stated chances")
    if random_draw:
        return evidence(True, ": stated as a random draw, and they look like one")
    return evidence(True, " if they were drawn at random: no difference to other rows is seen")


# Calibration


def with_graph(
    odds: Array, labels: Array, fit_rows: Array, weight: Array, span: tuple[float, float], kind: str, edges: Any
) -> tuple[CurveChoice, Array, Array, Calibration | None]:
    """Compare graph scaling with the curves on the fitting rows: choice, probabilities, ranking and calibration.

    Scores of any scale are standardized for it. Its fit has no weights: where rows were drawn with different chances, a weighted
    Platt curve of its held-out log-odds follows it.
    """
    from torch_geometric.data import Data

    from graphcal.core import Outputs
    from graphcal.methods import CALIBRATORS
    from graphcal.study import Study, held_out
    from graphcal.tables.calibration import edges_of

    on, hit, w = torch.from_numpy(fit_rows), labels[fit_rows] == 1, weight[fit_rows]
    slope, shift = 1.0, 0.0
    if kind == "scores":
        slope, shift = 1 / float(odds.std()), -float(odds.mean() / odds.std())
    half = torch.from_numpy((slope * odds + shift) / 2).float()
    graph = Data(
        y=torch.from_numpy(np.where(fit_rows, labels, -1)), val_mask=on, edge_index=edges_of(edges), num_nodes=len(odds)
    )
    out, recipe = Outputs(torch.stack([-half, half], -1), graph), CALIBRATORS["graph-scaling"]()
    folds = curve_folds(int(fit_rows.sum()))
    log_probs = held_out(out, recipe, on, [torch.from_numpy(fold) for fold in folds]).double()
    held_odds = (log_probs[:, 1] - log_probs[:, 0]).numpy()
    held, after = log_probs[:, 1].exp().numpy(), after_shift(None, 0.0)
    if not (w == w[0]).all():
        ends = (float(held_odds.min()), float(held_odds.max()) + 1e-9)
        again, curve = (
            cross_fitted("platt", held_odds, hit, w, ends, folds),
            fit_curve("platt", held_odds, hit, w, ends),
        )
        if again is not None and curve is not None:
            held, after = again, curve
    choice = choose_curve(odds[fit_rows], hit, w, span, kind == "probs", {"graph-scaling": held})
    if choice.name != "graph-scaling":
        return choice, apply_curve(choice.calibration, odds), odds, choice.calibration
    fitted = Study.of([out], {"graph-scaling": recipe}, on=on).fitted["graph-scaling"][0]
    log_probs = after.log_probs(fitted.log_probs.double(), fitted.log_probs[:, :0])
    inner = fitted.calibration
    calibration = BetweenCurves(
        slope=slope, shift=shift, inner=inner, after=after, num_classes=2, fitted_on=inner.fitted_on
    )
    return choice, log_probs[:, 1].exp().numpy(), (log_probs[:, 1] - log_probs[:, 0]).numpy(), calibration


def attach_metadata(
    calibration: Calibration, kind: str, classes: Sequence[str], fitted: int, prob: Array, queue: QueueEstimate
) -> None:
    """Store what `graphcal score` and `watch` need to read other tables; ``prob`` are those of the fitting period."""
    p = torch.from_numpy(np.clip(prob, 1e-12, 1 - 1e-12))
    log_probs = torch.stack([torch.log1p(-p), p.log()], -1)
    calibration.fitted_on |= {
        "fitting_nodes": fitted,
        "nodes": len(prob),
        "class_names": list(classes),
        "table": {"kind": "probs" if kind == "probs" else "logits", "digits": None, "classes": list(classes)},
        "reference": {**reference_summary(log_probs), "alerts": asdict(queue)},
    }


# The table


def threshold_table(
    sample: LabelSample,
    intervals: bool,
    capacity: int | None,
    cost_alert: float | None,
    cost_miss: float | None,
    precisions: Sequence[float],
) -> tuple[list[AlertThreshold], AlertThreshold]:
    """Rows of the table, the marked ones among them, and the one that is worked with."""
    n = sample.num_unlabelled
    sizes = np.unique(np.concatenate([np.geomspace(1, n, 300), np.linspace(1, n, 300)]).astype(np.int64))
    end = sample.ends(sizes)
    positives = sample.expected(np.zeros_like(end), end, intervals)
    left = sample.expected(end, np.full_like(end, len(sample.prob)), intervals)
    marks: dict[int, list[str]] = {}
    break_even = int(np.clip(round(float(positives[-1])), 1, n))
    if capacity is not None:
        marks.setdefault(min(capacity, n), []).append("capacity")
    if cost_alert is not None and cost_miss is not None:
        cheapest = int(sizes[(cost_alert * sizes + cost_miss * left).argmin()])
        marks.setdefault(cheapest, []).append("lowest cost")
    if not marks:
        marks[break_even] = ["as many as expected"]
    working_rows = next(iter(marks))
    for precision in precisions:
        reached = np.flatnonzero(positives >= precision * sizes)
        if len(reached):
            marks.setdefault(int(sizes[reached[-1]]), []).append(f"{100 * precision:g} % target")
    far = min(n, max([*marks, 10 * break_even]))
    plain = [digit * 10**power for power in range(1, 10) for digit in (1, 2, 5) if digit * 10**power <= far]
    rows = sorted({*marks, *plain[-9:]})
    lines = sample.thresholds(rows, intervals, cost_alert, cost_miss)
    table = [replace(one, marks=tuple(marks.get(one.rows, ()))) for one in lines]
    return table, next(one for one in table if one.rows == working_rows)


def round_up(value: float) -> int:
    """A count rounded up to two digits.

    >>> round_up(1234), round_up(7.2)
    (1300, 8)
    """
    unit = 10 ** max(0, len(str(int(value))) - 2)
    return int(-(-value // unit) * unit)
