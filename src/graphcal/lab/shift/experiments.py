"""Two uncomfortable questions, as tables: lists of rows, one per method, means over seeds, fractions.

    wrong_predictions    what does a calibration do to the confidence of wrong predictions?
    out_of_distribution  what happens with an unknown class, other features, other edges?

Calibrators are fitted on validation nodes of the unchanged graph, which is blinded; test labels are read only to measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphcal.core import Recipe
from graphcal.lab.shift.changes import with_mixed_features, with_rewired_edges, without_class
from graphcal.lab.training import Run, Training, train
from graphcal.methods import SCAR, GraphScaling, TemperatureScaling, Uncalibrated
from graphcal.metrics import mean_scores
from graphcal.metrics.bins import confidence
from graphcal.metrics.selective import auroc_of, grouped
from graphcal.observation import observe
from graphcal.study import Study

METHODS: dict[str, Recipe] = {
    "none": Uncalibrated(),
    "ts": TemperatureScaling(),
    "scar": SCAR(),
    "graph-scaling": GraphScaling(),
}
SHARES = (0.0, 0.5, 1.0)
TableRows = list[dict[str, Any]]


def study_of(runs: Sequence[Run], data: Data, methods: Mapping[str, Recipe]) -> Study:
    """The methods, fitted on the validation nodes of every run."""
    return Study.of([run.outputs for run in runs], methods, on=data.val_mask)


def measured_rows(study: Study, **labels: Any) -> TableRows:
    """A row per method, measured on the test nodes; ``labels`` go before the numbers."""
    test = study.graph.test_mask
    rows = []
    for name, scores in study.scores(test).items():
        moved = [lp.argmax(-1) != out.pred for lp, out in zip(study.log_probs(name), study.outputs)]
        changed = fmean(float(one[test].double().mean()) for one in moved)
        rows.append({**labels, "method": name, **mean_scores(scores).to_dict(), "changed": changed})
    return rows


def wrong_predictions(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    methods: Mapping[str, Recipe] = METHODS,
) -> TableRows:
    """Confidence on right and on wrong predictions, before and after each method."""
    return measured_rows(study_of(train(data, backbone, training, seeds), data, methods))


def out_of_distribution(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    seeds: Iterable[int] = range(3),
    shares: Sequence[float] = SHARES,
    unknown: int = 0,
    methods: Mapping[str, Recipe] = METHODS,
    generator: torch.Generator | None = None,
) -> TableRows:
    """Each method under mixed features, rewired edges (by share; 0 is the graph as it is) and an unknown class.

    Rows of the unknown class: ``confidence_unknown`` is the mean confidence on its nodes, where every answer is wrong, and
    ``auroc_unknown`` how well low confidence gives them away.
    """
    seeds = list(seeds)
    generator = generator or torch.Generator().manual_seed(0)
    runs = train(data, backbone, training, seeds)
    study = study_of(runs, data, methods)
    rows: TableRows = []
    for shift, change in (("features", with_mixed_features), ("edges", with_rewired_edges)):
        for share in shares:
            changed = change(data, share, generator)
            views = [observe(run.model, changed) for run in runs]
            rows += measured_rows(study.carried_to(views), shift=shift, share=share)
    known = without_class(data, unknown)
    return rows + _unknown_class(study_of(train(known, backbone, training, seeds), known, methods))


def _unknown_class(study: Study) -> TableRows:
    """The rows of a graph from which a class was left out, with the confidence on that class."""
    test, unknown = study.graph.test_mask, study.graph.unknown_mask
    rows = measured_rows(study, shift="unknown class", share=1.0)
    for row in rows:
        conf = [confidence(lp)[0] for lp in study.log_probs(row["method"])]
        row["confidence_unknown"] = fmean(float(c[unknown].mean()) for c in conf)
        row["auroc_unknown"] = fmean(separation(c[test], c[unknown]) for c in conf)
    return rows


def separation(known: Tensor, unknown: Tensor) -> float:
    """Probability that a known node is more confident than an unknown one."""
    is_known = torch.cat([torch.ones_like(known), torch.zeros_like(unknown)]).double()
    return auroc_of(*grouped(torch.cat([known, unknown]), is_known))
