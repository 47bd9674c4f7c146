"""Two-class tables: the calibrator that ``auto`` takes, and notes on probabilities that are shifted as a whole.

A model trained with class weights, or on resampled rows, gives p'(c|x) ∝ w_c p(c|x): all log-odds are moved by log(w_1 / w_0). A
calibrator that keeps predictions cannot undo this, because no probability crosses 50 %. Labels of fitting rows only are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from graphcal.core import Outputs
from graphcal.graphs import class_name
from graphcal.methods import CALIBRATORS
from graphcal.methods.platt import fit_sigmoid
from graphcal.methods.solvers.node_order import kfold
from graphcal.methods.solvers.scaling import log_odds
from graphcal.study import Study, held_out

COMPARED = ("graph-scaling", "platt", "isotonic")
FOLDS = 5
FEWEST = 20  # fitting rows for a comparison; graph scaling is taken with fewer
FAR = math.log(2)  # between the log-odds of the mean probability and of the share of labels: worth a note
STANDARD_ERRORS = 4.0
SLOPES = (0.5, 2.0)  # of Platt scaling where a shift explains most of the error


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
    compared = study.fitted["auto"][0].calibration.fitted_on.get("compared") if "auto" in study.fitted else None
    notes = [choice_note(compared)] if compared else []
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


def is_far(probs: Tensor, positive: Tensor) -> bool:
    """Return whether the mean of probabilities (n,) is far from the share of positive rows (n,), beyond chance."""
    mean, share = float(probs.mean()), float(positive.double().mean())
    if not 0 < share < 1 or not 0 < mean < 1:
        return False
    error = math.sqrt(max(mean * (1 - mean), share * (1 - share)) / len(probs))
    distance = abs(math.log(mean / (1 - mean)) - math.log(share / (1 - share)))
    return distance > FAR and abs(mean - share) > STANDARD_ERRORS * error


def shift_of(logits: Tensor, positive: Tensor) -> tuple[float, float] | None:
    """Mean probability of the positive class and the class weight that explains it; None where no shift of the log-odds does."""
    probs = logits.double().softmax(-1)[:, 1]
    if not is_far(probs, positive):
        return None
    slope, bias = fit_sigmoid(log_odds(logits.double())[:, 1], positive).tolist()
    return (float(probs.mean()), math.exp(-bias / slope)) if SLOPES[0] <= slope <= SLOPES[1] else None
