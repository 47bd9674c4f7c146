"""What reviewers of SCAR (arXiv:2505.11335) asked for, as tables: lists of rows, means over seeds, fractions.

    wrong_predictions    does pulling a node to its predicted centroid make wrong predictions over-confident?
    out_of_distribution  what happens with an unknown class, other features, other edges; with and without the guard?
    weights_table        one weight or two, only one side, one for each distance?
    zero_decay           what is left of the method when the final layer trains without decay?

How sensitive the result is to the decay of each layer is `graphcal.tuning.sweep_decay(which=("final", "others", "global"))`.
Calibrators are fitted on validation nodes of the unchanged graph, which is blinded; test labels are read only to measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import Calibration, Outputs, Recipe, blinded
from graphcal.methods import CALIBRATORS, SCAR, TemperatureScaling, Uncalibrated
from graphcal.methods.graph_scar import GraphSCAR
from graphcal.metrics.ranking import auroc_of, grouped
from graphcal.observation import observe
from graphcal.shift.graphs import with_mixed_features, with_rewired_edges, without_class
from graphcal.shift.scores import confidence_split, mean_row
from graphcal.training import Replica, Run, Training, train, train_replicas


def _announced(title: str, name: str) -> dict[str, Recipe]:
    """A variant that `graphcal.paper` announces; without that folder the tables have fewer rows."""
    return {title: CALIBRATORS[name]()} if name in CALIBRATORS else {}


METHODS: dict[str, Recipe] = {
    "none": Uncalibrated(),
    "ts": TemperatureScaling(),
    "scar": SCAR(),
    **_announced("scar (no guard)", "scar-no-guard"),
    "graph-scar": GraphSCAR(),
}
WEIGHTS: dict[str, Recipe] = {
    "none": Uncalibrated(),
    "alpha only": SCAR(beta=0.0),
    "beta only": SCAR(alpha=0.0),
    **_announced("one weight", "scar-shared"),
    "two weights": SCAR(),
    **_announced("one for each distance", "scar-per-hop"),
    "two weights and a temperature": SCAR(temperature=True),
}
SHARES = (0.0, 0.5, 1.0)
Rows = list[dict[str, Any]]


def fitted_on_validation(run: Run, data: Data, methods: Mapping[str, Recipe]) -> dict[str, Calibration]:
    seen = replace(run.outputs, graph=blinded(data))
    return {name: recipe.fit(seen, on=data.val_mask) for name, recipe in methods.items()}


def _table(runs: Sequence[Run], data: Data, methods: Mapping[str, Recipe], **labels: Any) -> Rows:
    """One row for each method, measured on the test nodes."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
    for run in runs:
        for name, calibration in fitted_on_validation(run, data, methods).items():
            rows[name].append(_measured(calibration, run.outputs, data))
    return [mean_row(found, **labels, method=name) for name, found in rows.items()]


def _measured(calibration: Calibration, out: Outputs, data: Data) -> dict[str, float]:
    log_probs = calibration(out).detach()[data.test_mask]
    changed = log_probs.argmax(-1) != out.pred[data.test_mask]
    return {**confidence_split(log_probs, data.y[data.test_mask]), "changed": float(changed.double().mean())}


def wrong_predictions(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    methods: Mapping[str, Recipe] = METHODS,
) -> Rows:
    """Confidence on right and on wrong predictions, before and after each method."""
    return _table(train(data, backbone, training, seeds), data, methods)


def weights_table(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    methods: Mapping[str, Recipe] = WEIGHTS,
) -> Rows:
    """SCAR with one weight, two, only one of them, and one for each distance from the training set."""
    return _table(train(data, backbone, training, seeds), data, methods)


def zero_decay(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    methods: Mapping[str, Recipe] = METHODS,
) -> Rows:
    """Every method on models whose final layer has the training's own decay, and none."""
    seeds = list(seeds)
    rows: Rows = []
    for name, decay in (("as trained", None), ("zero", 0.0)):
        runs = train_replicas(data, backbone, training, [Replica(seed, final_weight_decay=decay) for seed in seeds])
        rows += _table(runs, data, methods, final_decay=name)
    return rows


def out_of_distribution(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    shares: Sequence[float] = SHARES,
    unknown: int = 0,
    methods: Mapping[str, Recipe] = METHODS,
    generator: torch.Generator | None = None,
) -> Rows:
    """Each method under mixed features, rewired edges (by share; 0 is the graph as it is) and an unknown class.

    Rows of the unknown class: ``conf_unknown`` is the mean confidence on its nodes, where every answer is wrong, and
    ``auroc_unknown`` how well low confidence gives them away.
    """
    seeds = list(seeds)
    generator = generator or torch.Generator().manual_seed(0)
    runs = train(data, backbone, training, seeds)
    fitted = [fitted_on_validation(run, data, methods) for run in runs]
    rows: Rows = []
    for shift, change in (("features", with_mixed_features), ("edges", with_rewired_edges)):
        for share in shares:
            changed = change(data, share, generator)
            views = [observe(run.model, changed) for run in runs]
            for name in methods:
                found = [_measured(each[name], out, changed) for each, out in zip(fitted, views)]
                rows.append(mean_row(found, shift=shift, share=share, method=name))
    return rows + _unknown_class(data, backbone, training, seeds, unknown, methods)


def _unknown_class(
    data: Data, backbone: Any, training: Training | None, seeds: list[int], unknown: int, methods: Mapping[str, Recipe]
) -> Rows:
    known = without_class(data, unknown)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
    for run in train(known, backbone, training, seeds):
        for name, calibration in fitted_on_validation(run, known, methods).items():
            conf = calibration(run.outputs).detach().max(-1).values.exp()
            rows[name].append(
                {
                    **_measured(calibration, run.outputs, known),
                    "conf_unknown": float(conf[known.unknown_mask].mean()),
                    "auroc_unknown": _separation(conf[known.test_mask], conf[known.unknown_mask]),
                }
            )
    return [mean_row(found, shift="unknown class", share=1.0, method=name) for name, found in rows.items()]


def _separation(known: Tensor, unknown: Tensor) -> float:
    """Probability that a known node is more confident than an unknown one."""
    is_known = torch.cat([torch.ones_like(known), torch.zeros_like(unknown)]).double()
    return auroc_of(*grouped(torch.cat([known, unknown]), is_known))
