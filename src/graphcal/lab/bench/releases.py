"""Serve the next release of a graph with a calibrator as saved, and with refits on a few new labels.

A preset of this kind has an axis ``next``: the release that is served. A model is trained and calibrated on release t; windows:

    now    release t, test nodes that certified no decision
    old    release t + 1, the nodes of `now` that are still there
    new    release t + 1, nodes whose package did not exist in release t
    all    both

The record of a cell gets ``served``, a list of rows, one for each window and number of new labels:

    labels      0: the calibrator as saved. k: fitted again on release t + 1 with the validation nodes that are still there (the
                labels they had) and k random new nodes; 500 new nodes are in no window, so that all rows are of the same nodes
    scores      NLL, ECE with floor, worst slice, accuracy and the others of `Scores`
    decisions   for 5 % and 10 %: share of the window above the threshold that 1,000 random nodes of release t certified
                (`decide`, future nodes, 95 %), and the errors among them
    watch       status of `watch` without labels against the predictions on release t, and with the labels of 500 new nodes
    counts      of a calibration with refits: errors in communities, and how many 95 % intervals hold the truth
    estimate    of the same: accuracy of the window without labels, with its 90 % interval

The model reads features in the vocabulary that both releases share. Test labels only measure.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import Outputs
from graphcal.decisions import decide, watch
from graphcal.decisions.decision import score_of
from graphcal.decisions.estimates import estimate
from graphcal.graphs import structure
from graphcal.lab.datasets import load
from graphcal.lab.datasets.debian import match_nodes, named_release
from graphcal.methods import GraphScaling
from graphcal.metrics import reference_summary, score
from graphcal.metrics.slices import cut_nodes
from graphcal.study import Study

WINDOWS = ("now", "old", "new", "all")
NEW_LABELS = (0, 100, 500)
CERTIFIED = 1000  # nodes of release t that certify decisions
TARGETS = (0.05, 0.10)
SMALLEST_SET = 20  # unlabelled nodes of a community that is counted
STORED = 2000  # test nodes whose predictions a record keeps
ServedRow = dict[str, Any]


@dataclass(frozen=True, eq=False)
class NextRelease:
    """Release t + 1, and the node of release t that each of its nodes was."""

    graph: Data
    match: Tensor  # (N,) -1: new


@cache
def next_release(now: str, following: str) -> NextRelease:
    """Both releases by name; the last pair stays in memory."""
    match = match_nodes(named_release(now), named_release(following))
    return NextRelease(load(following), torch.from_numpy(match))


@dataclass(frozen=True, eq=False)
class ReleaseWindows:
    """Nodes of each window, of the certification and of the new labels, for one split."""

    certify: Tensor  # (N_t,)
    now: Tensor  # (N_t,)
    drawn: Tensor  # node numbers of release t + 1, random
    graph: Data  # release t + 1 with the masks and labels of release t
    old: Tensor  # (N_{t+1},)
    new: Tensor  # (N_{t+1},)


def windows(graph: Data, following: NextRelease, seed: int) -> ReleaseWindows:
    """Draw certification nodes and new labels; every other test node is in a window."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(mask: Tensor, count: int) -> Tensor:
        nodes = mask.nonzero().flatten()
        return nodes[torch.randperm(len(nodes), generator=generator)[: min(count, len(nodes) // 2)]]

    certify = torch.zeros_like(graph.test_mask)
    certify[drawn(graph.test_mask, CERTIFIED)] = True
    now = graph.test_mask & ~certify
    match, was = following.match, following.match.clamp(min=0)
    served = copy.copy(following.graph)
    is_old = match >= 0
    for name in ("train_mask", "val_mask"):
        served[name] = is_old & graph[name][was]
    seen = served.train_mask | served.val_mask
    served.y = torch.where(seen, graph.y[was], following.graph.y)
    new_labels = drawn(~is_old, max(NEW_LABELS))
    new = ~is_old
    new[new_labels] = False
    old = is_old & now[was]
    served.test_mask = old | new
    return ReleaseWindows(certify, now, new_labels, served, old, new)


def serve(study: Study, split: ReleaseWindows, out: Outputs, bins: int, seed: int) -> list[ServedRow]:
    """Rows of one calibrator: ``study`` is its fit on release t, ``out`` the model's outputs on ``split.graph``."""
    ((name, recipe),) = study.recipes.items()
    refit: Any = recipe
    if isinstance(recipe, GraphScaling):
        refit = replace(recipe, sets=False)  # counts and estimates are of the saved one
    ((fitted,),) = study.fitted.values()
    truth, log_probs = study.graph.y, fitted.log_probs
    thresholds = {target: _threshold(log_probs, truth, split, target) for target in TARGETS}
    before = log_probs[split.now]
    carried = study.reapply([out])
    ((saved,),) = carried.fitted.values()
    rows = [_row("now", 0, log_probs, study.graph, split.now, bins, thresholds)]
    rows[0] |= _watched(before, before[_half(len(before), seed)], None)
    for labels in NEW_LABELS:
        lp, here = saved.log_probs, [("old", split.old), ("new", split.new), ("all", split.old | split.new)]
        if labels:
            lp = _refitted(name, refit, split, out, labels)
        for window, nodes in here:
            row = _row(window, labels, lp, out.graph, nodes, bins, thresholds if labels == 0 else {})
            if labels == 0:
                row |= _watched(before, lp[nodes], None)
                if window == "new":
                    row |= _watched_with_labels(before, lp, out.graph.y, split)
            rows.append(row)
    if getattr(fitted.calibration, "sets", None) is not None:
        before_out, after_out = study.outputs[0], carried.outputs[0]
        rows[0] |= _counted(fitted.calibration, before_out, truth, split.certify | split.now)
        rows[3] |= _counted(fitted.calibration, after_out, out.graph.y, split.old | split.new)
        views = [
            (before_out, split.now),
            (after_out, split.old),
            (after_out, split.new),
            (after_out, split.old | split.new),
        ]
        for row, (view, nodes) in zip(rows, views):
            row |= _estimated(fitted.calibration, view, nodes)
    return rows


def _row(
    window: str, labels: int, log_probs: Tensor, graph: Data, nodes: Tensor, bins: int, thresholds: Mapping[float, Any]
) -> ServedRow:
    y = graph.y
    cuts = cut_nodes(log_probs, y, nodes, structure(graph))
    row: ServedRow = {"window": window, "labels": labels, **score(log_probs[nodes], y[nodes], bins, cuts).to_dict()}
    for target, threshold in thresholds.items():
        decided = nodes & (score_of(log_probs, None) >= (2.0 if threshold is None else threshold))
        wrong = int((log_probs.argmax(1) != y)[decided].sum())
        count = int(decided.sum())
        row[f"decided_{100 * target:.0f}"] = count / int(nodes.sum())
        row[f"error_{100 * target:.0f}"] = wrong / count if count else None
    return row


def _threshold(log_probs: Tensor, y: Tensor, split: ReleaseWindows, target: float) -> float | None:
    """Confidence above which release t has at most ``target`` errors; None where nothing can be promised."""
    try:
        decision = decide(
            log_probs, y, certify=split.certify, pool=split.now | split.certify, max_error=target, random_draw=True,
            promise="future",
        )  # fmt: skip
    except ValueError:  # the certification nodes differ from the others: nothing is promised
        return None
    return decision.threshold


def _half(count: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[: count // 2]


def _watched(before: Tensor, after: Tensor, y: Tensor | None) -> ServedRow:
    report = watch(reference_summary(before), after, y)
    comparison = report.windows[0].comparison
    return {"watch": report.status, "watch_auc": None if comparison is None else comparison.auc}


def _watched_with_labels(before: Tensor, log_probs: Tensor, y: Tensor, split: ReleaseWindows) -> ServedRow:
    nodes = split.new.clone()
    nodes[split.drawn] = True
    labels = torch.full_like(y, -1)
    labels[split.drawn] = y[split.drawn]
    return {"watch_labelled": _watched(before, log_probs[nodes], labels[nodes])["watch"]}


def _refitted(name: str, recipe: Any, split: ReleaseWindows, out: Outputs, labels: int) -> Tensor:
    """Log-probabilities (N, C) of a fit on release t + 1."""
    graph = copy.copy(split.graph)
    graph.val_mask = graph.val_mask.clone()
    graph.val_mask[split.drawn[:labels]] = True
    study = Study.of([replace(out, graph=graph)], {name: recipe}, on=graph.val_mask)
    ((one,),) = study.fitted.values()
    return one.log_probs


def _estimated(calibration: Any, out: Outputs, nodes: Tensor) -> ServedRow:
    """Accuracy of a window without its labels, with the 90 % interval."""
    accuracy = estimate(calibration, out, nodes).accuracy
    return {"estimated": accuracy.value, "estimated_low": accuracy.low, "estimated_high": accuracy.high}


def _counted(calibration: Any, out: Outputs, y: Tensor, nodes: Tensor) -> ServedRow:
    """Errors in communities: share of 95 % intervals that hold the truth, and of those that take nodes as independent."""
    from graphcal.decisions.counts import EventModel, grouped

    with torch.no_grad():
        wrong = (calibration(out).argmax(1) != y).numpy()
    matrix, _, _ = grouped(calibration, out, "community")
    member = matrix.multiply(nodes.numpy()[None, :]).tocsr()
    member.eliminate_zeros()
    member = member[np.diff(member.indptr) >= SMALLEST_SET]
    if not member.shape[0]:
        return {"sets": 0}
    moments = EventModel.of(calibration, out, "error").moments(member)
    low, high = moments.interval(0.95)
    errors = member @ wrong.astype(float)
    spread = 1.96 * np.sqrt(moments.chance) + 0.5
    return {
        "sets": int(member.shape[0]),
        "sets_held": float(((low <= errors) & (errors <= high)).mean()),
        "sets_held_independent": float((np.abs(errors - moments.constant - moments.mean) <= spread).mean()),
    }


def served_rows(table: Any) -> Iterable[dict[str, Any]]:
    """Every row of every record of a table, with the values of its axes, its method and its run."""
    for row in table.rows:
        for method, entry in row.entries.items():
            for record in entry.records:
                for served in record.result["served"]:
                    yield {**row.axis_values, "method": method, "split": record.spec["run"][0], **served}
