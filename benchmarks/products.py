"""The products of a GCNII layer: through torch.bmm and through oneDNN, side by side in one run, on one thread.

    python benchmarks/products.py [--nodes 2708 3327 19717] [--width 256]

Forward: relu(s M). To the input: the gradient times M transposed. Rounds alternate; figures are medians, in billions of
operations per second, and oneDNN's rate divided by torch.bmm's. `engine.dense` takes oneDNN from `LARGE` on.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from graphcal.lab.bench.engines import keep_memory
from graphcal.lab.engine import dense

ROUNDS, REPEATS = 9, 4


def rates(ways: dict[str, Callable[[], Tensor]], operations: float) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            way()
            began = time.perf_counter()
            for _ in range(REPEATS):
                way()
            found[name].append(REPEATS * operations / (time.perf_counter() - began) / 1e9)
    return {name: statistics.median(each[1:]) for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2708, 3327, 19717])
    parser.add_argument("--width", type=int, default=256)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    dense.LARGE = 0
    for n in asked.nodes:
        x, weight = torch.randn(1, n, asked.width), torch.randn(1, asked.width, asked.width)
        for name, w, relu in (("forward", weight, True), ("to the input", weight.transpose(1, 2), False)):
            ways = {
                "torch.bmm": lambda w=w, relu=relu, x=x: torch.bmm(x, w).relu_() if relu else torch.bmm(x, w),
                "oneDNN": lambda w=w, relu=relu, x=x: dense.product(x, w, relu),
            }
            found = rates(ways, 2.0 * n * asked.width**2)
            ratio = found["oneDNN"] / found["torch.bmm"]
            both = ", ".join(f"{way} {rate:.0f}" for way, rate in found.items())
            print(f"{n:,} x {asked.width} {name}: {both}: {ratio:.2f} x")


if __name__ == "__main__":
    main()
