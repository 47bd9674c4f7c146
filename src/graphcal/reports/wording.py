"""The result in words, read from the results record. The terminal, the page, the model card and results.json use the same words.

    before   the uncalibrated model: the method called none, else the first one
    best     the chosen method of the record; without one, the calibrated method with the smallest ECE
    kept     the best method where its ECE is smaller than before, else the model as it was
    off      the calibration test rejects (p <= 0.05), or the interval of the true error does not reach 0
    error    the median-unbiased estimate of the true error with its interval, never ECE minus floor
    worst    the group of nodes that is furthest off, where noise alone would hardly show one (`graphcal.metrics.slices`)

Where a figure is missing, the words that need it are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphcal.graphs import UNREACHABLE
from graphcal.metrics.floor import LabelLimit
from graphcal.text import plural

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


def unit_of(results: Mapping[str, Any]) -> str:
    """Word for one prediction: "row" in a table, "node" in a graph."""
    return "row" if results.get("input") == "table" else "node"


def error_interval(method: dict[str, Any]) -> tuple[float, float] | None:
    pair = method.get("ece_interval")
    return None if not pair else (float(pair[0]), float(pair[1]))


def label(name: str, method: dict[str, Any]) -> str:
    """Title of a method, else its name."""
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
    """Return whether the method is measurably miscalibrated; None without a test or an interval."""
    p, interval = method.get("p"), error_interval(method)
    if p is None and interval is None:
        return None
    return (p is not None and p <= 0.05) or (interval is not None and interval[0] > 0)


def p_text(p: float | None) -> str:
    if p is None:
        return ""
    return "p < 0.001" if p < 0.0015 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def error_text(method: dict[str, Any]) -> str:
    """The true error in points with its interval; the ECE where it was not estimated."""
    error, interval = mean_of(method, "true_error"), error_interval(method)
    if error is None:
        return f"{points(mean_of(method, 'ece') or 0)} points"
    ends = f" (95 % interval {points(interval[0])} to {points(interval[1])})" if interval else ""
    return f"{points(error)} points{ends}"


def direction(method: dict[str, Any]) -> str:
    """Under- or over-confident by how much, or the size of an error that cancels on average; "" where nothing was measured."""
    ece, floor = mean_of(method, "ece"), mean_of(method, "ece_floor")
    gap, conf = mean_of(method, "signed_gap"), mean_of(method, "confidence")
    perfect = "" if floor is None else f"; a perfectly calibrated model would show {percent(floor)}"
    if is_off(method) is False:
        return f"not measurably miscalibrated (ECE {percent(ece or 0)}{perfect})"
    if gap is not None and conf is not None and abs(gap) >= 0.01:
        word = "under-confident" if gap > 0 else "over-confident"
        means = f"confidence {100 * conf:.0f} %, accuracy {100 * (conf + gap):.0f} %"
        return f"{word} by {points(abs(gap))} points ({means})"
    return "" if ece is None else f"miscalibrated in both directions (ECE {percent(ece)}{perfect})"


def verdict(results: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    methods: Methods = results["methods"]
    before, best = before_name(methods), best_name(results)
    old, new = methods[before], methods[best]
    first = f"The model is {direction(old) or 'not measured'}"
    if best == before:
        return f"{first}."
    if kept_name(results) != best:
        return f"{first}; {label(best, new)} does not lower its calibration error."
    if is_off(old) is False:
        return f"{first}; {label(best, new)} has nothing to repair that these {unit_of(results)}s could show."
    start = mean_of(old, "true_error")
    start = mean_of(old, "ece") if start is None else start
    return f"{first}; {label(best, new)} brings the calibration error from {points(start or 0)} to {error_text(new)}."


def summary(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The result in at most six lines for a terminal, the most useful first."""
    methods: Methods = results["methods"]
    before, best = before_name(methods), best_name(results)
    old, new, choice = methods[before], methods[best], results.get("choice")
    rows = [("Miscalibrated" if is_off(old) is not False else "Calibration", direction(old) or "not measured")]
    rows.append(("Chosen method", best + (f" ({choice['reason']})" if choice else "")))
    if best != before:
        right = [mean_of(m, "accuracy") for m in (old, new)]
        steps = " -> ".join(dict.fromkeys(f"{100 * share:.1f}" for share in right if share is not None))
        accuracy = f", accuracy {'' if '->' in steps else 'still '}{steps} %" if steps else ""
        rows.append(("After", f"calibration error {error_text(new)}{accuracy}"))
    if worst := new.get("worst"):
        rows.append(("Weak spot", slice_text(worst, unit_of(results))))
    if new.get("decision"):
        rows.append(("Without review", review_text(new["decision"], unit_of(results))))
    return rows


