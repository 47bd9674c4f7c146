"""How defaults and FAGCN's settings were chosen: on validation nodes, from candidates that are the same each time."""

from __future__ import annotations

import random

import torch

from conftest import random_graph
from graphcal.core import Outputs
from graphcal.lab.paper.default_candidates import cross_validated_nll
from graphcal.lab.paper.fagcn_candidates import DEFAULTS, QUOTED, Trial, candidates
from graphcal.methods import TemperatureScaling


def test_each_validation_node_is_judged_by_a_fit_without_it() -> None:
    graph = random_graph()
    logits = torch.randn(graph.num_nodes, 4, generator=torch.Generator().manual_seed(0))
    out = Outputs(logits, graph)
    seen: list[torch.Tensor] = []

    class Watched(TemperatureScaling):
        def fit(self, out, on, stop=None):
            seen.append(on)
            return super().fit(out, on, stop)

    nll = cross_validated_nll(Watched(), "fitted", out)
    held = torch.stack([graph.val_mask & ~on for on in seen])
    assert len(seen) == 5
    assert torch.equal(held.sum(0), graph.val_mask.long())  # every node once, in one fold
    whole = TemperatureScaling().fit(out, graph.val_mask)(out)
    fitted = -whole.gather(1, graph.y[:, None])[graph.val_mask].mean()
    assert float(fitted) < nll < float(fitted) + 0.5


def test_candidates_are_the_same_each_time_and_no_deeper_than_asked() -> None:
    first, again = (list(candidates(8, 3, random.Random(0))) for _ in range(2))
    assert first == again
    assert first[:2] == [DEFAULTS, QUOTED]
    assert all(setting.layers <= 3 for setting in first[2:])


def test_trials_are_ranked_by_accuracy_then_nll() -> None:
    trials = [Trial(DEFAULTS, [0.8, 0.8], 0.7), Trial(QUOTED, [0.8, 0.8], 0.6), Trial(DEFAULTS, [0.7, 0.7], 0.1)]
    assert [trials.index(trial) for trial in sorted(trials, key=lambda trial: trial.rank)] == [1, 0, 2]
    words = [text.words for text in Trial(QUOTED, [0.815, 0.815], 0.788).row]
    assert words == ["32", "0.01", "0.6", "1e-03", "4", "0.2", "81.5 ± 0.0", "0.788", "quoted in issue 1"]
