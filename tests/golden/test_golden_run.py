"""`graphcal run citeseer --seeds 2`, trained for 40 epochs, measures what 0.1 measured; seconds and wording are left out."""

from __future__ import annotations

import json

import graphcal
from golden_records import RUN, TRAINING, as_today, differences


def test_the_run_measures_what_0_1_measured():
    """0.1's own calibrator, which its record also has, is held by tests/paper."""
    results = graphcal.run("citeseer", calibrators=["ts"], seeds=range(2), training=graphcal.Training(**TRAINING))
    golden = {**RUN, "methods": {name: RUN["methods"][name] for name in RUN["methods"] if name != "graph-scar"}}
    assert differences(json.loads(json.dumps(results.record)), as_today(golden)) == []
