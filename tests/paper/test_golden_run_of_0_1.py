"""`graphcal run citeseer --seeds 2` with the calibrator that was 0.1's default measures what 0.1 measured."""

from __future__ import annotations

import json

import graphcal
from golden_records import RUN, TRAINING, as_today, differences


def test_the_run_with_the_default_of_0_1_measures_what_0_1_measured():
    training = graphcal.Training(**TRAINING)
    results = graphcal.run("citeseer", calibrators=["ts", "graph-scar"], seeds=range(2), training=training)
    assert differences(json.loads(json.dumps(results.record)), as_today(RUN)) == []
