"""The result in words: was the model miscalibrated, in which direction, what repaired it, and how sure is that?

Read from the plain results record. Every sentence names its certainty; where a figure is missing, the sentence that needs it
is left out. The terminal, the page and results.json show the same `verdict`; the four `answers` follow the same rules:

    before   the uncalibrated model: the method called none, else the first one
    best     the chosen method of the record; without one, the calibrated method with the smallest ECE
    kept     the best method where its ECE is smaller than before, else the model as it was
    off      the calibration test rejects (p <= 0.05), or the interval of the true error does not reach 0
    left     the median-unbiased estimate of the true error with its interval, never ECE minus floor
    all      "repairs all of it" only where the whole interval of the true error lies below one point and nothing is off
    worst    the group of nodes that is furthest off, where noise alone would hardly show one (`graphcal.metrics.slices`)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphcal.graphs import UNREACHABLE
from graphcal.metrics.sample_size import LabelLimit

UNCALIBRATED = "none"
NOTHING_LEFT = 0.01  # a true error that is certainly below this is no error
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


def error_interval(method: dict[str, Any]) -> tuple[float, float] | None:
    pair = method.get("ece_interval")
    return None if not pair else (float(pair[0]), float(pair[1]))


def error_text(method: dict[str, Any]) -> str:
    """The true error in points, with its interval where there is one."""
    error, interval = mean_of(method, "true_error"), error_interval(method)
    if error is None:
        return ""
    return points(error) + (f" (95 % interval {points(interval[0])} to {points(interval[1])})" if interval else "")


def label(name: str, method: dict[str, Any]) -> str:
    """How a method is called: its title, else its name."""
    return str(method.get("title") or ("Uncalibrated" if name == UNCALIBRATED else name))


def before_name(methods: Methods) -> str:
    return UNCALIBRATED if UNCALIBRATED in methods else next(iter(methods))


def best_name(results: Mapping[str, Any]) -> str:
    """Return the chosen method; where the record has none, the calibrated one with the smallest ECE."""
    methods: Methods = results["methods"]
    if results.get("chosen_method") in methods:
        return str(results["chosen_method"])
    before = before_name(methods)
    errors = {k: mean_of(m, "ece") for k, m in methods.items() if k != before}
    measured = {k: v for k, v in errors.items() if v is not None}
    return min(measured, key=lambda k: measured[k]) if measured else before


def kept_name(results: Mapping[str, Any]) -> str:
    """Return the best method, where it shows less error than the model as it was."""
    methods: Methods = results["methods"]
    before, best = before_name(methods), best_name(results)
    old, new = mean_of(methods[before], "ece"), mean_of(methods[best], "ece")
    return best if old is not None and new is not None and new < old else before


def is_off(method: dict[str, Any]) -> bool | None:
    """Is the method measurably miscalibrated? None when nothing tells."""
    p, interval = method.get("p"), error_interval(method)
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
    old, best, kept = (methods[name] for name in (before_name(methods), best_name(results), kept_name(results)))
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
        found.append(_repair(results, off))
    interval = error_interval(kept)
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


def _repair(results: Mapping[str, Any], off: bool | None) -> Answer:
    methods, best = results["methods"], best_name(results)
    old, new = methods[before_name(methods)], methods[best]
    detail = f"{label(best, new)}: {_steps(old, new, ' → ')}"
    if kept_name(results) != best:
        return Answer("Did the chosen method fix it?", "It did not", detail, "plain" if off is False else "bad")
    if off is False:
        return Answer("What fixed it?", "Nothing to fix", detail, "good")
    return Answer("What fixed it?", label(best, methods[best]), detail, "good")


def verdict(results: dict[str, Any]) -> str:
    """The whole result in two or three sentences, with its certainty."""
    methods: Methods = results["methods"]
    before, best, kept = before_name(methods), best_name(results), kept_name(results)
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
    worst = worst_text(methods[kept], kept != before)
    if best == before:
        said = [first]
    elif kept != best:
        said = [first, f"{label(best, new)} does not lower its calibration error."]
    elif off is False:
        average = "On average there" if worst else "There"
        said = [first, f"{average} is nothing to repair that these nodes could show."]
        worst = worst_text(old)
    else:
        said = [first, f"{label(best, new)} brings the {_steps(old, new, ' to ', 'from ')}.", _remainder(new)]
    return " ".join(filter(None, (*said, worst)))


def _steps(old: dict[str, Any], new: dict[str, Any], to: str, start: str = "") -> str:
    """The calibration error before and after: the true one where it was estimated, else ECE beside its floor."""
    key = "true_error" if all(mean_of(m, "true_error") is not None for m in (old, new)) else "ece"
    steps = to.join(points(mean_of(m, key) or 0) for m in (old, new))
    if key == "true_error":
        return f"true calibration error {start}{steps} points"
    floor = floor_text(new)
    return f"calibration error {start}{steps} points" + (f", where {floor}" if floor else "")


def _remainder(method: dict[str, Any]) -> str:
    """What is left after repair."""
    interval, error = error_interval(method), error_text(method)
    if interval is None:
        return ""
    if is_off(method):
        if interval[0] < 0.0005:
            return "A small error remains that noise alone does not explain."
        if error:
            return f"An error remains that noise does not explain: {error} points."
        return f"An error remains: with 95 % certainty it is at least {points(interval[0])} points."
    sure = f"with 97.5 % certainty the true error is below {points(interval[1])} points"
    if interval[1] <= NOTHING_LEFT:
        return f"That repairs all of it: {sure}."
    return f"What is left cannot be told from sampling noise; {sure}."


def worst_text(method: dict[str, Any], repaired: bool = False) -> str:
    """The group of nodes that is furthest off, in a sentence; empty where none certainly is off."""
    worst = method.get("worst")
    if not worst:
        return ""
    gap = worst["signed_gap"] if worst.get("corrected_gap") is None else worst["corrected_gap"]
    word = "under-confident" if gap > 0 else "over-confident"
    average = "Calibrated on average; " if not is_off(method) else "Worst group: "
    are = ("is" if worst["by"] == "predicted class" else "are") + (" still" if repaired else "")
    says, right = (f"{100 * worst[key]:.0f} %" for key in ("confidence", "accuracy"))
    facts = f"says {says}, right {right}, {worst['nodes']:,} nodes"
    return f"{average}{group_name(worst)} {are} {points(abs(gap))} points {word} ({facts})."


def group_name(worst: dict[str, Any]) -> str:
    """A group of nodes as it is called in a sentence."""
    by, group = worst["by"], worst["group"]
    if by == "predicted class":
        return str(group)
    if by == "degree":
        return f"nodes of degree {group}"
    if by == "distance from training":
        return f"nodes at distance {group} from the training set"
    return f"nodes with neighbours that agree: {group}"


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
            f"More validation labels would help: {limit.labels:,} leave a one-parameter fit "
            f"{points(limit.true_error)} points of error; {limit.labels_for(limit.true_error / 2):,} would halve that."
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


def place_text(node: dict[str, Any], training: bool = True) -> str:
    """Where a node sits in the graph, in words; from training nodes only where they are known (``training``)."""
    hops, degree = node["hops"], node["degree"]
    near = f"{hops} hop{'s' * (hops != 1)} from the nearest training node"
    alike = f"{round(node['agreement'] * degree)} of {degree} neighbours predicted alike"
    around = alike if degree else "no neighbours"
    return f"{'no training node in reach' if hops == UNREACHABLE else near}; {around}" if training else around