def review_text(backtest: Mapping[str, Any], unit: str) -> str:
    """Test rows that a decision at the error target, or at the next larger one, would not send to a person."""
    total, target = backtest["nodes"], 100 * backtest["promise"]["max_error"]
    if backtest["approved"]:
        wrong = plural(backtest["errors"], "error")
        return (
            f"{backtest['approved']:,} of {total:,} test {unit}s at an error target of {target:g} % ({wrong}; backtest)"
        )
    if backtest.get("next_target"):
        larger, count = backtest["next_target"]
        return f"{count:,} of {total:,} test {unit}s at an error target of {100 * larger:g} %, none at {target:g} % (backtest)"
    return f"none of {total:,} test {unit}s at an error target of {target:g} % (backtest)"


def backtest_sentence(results: Mapping[str, Any]) -> str | None:
    """Return the backtest of the chosen method in words; None where it has none."""
    best = best_name(results)
    method, seeds = results["methods"][best], results.get("seeds") or []
    return backtest_text(results, best, ", first seed" if len(seeds) > 1 else "") if method.get("decision") else None


def backtest_text(results: Mapping[str, Any], name: str, qualifier: str = "") -> str:
    """The backtest of a method: who certifies, what is decided, and how that turned out."""
    method, unit = results["methods"][name], unit_of(results)
    backtest = method["decision"]
    drawn, others, decided = backtest["labels"], backtest["nodes"], backtest["approved"]
    target = f"at most {100 * backtest['promise']['max_error']:g} % errors"
    text = f"Backtest with {label(name, method)}{qualifier}: of {drawn + others:,} labelled test {unit}s, {drawn:,} drawn at "
    text += "random certify"
    if decided:
        share = f"{decided:,} ({100 * decided / others:.0f} %)"
        text += f"; {share} of the others would be decided with {target}, and {backtest['errors']:,} of them are in fact wrong"
    else:
        text += f"; none of the others would be decided with {target}"
        if backtest.get("next_target"):
            larger, count = backtest["next_target"]
            text += f", {count:,} with a target of {100 * larger:g} %"
    warnings = "".join(f" Warning: {line}." for line in backtest.get("warnings") or ())
    return f"{text}.{warnings} For unlabelled {unit}s run: graphcal decide."


def choice_note(results: Mapping[str, Any]) -> str:
    """Explain why the selected method shows a larger ECE than another; empty where it does not."""
    methods: Methods = results["methods"]
    best = best_name(results)
    errors = {k: e for k, m in methods.items() if (e := mean_of(m, "ece")) is not None}
    lowest = min(errors, key=lambda k: errors[k], default=best)
    if best not in errors or errors[lowest] >= errors[best]:
        return ""
    return (
        f"{label(best, methods[best])} was chosen by NLL on validation {unit_of(results)}s, which counts every probability and "
        f"every changed prediction. By ECE alone, which counts only the confidence, {label(lowest, methods[lowest])} is ahead "
        f"({percent(errors[lowest])} against {percent(errors[best])})."
    )


def group_name(worst: Mapping[str, Any], unit: str = "node") -> str:
    """A group of nodes as it is called in a sentence."""
    by, group = worst["by"], worst["group"]
    if by == "predicted class":
        return str(group)
    if by == "degree":
        return f"{unit}s of degree {group}"
    if by == "distance from training":
        return f"{unit}s at distance {group} from the training set"
    if by == "neighbours that agree":
        if group in ("none", "no neighbours"):
            return f"{unit}s with no {'agreeing neighbour' if group == 'none' else 'neighbour'}"
        return f"{unit}s of which {group} of the neighbours agree" if " to " not in str(group) else f"{by}: {group}"
    return f"{by}: {group}"


def slice_text(worst: Mapping[str, Any], unit: str = "node") -> str:
    """The worst group of nodes in words."""
    conf, right = (f"{100 * worst[key]:.0f} %" for key in ("confidence", "accuracy"))
    return f"{group_name(worst, unit)}, confidence {conf}, accuracy {right} ({plural(worst['nodes'], unit)})"


def advice(limit: LabelLimit, interval: tuple[float, float]) -> str:
    """Advise what would help most: a better method, more validation labels, or more test nodes, and how many.

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


def place_text(node: Mapping[str, Any], training: bool = True) -> str:
    """Describe a node's position in the graph; distances from training nodes only where they are known (``training``)."""
    hops, degree = node["hops"], node["degree"]
    near = f"{hops} hop{'s' * (hops != 1)} from the nearest training node"
    alike = f"{round(node['agreement'] * degree)} of {degree} neighbours predicted alike"
    around = alike if degree else "no neighbours"
    return f"{'no training node in reach' if hops == UNREACHABLE else near}; {around}" if training else around
