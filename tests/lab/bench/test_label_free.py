"""Windows and page of the benchmark of accuracy without labels."""

import numpy as np
import pytest

import graphcal
from graphcal.communities import communities
from graphcal.lab.bench import label_free


def test_windows_never_hold_a_labelled_node_and_cut_the_graph_as_named():
    out = graphcal.example(3000)
    pool = ~out.graph.train_mask.numpy()
    drawn = list(label_free.cases(out, pool, out.graph.y.numpy(), np.random.default_rng(0)))
    for labelled, windows in drawn:
        for window in (one for some in windows.values() for one in some):
            assert pool[window].all()
            assert len(np.unique(window)) == len(window)
            assert not np.isin(window, labelled).any()
    labelled, windows = drawn[0]
    assert len(labelled) == label_free.LABELS
    part = communities(graphcal.structure(out.graph).edge_index, 3000, (1.0,), seed=label_free.OTHER_SEED)[0]
    regions = [set(part[window].tolist()) for window in windows["region"]]
    assert sum(map(len, regions)) == len(set.union(*regions))  # whole communities
    degree = graphcal.structure(out.graph).degree.numpy()
    lowest, lower, upper, highest = (degree[window] for window in windows["degree"])
    assert lower.max() <= upper.min()
    assert lowest.max() <= lower.max() <= highest.min()
    assert len(lower) == pytest.approx(2 * len(lowest), abs=2)


def test_refused_windows_count_as_neither_covered_nor_missed():
    row = {"graph": "g", "predictions": "free", "accuracy": 0.8, "estimate": 0.7, "accuracy_model": 0.8, "ts": 0.75}
    row |= dict.fromkeys(("cbpe", "atc", "doc"), 0.9)
    row |= {"low": 0.6, "high": 0.75, "without_shift_low": 0.6, "without_shift_high": 0.75, "outside": 0.0}
    wide = dict.fromkeys(("low", "without_shift_low"), 0.0) | dict.fromkeys(("high", "without_shift_high"), 1.0)
    cells = label_free.cells([row, row | wide | {"outside": 0.9}]).split(" | ")
    assert cells == ["2", "10.0", "5.0", "10.0", "10.0", "10.0", "1", "0 % / 7.5", "0 % / 7.5"]
    rows = [row | {"shift": shift} for shift in label_free.PLAIN]
    assert label_free.gates(rows).count("missed") == 4
    better = {"estimate": 0.8, "high": 0.9}
    assert label_free.gates([one | better for one in rows]).count(": met") == 4
