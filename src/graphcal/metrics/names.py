"""Names of metrics: key, titles, unit, direction and meaning, once for every table, page, figure and command.

A value is a fraction wherever it is computed or stored; `percent` metrics are multiplied by 100 where they are shown.
`signed_gap` is accuracy minus confidence: positive is under-confident.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["percent", "number", "seconds"]
Best = Literal["lower", "higher", "zero", "neither"]


@dataclass(frozen=True)
class Metric:
    """One quantity. `title` is for headings and axes, `short` for narrow columns."""

    key: str
    title: str
    short: str
    unit: Unit
    best: Best
    meaning: str

    @property
    def scale(self) -> int:
        """Factor from the stored value to the shown one."""
        return 100 if self.unit == "percent" else 1

    @property
    def digits(self) -> int:
        """Decimals of a shown value."""
        return 2 if self.unit == "percent" else 4

    @property
    def heading(self) -> str:
        """The title with its unit."""
        return f"{self.title} %" if self.unit == "percent" else self.title

    def text(self, value: float | None, digits: int | None = None, sign: bool = False) -> str:
        """A stored value as it is shown, without its unit except for seconds."""
        if value is None:
            return "–"
        if self.unit == "seconds":
            return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
        return f"{self.scale * value:{'+' if sign else ''}.{self.digits if digits is None else digits}f}"

    def cost(self, value: float) -> float:
        """The value turned so that smaller is better."""
        return {"higher": -value, "zero": abs(value)}.get(self.best, value)


METRICS: dict[str, Metric] = {
    m.key: m
    for m in (
        Metric("accuracy", "accuracy", "acc", "percent", "higher", "share of right predictions"),
        Metric("confidence", "confidence", "conf", "percent", "neither", "mean probability of the predicted class"),
        Metric("signed_gap", "gap", "gap", "percent", "zero", "accuracy minus confidence: positive is under-confident"),
        Metric(
            "ece", "ECE", "ECE", "percent", "lower",
            "expected calibration error: mean distance between confidence and accuracy",
        ),
        Metric(
            "ece_floor", "floor", "floor", "percent", "neither",
            "the ECE a perfectly calibrated model would show on this many nodes",
        ),
        Metric(
            "ece_excess", "excess", "excess", "percent", "lower",
            "ECE minus its floor: comparable between methods, but less than the true error",
        ),
        Metric(
            "label_limit", "label limit", "limit", "percent", "neither",
            "the ECE that a one-parameter fit of the right form is expected to show: its level comes from the validation labels",
        ),
        Metric(
            "true_error", "true error", "true", "percent", "lower",
            "the calibration error behind the noise of the measurement (median-unbiased estimate)",
        ),
        Metric("ece_debiased", "debiased ECE", "debiased", "percent", "lower", "ECE minus its sampling bias"),
        Metric(
            "overconfidence", "over-confidence", "over", "percent", "lower",
            "the part of ECE from bins that claim more than they keep",
        ),
        Metric(
            "underconfidence", "under-confidence", "under", "percent", "lower",
            "the part of ECE from bins that keep more than they claim",
        ),
        Metric(
            "confidence_right", "confidence when right", "conf right", "percent", "higher",
            "mean confidence of right predictions",
        ),
        Metric(
            "confidence_wrong", "confidence when wrong", "conf wrong", "percent", "lower",
            "mean confidence of wrong predictions",
        ),
        Metric("nll", "NLL", "NLL", "number", "lower", "mean negative log-probability of the true class"),
        Metric(
            "brier", "Brier", "Brier", "number", "lower", "mean squared distance between probabilities and the truth"
        ),
        Metric(
            "auroc", "AUROC", "AUROC", "percent", "higher",
            "probability that confidence ranks a right prediction above a wrong one",
        ),
        Metric("aurc", "AURC", "AURC", "percent", "lower", "area under the risk-coverage curve of the confidence"),
        Metric(
            "eaurc", "E-AURC", "E-AURC", "percent", "lower",
            "excess AURC: what the best order of the same predictions would save",
        ),
        Metric(
            "coverage_at_5", "oracle coverage at 5 % error", "oracle at 5 %", "percent", "higher",
            "largest share of the nodes, most confident first, of which at most 5 % are wrong: reads the test labels, and is "
            "more than `decide` can certify",
        ),
        Metric(
            "worst_slice", "worst slice", "worst", "percent", "lower",
            "largest gap between accuracy and confidence of a group of nodes, without its noise",
        ),
        Metric("ece_equal_mass", "equal-mass ECE", "equal mass", "percent", "lower", "ECE in bins of equal counts"),
        Metric(
            "ece_classwise", "class-wise ECE", "class-wise", "percent", "lower",
            "calibration error of every class's own probability",
        ),
        Metric(
            "ece_top_label", "top-label ECE", "top-label", "percent", "lower",
            "calibration error of the confidence given the predicted class",
        ),
        Metric("mce", "MCE", "MCE", "percent", "lower", "largest distance between confidence and accuracy of a bin"),
        Metric("smooth_ece", "smooth ECE", "smooth", "percent", "lower", "calibration error without bins"),
        Metric("kde_ece", "KDE-ECE", "KDE", "percent", "lower", "calibration error by kernel density"),
        Metric("changed", "changed predictions", "changed", "percent", "neither", "predictions a calibration changed"),
        Metric(
            "confidence_unknown", "confidence on the unknown class", "conf new", "percent", "lower",
            "mean confidence on nodes of a class that training never saw",
        ),
        Metric(
            "auroc_unknown", "AUROC of known over unknown", "AUROC new", "percent", "higher",
            "how well low confidence gives nodes of an unknown class away",
        ),
        Metric("fit_seconds", "fit", "fit", "seconds", "lower", "time to fit the calibrator"),
        Metric("apply_seconds", "apply", "apply", "seconds", "lower", "time to calibrate all nodes"),
    )
}  # fmt: skip


def metric_of(key: str) -> Metric:
    """The metric of that key; an unknown one is refused with the choices."""
    if key not in METRICS:
        raise ValueError(f"unknown metric {key!r}; choose among {', '.join(METRICS)}")
    return METRICS[key]
