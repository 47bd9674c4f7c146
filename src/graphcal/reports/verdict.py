"""The result in words: was the model miscalibrated, in which direction, what repaired it, and how sure is that?

Read from the plain results dictionary. Every sentence names its certainty; where a figure is missing, the sentence that
needs it is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

UNCALIBRATED = "none"


@dataclass(frozen=True)
class Answer:
    """One of the four questions at the top of the page."""

    question: str
    answer: str
    detail: str
    tone: str  # "good", "bad" or "plain"


def points(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def mean_of(method: dict[str, Any], metric: str) -> float | None:
    """Mean over seeds of a metric, None when it was not measured."""
    value = method.get(metric)
    if isinstance(value, dict):
        value = value.get("mean")
    return None if value is None else float(value)


def interval_of(method: dict[str, Any]) -> tuple[float, float] | None:
    pair = (method.get("measurement") or {}).get("ece_interval") or method.get("ece_interval")
    return None if not pair else (float(pair[0]), float(pair[1]))


def before_name(methods: dict[str, Any]) -> str:
    """The uncalibrated model: the method called none, else the first one."""
    return UNCALIBRATED if UNCALIBRATED in methods else next(iter(methods))


def best_name(methods: dict[str, Any]) -> str:
    """The calibrated method with the smallest ECE; the model itself when nothing else was measured."""
    before = before_name(methods)
    others = {k: mean_of(m, "ece") for k, m in methods.items() if k != before}
    known = {k: v for k, v in others.items() if v is not None}
    return min(known, key=lambda k: known[k]) if known else before


def label(name: str) -> str:
    """How a method is called on the page."""
    return "Uncalibrated" if name == UNCALIBRATED else name.upper() if len(name) <= 4 else name


def p_text(p: float | None) -> str:
    if p is None:
        return ""
    return "p < 0.001" if p < 0.0015 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def direction(method: dict[str, Any]) -> tuple[str, str]:
    """Under- or over-confident, and the sentence that shows it."""
    data = method.get("measurement") or {}
    gap, conf = data.get("mean_gap"), data.get("mean_confidence")
    if gap is None or conf is None:
        return "not measured", ""
    says = f"it says {100 * conf:.0f} % sure on average and is right {100 * (conf + gap):.0f} % of the time"
    if abs(gap) < 0.01:
        return "Balanced", f"{says}; errors in both directions cancel"
    return ("Under-confident" if gap > 0 else "Over-confident"), says


def is_off(method: dict[str, Any]) -> bool | None:
    """Is the method measurably miscalibrated? None when nothing tells."""
    p, interval = (method.get("measurement") or {}).get("p"), interval_of(method)
    if p is None and interval is None:
        return None
    return (p is not None and p <= 0.05) or (interval is not None and interval[0] > 0)


def floor_text(method: dict[str, Any]) -> str:
    floor = mean_of(method, "ece_floor")
    return "" if floor is None else f"a perfectly calibrated model would show {points(floor)}"


def answers(results: dict[str, Any]) -> list[Answer]:
    """The four questions a newcomer has."""
    methods = results["methods"]
    old, new = methods[before_name(methods)], methods[best_name(methods)]
    off, still = is_off(old), is_off(new)
    old_ece, new_ece = mean_of(old, "ece"), mean_of(new, "ece")
    word, says = direction(old)
    found = [
        Answer(
            "Was it miscalibrated?",
            "Not measured" if off is None else "Yes" if off else "Not measurably",
            f"calibration error {percent(old_ece or 0)}; {floor_text(old)}",
            "bad" if off else "good",
        ),
        Answer("In which direction?", word, says, "plain"),
    ]
    if new is not old and old_ece is not None and new_ece is not None:
        name = label(best_name(methods))
        repaired = new_ece < old_ece
        found.append(
            Answer(
                "What fixed it?" if repaired else "Did anything fix it?",
                name if repaired else "No method did",
                f"calibration error {points(old_ece)} → {points(new_ece)} points; {floor_text(new)}",
                "good" if repaired else "bad",
            )
        )
    interval, p = interval_of(new), (new.get("measurement") or {}).get("p")
    if interval is not None:
        rest = "measurably off" if still else "no different from sampling noise"
        found.append(
            Answer(
                "How sure are we?",
                f"{points(interval[0])} to {points(interval[1])} points",
                f"95 % interval of the true error after repair; what remains is {rest}"
                + (f" ({p_text(p)})" if p is not None else ""),
                "bad" if still else "good",
            )
        )
    return found


def verdict(results: dict[str, Any]) -> str:
    """The whole result in two or three sentences, with its certainty."""
    methods = results["methods"]
    before, best = before_name(methods), best_name(methods)
    old, new = methods[before], methods[best]
    old_ece, new_ece, off = mean_of(old, "ece"), mean_of(new, "ece"), is_off(old)
    word, says = direction(old)
    gap = (old.get("measurement") or {}).get("mean_gap")
    if off is False:
        first = f"The model is not measurably miscalibrated (ECE {percent(old_ece or 0)}; {floor_text(old)})."
    elif gap is not None and abs(gap) >= 0.01:
        first = f"The model is {word.lower()} by {points(abs(gap))} points: {says}."
    else:
        first = f"The model has a calibration error of {percent(old_ece or 0)}; {floor_text(old)}."
    if best == before or old_ece is None or new_ece is None:
        return first
    if new_ece >= old_ece:
        return f"{first} No calibrator tried makes it better."
    interval = interval_of(new)
    second = f"{label(best)} brings the calibration error from {points(old_ece)} to {points(new_ece)} points"
    second += f", where {floor_text(new)}." if floor_text(new) else "."
    if interval is None:
        return f"{first} {second}"
    if is_off(new):
        third = f"An error remains: with 95 % certainty it is at least {points(interval[0])} points."
        if interval[0] < 0.0005:
            third = "A small error remains that noise alone does not explain."
    else:
        third = (
            "What is left cannot be told from sampling noise; with 97.5 % certainty the true error is below "
            f"{points(interval[1])} points."
        )
    return f"{first} {second} {third}"
