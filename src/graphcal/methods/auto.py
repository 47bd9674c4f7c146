"""`auto`: choose among the calibrators that are too simple to overfit the validation nodes, and say why.

Each candidate is cross-validated on the fitted nodes. The smallest held-out NLL wins, with the one-standard-error
rule in favour of the simpler (Breiman et al. 1984): a simpler candidate is taken when its loss, node by node, exceeds
the best one's by no more than one standard error of that difference. "none" is the simplest: when it is within that,
calibration is not measurably needed, and the model is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphcal.core import Calibration, Outputs, Recipe, fitted_on, fitting_nodes
from graphcal.engine.node_order import fitting_order, kfold
from graphcal.methods.card import Card
from graphcal.methods.ets import EnsembleTemperatureScaling
from graphcal.methods.graph_scar import GraphSCAR
from graphcal.methods.none import Uncalibrated
from graphcal.methods.rbs import RatioBinnedScaling
from graphcal.methods.scar import SCAR
from graphcal.methods.temperature import TemperatureScaling


@dataclass(frozen=True)
class Auto:
    """Cross-validate the calibrators that cannot overfit; take the simplest within one standard error of the best.

    For whoever does not want to choose: it tries the calibrators with few parameters that the outputs allow, and the calibration
    says in ``why`` what was chosen and how clear it was.

    >>> import graphcal as gc
    >>> data = gc.load("citeseer")
    >>> out = gc.train(data, training=gc.Training(epochs=60), seeds=[0])[0].outputs
    >>> calibrate = gc.CALIBRATORS["auto"]().fit(out, on=data.val_mask)
    >>> calibrate.chosen in calibrate.scores  # held-out NLL by candidate
    True
    """

    folds: int = 5
    seed: int = 0

    card: ClassVar[Card] = Card(
        title="Automatic choice",
        formula="argmin of held-out NLL over none, ts, scar, ets, scar with temperature, rbs, graph-scar; 1-SE rule",
        paper="one-standard-error rule: Breiman et al., Classification and Regression Trees, 1984",
        parameters="those of the chosen calibrator",
        cost="fit: five times the fits of seven cheap calibrators; apply: that of the chosen one",
        keeps_predictions=True,
        minimises_nll=True,
        graph=True,
        final_layer=True,
        departures="without a final layer neither form of SCAR is a candidate; without edges only none, ts and ets are",
    )

    def __post_init__(self) -> None:
        if self.folds < 2:
            raise ValueError(f"folds must be at least 2; got {self.folds}")

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> Chosen:
        """The chosen calibrator, fitted on all nodes ``on``; ``stop`` is not used."""
        on = fitting_nodes(out, on)
        nodes = fitting_order(out, on)
        if len(nodes) < 2 * self.folds:
            raise ValueError(f"auto cross-validates in {self.folds} folds, but on selects only {len(nodes)} nodes")
        recipes = candidates(out)
        generator = torch.Generator().manual_seed(self.seed)
        loss = {name: torch.zeros(len(nodes), dtype=torch.double) for name in recipes}
        for fold in kfold(len(nodes), self.folds, generator):
            held_out, rest = nodes[fold], on.clone()
            rest[held_out] = False
            for name, recipe in recipes.items():
                log_probs = recipe.fit(out, rest)(out)[held_out]
                loss[name][fold] = -log_probs.gather(-1, out.graph.y[held_out, None]).squeeze(-1).double().cpu()
        chosen, why = one_standard_error(loss)
        scores = {name: float(values.mean()) for name, values in loss.items()}
        calibration = recipes[chosen].fit(out, on)
        return Chosen(calibration=calibration, chosen=chosen, why=why, scores=scores, **fitted_on(out, on))


def candidates(out: Outputs) -> dict[str, Recipe]:
    """From the simplest to the least simple, those that these outputs allow."""
    graph, final = out.graph.get("edge_index") is not None, out.final is not None
    found: dict[str, Recipe] = {"none": Uncalibrated(), "ts": TemperatureScaling()}
    if graph and final:
        found["scar"] = SCAR()
    found["ets"] = EnsembleTemperatureScaling()
    if graph and final:
        found["scar with temperature"] = SCAR(temperature=True)
    if graph:
        found["rbs"] = RatioBinnedScaling()
    if graph and final:
        found["graph-scar"] = GraphSCAR()
    return found


def one_standard_error(loss: Mapping[str, Tensor]) -> tuple[str, str]:
    """The first name (they come from the simplest on) within one standard error of the best, and the reason in words."""
    mean = {name: float(values.mean()) for name, values in loss.items()}
    best = min(mean, key=lambda name: mean[name])
    error = {name: float((v - loss[best]).std() / len(v) ** 0.5) for name, v in loss.items()}
    name = next(name for name in loss if mean[name] - mean[best] <= error[name])
    least = f"held-out NLL {mean[best]:.4f} with {best}, the smallest of {len(mean)}"
    if name == best:
        why = f"{least}; nothing simpler is within one standard error"
    else:
        why = f"{least}; {name} has {mean[name]:.4f}, within one standard error ({error[name]:.4f}) and simpler"
    if name == "none":
        return name, f"calibration is not measurably needed: {why}. The model is left alone"
    return name, f"{name}: {why} (uncalibrated {mean['none']:.4f})"


class Chosen(Calibration):
    """What `Auto` gives: a calibration, and why this one."""

    calibration: Calibration
    chosen: str
    why: str
    scores: dict[str, float]  # held-out NLL of every candidate

    @property
    def reads_graph(self) -> bool:
        return self.calibration.reads_graph

    def context(self, out: Outputs) -> Tensor:
        return self.calibration.context(out)

    def from_context(self, logits: Tensor, context: Tensor) -> Tensor:
        return self.calibration.from_context(logits, context)
