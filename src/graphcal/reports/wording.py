"""The result in words: was the model miscalibrated, in which direction, what repaired it, and how sure is that?

Read from the plain results record. Every sentence names its certainty; where a figure is missing, the sentence that needs it
is left out. The terminal, the page and results.json show the same `verdict`; the four `answers` follow the same rules:

    before   the uncalibrated model: the method called none, else the first one
    best     the calibrated method with the smallest ECE
    kept     the best method where its ECE is smaller than before, else the model as it was
    off      the calibration test rejects (p <= 0.05), or the interval of the true error does not reach 0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphcal.graphs import UNREACHABLE
from graphcal.metrics.sample_size import LabelLimit

UNCALIBRATED = "none"
Methods = dict[str, dict[str, Any]]


def points(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def mean_of(method: dict[str, Any], key: str) -> float | None:
    """Mean over seeds of a metric, None when it was not measured."""
    value = method.get(key)
    if isinstance(value, dict):
        value = value.get("mean")
    return None if value is None else float(value)


def interval_of(method: dict[str, Any]) -> tuple[float, float] | None:
    pair = method.get("ece_interval")
    return None if not pair else (float(pair[0]), float(pair[1]))


def label(name: str, method: dict[str, Any]) -> str:
    """How a method is called: its title, else its name."""
    return str(method.get("title") or ("Uncalibrated" if name == UNCALIBRATED else name))


def before_name(methods: Methods) -> str:
    return UNCALIBRATED if UNCALIBRATED in methods else next(iter(methods))


def best_name(methods: Methods) -> str:
    """The calibrated method with the smallest ECE; the model itself when nothing else was measured."""
    before = before_name(methods)
    others = {k: mean_of(m, "ece") for k, m in methods.items() if k != before}
    known = {k: v for k, v in others.items() if v is not None}
    return min(known, key=lambda k: known[k]) if known else before


def kept_name(methods: Methods) -> str:
    """The best method, where it shows less error than the model as it was."""
    before, best = before_name(methods), best_name(methods)
    old, new = mean_of(methods[before], "ece"), mean_of(methods[best], "ece")
    return best if old is not None and new is not None and new < old else before


def is_off(method: dict[str, Any]) -> bool | None:
    """Is the method measurably miscalibrated? None when nothing tells."""
    p, interval = method.get("p"), interval_of(method)
    if p is None and interval is None:
        return None
    return (p is not None and p <= 0.05) or (interval is not None and interval[0] > 0)


def p_text(p: float | None) -> str:
    if p is None:
        return ""
    return "p < 0.001" if p < 0.0015 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def floor_text(method: dict[str, Any]) -> str:
    floor = mean_of(method, "ece_floor")
    return "" if floor is None else f"a perfectly calibrated model would show {points(floor)}"


def direction(method: dict[str, Any]) -> tuple[str, str]:
    """Under- or over-confident, and the sentence that shows it."""
    gap, conf = mean_of(method, "signed_gap"), mean_of(method, "confidence")
    if gap is None or conf is None:
        return "not measured", ""
    says = f"it says {100 * conf:.0f} % sure on average and is right {100 * (conf + gap):.0f} % of the time"
    if abs(gap) < 0.01:
        return "Balanced", f"{says}; errors in both directions cancel"
    return ("Under-confident" if gap > 0 else "Over-confident"), says


@dataclass(frozen=True)
class Answer:
    """One of the four questions at the top of the page."""

    question: str
    answer: str
    detail: str
    tone: str  # "good", "bad" or "plain"


def answers(results: dict[str, Any]) -> list[Answer]:
    """The four questions a newcomer has."""
    methods: Methods = results["methods"]
    old, best, kept = (methods[name(methods)] for name in (before_name, best_name, kept_name))
    off, word, says = is_off(old), *direction(old)
    found = [
        Answer(
            "Was it miscalibrated?",
            "Not measured" if off is None else "Yes" if off else "Not measurably",
            f"calibration error {percent(mean_of(old, 'ece') or 0)}; {floor_text(old)}",
            "bad" if off else "good",
        ),
        Answer("In which direction?", word, says, "plain"),
    ]
    if best is not old:
        found.append(_repair(methods, off))
    interval = interval_of(kept)
    if interval is not None:
        left = "measurably off" if is_off(kept) else "no different from sampling noise"
        found.append(
            Answer(
                "How sure are we?",
                f"{points(interval[0])} to {points(interval[1])} points",
                f"95 % interval of the true error{' after repair' if kept is not old else ''}; what remains is {left}"
                + (f" ({p_text(kept['p'])})" if kept.get("p") is not None else ""),
                "bad" if is_off(kept) else "good",
            )
        )
    return found


def _repair(methods: Methods, off: bool | None) -> Answer:
    best = best_name(methods)
    steps = " → ".join(points(mean_of(methods[name], "ece") or 0) for name in (before_name(methods), best))
    detail = f"{label(best, methods[best])}: calibration error {steps} points; {floor_text(methods[best])}"
    if kept_name(methods) != best:
        return Answer("Did anything fix it?", "No method did", detail, "plain" if off is False else "bad")
    if off is False:
        return Answer("What fixed it?", "Nothing to fix", detail, "good")
    return Answer("What fixed it?", label(best, methods[best]), detail, "good")


def verdict(results: dict[str, Any]) -> str:
    """The whole result in two or three sentences, with its certainty."""
    methods: Methods = results["methods"]
    before, best, kept = before_name(methods), best_name(methods), kept_name(methods)
    old, new = methods[before], methods[best]
    off, gap = is_off(old), mean_of(old, "signed_gap")
    if off is False:
        first = (
            f"The model is not measurably miscalibrated (ECE {percent(mean_of(old, 'ece') or 0)}; {floor_text(old)})."
        )
    elif gap is not None and abs(gap) >= 0.01:
        word, says = direction(old)
        first = f"The model is {word.lower()} by {points(abs(gap))} points: {says}."
    else:
        first = f"The model has a calibration error of {percent(mean_of(old, 'ece') or 0)}; {floor_text(old)}."
    if best == before:
        return first
    if kept != best:
        return f"{first} No calibrator tried makes it better."
    if off is False:
        return f"{first} There is nothing to repair that these nodes could show."
    steps = (points(mean_of(m, "ece") or 0) for m in (old, new))
    second = f"{label(best, new)} brings the calibration error from {' to '.join(steps)} points"
    second += f", where {floor_text(new)}." if floor_text(new) else "."
    return f"{first} {second} {_remainder(new)}".rstrip()


def _remainder(method: dict[str, Any]) -> str:
    """What is left after repair."""
    interval = interval_of(method)
    if interval is None:
        return ""
    if not is_off(method):
        return (
            "What is left cannot be told from sampling noise; with 97.5 % certainty the true error is below "
            f"{points(interval[1])} points."
        )
    if interval[0] < 0.0005:
        return "A small error remains that noise alone does not explain."
    return f"An error remains: with 95 % certainty it is at least {points(interval[0])} points."


def advice(limit: LabelLimit, interval: tuple[float, float]) -> str:
    """What would help most: a better method, more validation labels, or more test nodes, and how many.

    `interval` is the interval of the true calibration error of the method in question.
    """
    low, high = interval
    if limit.ece_floor == 0:
        return "Nothing would help: the model is certain of every node, so there is no noise to wait out."
    if low > limit.true_error:
        return (
            f"A better method would help: the true error is at least {points(low)} points, and {limit.labels:,} "
            f"validation labels would allow {points(limit.true_error)}."
        )
    if limit.true_error > 0.5 * limit.ece_floor:
        return (
            f"More validation labels would help: {limit.labels:,} leave {points(limit.true_error)} points that no "
            f"method can repair; {limit.labels_for(limit.true_error / 2):,} would halve that."
        )
    return (
        f"More test nodes would tell: on {limit.nodes:,} a perfect model shows {points(limit.ece_floor)} points and the true "
        f"error may lie anywhere up to {points(high)}; {limit.nodes_for(limit.ece_floor / 2):,} nodes would halve that noise."
    )


def slice_text(worst: dict[str, Any] | None) -> str | None:
    """The worst group of nodes in words."""
    if worst is None:
        return None
    says, right = (f"{100 * worst[key]:.0f} %" for key in ("confidence", "accuracy"))
    return f"{worst['by']}: {worst['group']} ({worst['nodes']} nodes, says {says}, right {right})"


def place_text(node: dict[str, Any]) -> str:
    """Where a node sits in the graph, in words."""
    hops, degree = node["hops"], node["degree"]
    near = f"{hops} hop{'s' * (hops != 1)} from the nearest training node"
    alike = f"{round(node['agreement'] * degree)} of {degree} neighbours predicted alike"
    return f"{'no training node in reach' if hops == UNREACHABLE else near}; {alike if degree else 'no neighbours'}"
