"""Fit, apply and measure calibrators on trained models, with test labels hidden: the only place that does.

    study = Study.of([run.outputs for run in runs], {"none": Uncalibrated(), "scar": SCAR()}, on=data.val_mask)
    study.measure(data.test_mask)["scar"].ece

A calibrator gets a graph from which every label outside the training and validation nodes has been taken
(`graphcal.core.hide_test_labels`); test labels are read by `scores` and `measure` and by nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, Recipe, hide_test_labels
from graphcal.graphs import structure, without_autocast
from graphcal.metrics import Measurement, Scores, evaluate, score
from graphcal.metrics.bins import BINS
from graphcal.metrics.slices import cut_nodes
from graphcal.threads import one_thread

if TYPE_CHECKING:
    from torch_geometric.data import Data

StageProgress = Callable[[str, int, int], None]  # stage, done, total


@dataclass(frozen=True, eq=False)
class FittedRun:
    """One recipe on one run: its calibration and the calibrated log-probabilities of every node."""

    calibration: Calibration
    log_probs: Tensor  # (N, C)
    fit_seconds: float
    apply_seconds: float


@dataclass(frozen=True, eq=False)
class Study:
    """Recipes fitted on and applied to runs; ``fitted[name][r]`` is recipe ``name`` on run ``r``.

    A calibrator inside a study cannot read a test label. Make one with ``Study.of``.

    Parameters
    ----------
    graph : Data
        The graph with all labels, for measuring.
    outputs : tuple of Outputs
        One per run, with test labels hidden.
    recipes : mapping of str to Recipe
        Calibrators by name.
    fitted : mapping of str to tuple of FittedRun
        Calibration and log-probabilities (N, C) of each recipe on each run.

    Examples
    --------
    >>> import dataclasses, graphcal
    >>> out = graphcal.example()
    >>> data, runs = out.graph, [out, dataclasses.replace(out, logits=0.9 * out.logits)]  # two models on one graph
    >>> recipes = {name: graphcal.CALIBRATORS[name]() for name in ("none", "ts")}
    >>> study = graphcal.Study.of(runs, recipes, on=data.val_mask)
    >>> measured = study.measure(data.test_mask)  # means over the two runs, compared with "none"
    >>> measured["ts"].nll < measured["none"].nll, measured["ts"].against["nll"].difference < 0
    (True, True)
    >>> [s.nodes for s in study.scores(data.test_mask)["ts"]], study.log_probs("ts")[0].shape  # per run
    ([289, 289], torch.Size([500, 5]))
    >>> later = study.reapply(runs)  # the same calibrations, on a graph that has changed
    >>> study.about("ts")["title"]  # for results.json
    'Temperature scaling'
    """

    graph: Data  # with all its labels
    outputs: tuple[Outputs, ...]  # of each run, on the graph without test labels
    recipes: Mapping[str, Recipe]
    fitted: Mapping[str, tuple[FittedRun, ...]]

    @classmethod
    def of(
        cls,
        outputs: Sequence[Outputs],
        recipes: Mapping[str, Recipe],
        on: Tensor,
        stop: Tensor | None = None,
        clock: Callable[[], float] = time.perf_counter,
        progress: StageProgress | None = None,
    ) -> Study:
        """Fit every recipe on the nodes ``on`` of every run, early stopping on ``stop``; all runs are on one graph."""
        graph = shared_graph(outputs)
        seen = blinded_outputs(outputs)
        fitted: dict[str, tuple[FittedRun, ...]] = {}
        for name, recipe in recipes.items():
            done: list[FittedRun] = []
            for out in seen:
                if progress:
                    progress(f"calibrating with {name}", len(done), len(seen))
                started = clock()
                with one_thread():
                    calibration = recipe.fit(out, on=on, stop=stop)
                done.append(apply(calibration, out, clock() - started, clock))
            fitted[name] = tuple(done)
        return cls(graph, seen, dict(recipes), fitted)

    def reapply(self, outputs: Sequence[Outputs]) -> Study:
        """The same calibrations on other outputs, run by run: a graph that changed after fitting."""
        graph, seen = shared_graph(outputs), blinded_outputs(outputs)
        fitted = {
            name: tuple(apply(one.calibration, out, one.fit_seconds) for one, out in zip(runs, seen))
            for name, runs in self.fitted.items()
        }
        return Study(graph, seen, self.recipes, fitted)

    def log_probs(self, name: str) -> list[Tensor]:
        """(N, C) of each run."""
        return [one.log_probs for one in self.fitted[name]]

    def scores(self, nodes: Tensor, bins: int = BINS) -> dict[str, list[Scores]]:
        """Scores without intervals or tests on ``nodes``, per recipe and run."""
        y, facts = self.graph.y, None if self.graph.get("edge_index") is None else structure(self.graph)

        def one(lp: Tensor) -> Scores:
            return score(lp[nodes], y[nodes], bins, [] if facts is None else cut_nodes(lp, y, nodes, facts))

        return {name: [one(lp) for lp in self.log_probs(name)] for name in self.recipes}

    def measure(self, nodes: Tensor, bins: int = BINS, before: str = "none") -> dict[str, Measurement]:
        """Measure every recipe on ``nodes`` over all runs, compared with the recipe ``before``.

        Without edges there are no slices of the graph.
        """
        graph = self.graph if self.graph.get("edge_index") is not None else None
        return {
            name: evaluate(
                self.log_probs(name),
                self.graph.y,
                nodes,
                graph,
                bins,
                before=self.log_probs(before) if name != before and before in self.recipes else None,
                thorough=False,
            )
            for name in self.recipes
        }

    def about(self, name: str) -> dict[str, Any]:
        """Title of a recipe, what was fitted, and how long that took: the start of `graphcal.results.MethodResult`."""
        recipe, runs = self.recipes[name], self.fitted[name]
        card = getattr(recipe, "card", None)
        return {
            "title": name if card is None else card.title,
            "recipe": repr(recipe),
            "fitted": repr(runs[-1].calibration),
            "fit_seconds": median(one.fit_seconds for one in runs),
            "apply_seconds": median(one.apply_seconds for one in runs),
        }


def apply(
    calibration: Calibration, out: Outputs, fit_seconds: float, clock: Callable[[], float] = time.perf_counter
) -> FittedRun:
    """Apply a calibration to every node of ``out``."""
    started = clock()
    with torch.no_grad():
        log_probs = calibration(out).detach()
    return FittedRun(calibration, log_probs, fit_seconds, clock() - started)


def shared_graph(outputs: Sequence[Outputs]) -> Data:
    """The one graph of all runs."""
    if not outputs:
        raise ValueError("a study needs the outputs of at least one run")
    graph = outputs[0].graph
    if any(out.graph is not graph for out in outputs):
        raise ValueError("a study needs runs on one graph: runs with splits of their own are studied one by one")
    return graph


def blinded_outputs(outputs: Sequence[Outputs]) -> tuple[Outputs, ...]:
    """The same outputs on a graph without test labels; one graph for all, so that its structure is computed once."""
    blind = hide_test_labels(outputs[0].graph)
    return tuple(replace(out, graph=blind) for out in outputs)


def held_out(out: Outputs, recipe: Recipe, on: Tensor, folds: Sequence[Tensor]) -> Tensor:
    """Log-probabilities (n, C) of the nodes ``on``, each calibrated by a fit on the other folds.

    ``folds`` partition 0..n-1. A calibrator that has seen a node's label says little about how it does without.
    """
    (seen,) = blinded_outputs([out])
    nodes = on.nonzero().flatten()
    log_probs = torch.empty(len(nodes), out.num_classes, dtype=out.logits.dtype)
    for fold in folds:
        rows, others = nodes[fold], on.clone()
        others[rows] = False
        with one_thread():
            calibration = recipe.fit(seen, on=others)
        log_probs[fold] = apply_to_rows(calibration, seen, rows)
    return log_probs


@torch.no_grad()
def apply_to_rows(calibration: Calibration, out: Outputs, rows: Tensor) -> Tensor:
    """Log-probabilities (n, C) of the nodes ``rows``; the others are calibrated only if the calibration needs the whole graph."""
    if calibration.needs.whole_graph:
        return calibration(out)[rows]
    with without_autocast(out.logits.device):
        return calibration.log_probs(out.logits[rows], calibration.context_of(out)[rows])
