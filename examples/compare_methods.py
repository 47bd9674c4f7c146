"""Comparing methods honestly: validation labels choose, test labels only report, differences are paired, with an interval.

python examples/compare_methods.py
"""

from __future__ import annotations

import graphcal as gc
from graphcal.metrics import compare

METHODS = ("ts", "vs", "scar", "graph-scaling")


def main() -> None:
    data = gc.load("citeseer")
    runs = gc.train(data, training=gc.Training(epochs=100), seeds=range(5))
    recipes = {name: gc.CALIBRATORS[name]() for name in METHODS}
    study = gc.Study.of([run.outputs for run in runs], recipes, on=data.val_mask)  # test labels are hidden inside
    for name, found in study.measure(data.test_mask, before="ts").items():
        print(f"{name:14} NLL {found.nll:.3f}  ECE {100 * found.ece:.1f} %  floor {100 * found.ece_floor:.1f} %")
    y, test = data.y[data.test_mask], data.test_mask
    for name in METHODS[1:]:
        c = compare(study.log_probs(name)[0][test], study.log_probs("ts")[0][test], y, "nll")
        print(f"{name} minus ts, first seed: NLL {c.difference:+.4f} [{c.low:+.4f}, {c.high:+.4f}], p = {c.p:.3f}")


if __name__ == "__main__":
    main()
