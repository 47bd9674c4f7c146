"""What weight decay does to accuracy and confidence, by where it acts (arXiv:2505.11335, Figures on lambda and on global decay).

    final    the final layer only, all others at the training's own decay        the paper's lever
    global   every layer                                                         what people tune otherwise
    others   every layer but the final one, which keeps the training's own       a reviewer's question

All decays, places and seeds train together as replicas. A sweep is for looking, so it may be measured on test nodes; choosing a
decay is `tune_decay`'s job and happens on validation nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import stdev
from typing import Any

from torch_geometric.data import Data

from graphcal.checks import check_mask
from graphcal.lab.training import Replica, Training, train_replicas
from graphcal.lab.training.trainer import Progress
from graphcal.lab.tuning.candidates import training_or_default
from graphcal.methods import Uncalibrated
from graphcal.metrics import mean_scores
from graphcal.study import Study

PAPER_DECAYS = (5e-3, 5e-4, 5e-5, 5e-6)
PLACES = ("final", "global", "others")


def sweep_decay(
    data: Data,
    backbone: Any = "gcn",
    training: Training | None = None,
    decays: Sequence[float] = PAPER_DECAYS,
    seeds: Iterable[int] = range(3),
    which: str | Sequence[str] = "both",
    on: str = "test_mask",
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """One row for each place and decay, with means over seeds and the sd of accuracy and ECE.

    ``which``: final, global, others, several of them, or "both" for the paper's final and global. ``on`` names the mask.
    """
    places = ("final", "global") if which == "both" else (which,) if isinstance(which, str) else tuple(which)
    for place in places:
        if place not in PLACES:
            raise ValueError(f"which={place!r} is not one of {', '.join(PLACES)}, both")
    mask = check_mask(data.get(on), int(data.num_nodes), on)
    training = training_or_default(backbone, training)
    seeds = list(seeds)
    cells = [(place, decay) for place in places for decay in decays]
    replicas = [_replica(place, decay, seed, training) for place, decay in cells for seed in seeds]
    runs = train_replicas(data, backbone, training, replicas, progress)
    study = Study.of([run.outputs for run in runs], {"none": Uncalibrated()}, on=data.val_mask)
    scores = study.scores(mask)["none"]
    rows = []
    for k, (place, decay) in enumerate(cells):
        own = scores[k * len(seeds) : (k + 1) * len(seeds)]
        row = {"which": place, "decay": decay, **mean_scores(own).to_dict()}
        for name in ("accuracy", "ece"):
            row[f"{name}_sd"] = stdev(getattr(one, name) for one in own) if len(own) > 1 else 0.0
        rows.append(row)
    return rows


def _replica(place: str, decay: float, seed: int, training: Training) -> Replica:
    _, own = Replica(seed).weight_decays(training)
    if place == "final":
        return Replica(seed, final_weight_decay=decay)
    return Replica(seed, weight_decay=decay, final_weight_decay=decay if place == "global" else own)
