"""Two-class tables: the calibrator that ``auto`` and `graphcal alerts` take, and notes on probabilities shifted as a whole.

A model trained with class weights, or on resampled rows, gives p'(c|x) ∝ w_c p(c|x): all log-odds are moved by log(w_1 / w_0). A
calibrator that keeps predictions cannot undo this, because no probability crosses 50 %. Labels of fitting rows only are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn.functional import nll_loss

from graphcal.core import Calibration, Outputs
from graphcal.graphs import class_name
from graphcal.methods import CALIBRATORS
from graphcal.methods.platt import is_far, shift_of
from graphcal.methods.positive_curves import CURVES, apply_curve, fit_curve
from graphcal.methods.solvers.node_order import kfold
from graphcal.study import Study, held_out

COMPARED = ("graph-scaling", "platt", "isotonic")
FOLDS = 5
FEWEST = 20  # fitting rows for a comparison; graph scaling is taken with fewer


def compare_calibrators(out: Outputs) -> dict[str, float]:
    """Cross-validated NLL of each calibrator of `COMPARED` on the fitting rows; empty where these are too few."""
    on = out.graph.val_mask
    y = out.graph.y[on]
    if len(y) < FEWEST:
        return {}
    from torch_geometric.data import Data

    if out.graph.get("edge_index") is None:  # rows stand alone: the others are not needed
        on = torch.ones_like(y, dtype=torch.bool)
        out = Outputs(out.logits[out.graph.val_mask], Data(y=y, val_mask=on, num_nodes=len(y)), out.final)
    folds = kfold(len(y), FOLDS, torch.Generator().manual_seed(0))
    return {name: float(nll_loss(held_out(out, CALIBRATORS[name](), on, folds).double(), y)) for name in COMPARED}


def notes_on(study: Study) -> list[str]:
    """Notes on the calibrations of a two-class table: the choice of ``auto``, and shifted probabilities."""
    out = study.outputs[0]
    if out.num_classes != 2:
        return []
    fits = [runs[0].calibration.fitted_on for runs in study.fitted.values()]
    notes = [choice_note(fit["compared"]) for fit in fits if "compared" in fit]
    on, name = out.graph.val_mask, class_name(study.graph, 1)
    positive = out.graph.y[on] == 1
    labels = f"{100 * float(positive.double().mean()):.1f} % of the fitting rows are in it"
    if shift := shift_of(out.logits[on], positive):
        mean, weight = shift
        notes.append(
            f"The mean predicted probability of class {name} is {100 * mean:.1f} %, and {labels}: a class "
            f"weight of about {weight:.2g} would explain this. If the model was trained with class weights or on resampled rows, "
            "see graphcal.decisions.undo_weights."
        )
    for method, recipe in study.recipes.items():
        card = getattr(recipe, "card", None)
        after = study.log_probs(method)[0][on].double().exp()[:, 1]
        if method != "none" and card is not None and card.keeps_predictions and is_far(after, positive):
            notes.append(
                f"{method} keeps predictions, so no probability crosses 50 %: the mean probability of class {name} is still "
                f"{100 * float(after.mean()):.1f} %, and {labels}. Use platt or isotonic."
            )
    return notes


def choice_note(compared: Mapping[str, float]) -> str:
    best, *others = sorted(compared, key=lambda name: compared[name])
    beside = ", ".join(f"{name} {compared[name]:.4f}" for name in others)
    return f"auto chose {best}: cross-validated NLL {compared[best]:.4f} on the fitting rows ({beside})."


# One column of scores


@dataclass(frozen=True, eq=False)
class CurveChoice:
    """The calibration of a positive class with the lowest cross-validated NLL."""

    name: str
    nll: Mapping[str, float]  # held out, of each candidate
    class_weight: float | None  # that explains the mean score against the label rate; None where no shift does
    calibration: Calibration | None = field(repr=False)  # None: the scores as they are, or a candidate of the caller

    def reason(self) -> str:
        """Sentences on how scores became probabilities, for readers who do not know the methods; their names are in brackets."""
        others = sorted((value, name) for name, value in self.nll.items() if name != self.name)
        beside = ", ".join(f"{TITLES.get(name, name)} {value:.4f}" for value, name in others[:3])
        best = f"{TITLES.get(self.name, self.name)}: loss {self.nll[self.name]:.4f}"
        why = f"came closest to labels held back ({best}; {beside})" if others else "so few labels can fit"
        if self.name == "none":
            text = f"Scores are used as probabilities as they are, which {why}."
        else:
            sources = "Scores and edges" if self.name == "graph-scaling" else "Scores"
            text = f"{sources} were turned into probabilities in the way that {why}."
        if self.class_weight is None:
            return text
        undone = "this is undone" if self.name != "none" else "this is left as it is"
        return f"{text} Scores look as if the class counted {self.class_weight:.2g} times in training; {undone}."

    def to_dict(self) -> dict[str, Any]:
        return {"method": self.name, "nll": dict(self.nll), "class_weight": self.class_weight, "reason": self.reason()}


TITLES = {"none": "scores as given", "shift": "class weights undone", "platt": "Platt scaling", "beta": "beta calibration",
          "quadratic": "quadratic logistic", "isotonic": "isotonic regression",
          "graph-scaling": "graph scaling"}  # fmt: skip


def curve_folds(count: int) -> list[np.ndarray]:
    """Rows of each fold of the cross-validation."""
    return [fold.numpy() for fold in kfold(count, FOLDS, torch.Generator().manual_seed(0))]


def choose_curve(
    odds: np.ndarray,
    positive: np.ndarray,
    weight: np.ndarray,
    span: tuple[float, float],
    probabilities: bool = True,
    others: Mapping[str, np.ndarray] | None = None,
) -> CurveChoice:
    """Choose a monotone curve for log-odds (n,) of labelled rows by cross-validated NLL.

    Parameters
    ----------
    odds, positive, weight : (n,)
        Log-odds as given, labels, and 1 / inclusion probability.
    span : (low, high)
        Range of the scores of all rows; a curve that falls somewhere in it is left out.
    probabilities : bool
        Whether the scores are probabilities, so that they may be right as they are.
    others : mapping, optional
        Held-out probabilities (n,) of further candidates, by the folds of `curve_folds`.
    """
    few = min(int(positive.sum()), int((~positive).sum())) < FOLDS or len(odds) < FEWEST
    names = ["shift"] if few else [name for name in CURVES if name != "isotonic" or np.abs(odds).max() < 30]
    if not probabilities:
        names = [name for name in names if name not in ("shift", "beta")] or ["platt"]
    held = {"none": apply_curve(None, odds)} if probabilities and not few else {}
    folds = curve_folds(len(odds))
    tried = {name: cross_fitted(name, odds, positive, weight, span, folds) for name in names}
    held |= {name: probs for name, probs in tried.items() if probs is not None} | dict(others or {})
    nll = {name: weighted_nll(probs, positive, weight) for name, probs in held.items()}
    fitted = {name: fit_curve(name, odds, positive, weight, span) for name in names if name in nll}
    nll = {name: value for name, value in nll.items() if fitted.get(name, True) is not None}
    if not nll or fitted.get("platt", True) is None or ("platt" in names and "platt" not in held):
        raise ValueError("Higher scores do not go with more positive labels. Check --class, or the sign of the scores.")
    best = min(nll, key=lambda name: nll[name])
    logits = torch.from_numpy(np.column_stack([np.zeros_like(odds), odds]))
    shift = shift_of(logits, torch.from_numpy(positive)) if probabilities and (weight == weight[0]).all() else None
    undone = fitted.get("shift")
    class_weight = None if shift is None or undone is None else math.exp(-float(undone.weights[0]))  # type: ignore[index]
    return CurveChoice(best, nll, class_weight, fitted.get(best))


def cross_fitted(
    name: str,
    odds: np.ndarray,
    positive: np.ndarray,
    weight: np.ndarray,
    span: tuple[float, float],
    folds: Sequence[np.ndarray],
) -> np.ndarray | None:
    """Probabilities (n,) by curves fitted without the fold of each row; None where one of them is not increasing."""
    probs = np.empty(len(odds))
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(odds)), fold)
        curve = fit_curve(name, odds[rest], positive[rest], weight[rest], span)
        if curve is None:
            return None
        probs[fold] = apply_curve(curve, odds[fold])
    return probs


def weighted_nll(probs: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> float:
    """Weighted mean of -log p of the label; probabilities below 1e-6 count as 1e-6."""
    p = np.clip(np.where(positive, probs, 1 - probs), 1e-6, 1)
    return float(np.average(-np.log(p), weights=weight))


def average_precision(score: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> float:
    """Weighted average precision: mean, over positives, of the precision at their score."""
    order = np.argsort(-score, kind="stable")
    score, hit, w = score[order], positive[order] * weight[order], weight[order]
    last = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)  # equal scores are one step
    hits, seen = np.cumsum(hit)[last], np.cumsum(w)[last]
    return float((np.diff(hits, prepend=0.0) * hits / seen).sum() / max(float(hit.sum()), 1e-12))
