"""Power of the tables' paired test on 1,000 test nodes, from models whose true error is known.

    python -m graphcal.lab.paper.power            # a few minutes of one core

Labels are drawn from softmax(z), seven classes, about 80 % accuracy; one model says softmax(z) and is calibrated, the other says
softmax(s z) and has a true error that a million nodes measure. Both are compared on many test sets of 1,000 nodes with 20 bins:
how often does `graphcal.metrics.compare` find a significant difference at 5 %, by ECE and by NLL?
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import typer
from torch import Tensor

from graphcal.metrics.comparison import compare
from graphcal.metrics.scores import ece

CLASSES, SPREAD, BINS, LEVEL = 7, 4.5, 20, 0.05


@dataclass(frozen=True)
class Power:
    """A true error in points, and the share of test sets in which it is found."""

    error: float
    by_ece: float
    by_nll: float


def draw(nodes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Logits (N, C) and labels drawn from their softmax."""
    z = SPREAD * torch.randn(nodes, CLASSES, generator=generator, dtype=torch.float64)
    return z, torch.multinomial(z.softmax(1), 1, generator=generator)[:, 0]


def true_error(scale: float, nodes: int = 1_000_000, seed: int = 0) -> float:
    """ECE of softmax(s z) in points, on so many nodes that what is left is the truth."""
    z, y = draw(nodes, torch.Generator().manual_seed(seed))
    return 100 * float(ece((scale * z).log_softmax(1), y, BINS))


def find_power(scale: float, sets: int = 200, nodes: int = 1000, draws: int = 200, seed: int = 1) -> Power:
    """Share of draws in which the test separates the calibrated model from the scaled one."""
    generator = torch.Generator().manual_seed(seed)
    significant = {"ece": 0, "nll": 0}
    for _ in range(sets):
        z, y = draw(nodes, generator)
        for metric in significant:
            a, b = z.log_softmax(1), (scale * z).log_softmax(1)
            significant[metric] += compare(a, b, y, metric, bins=BINS, draws=draws, generator=generator).p <= LEVEL
    return Power(true_error(scale), significant["ece"] / sets, significant["nll"] / sets)


def main(sets: int = typer.Option(200, help="Test sets of 1,000 nodes.")) -> None:
    print("| true error, points | significantly different by ECE | by NLL |\n|---:|---:|---:|")
    for scale in (0.91, 0.85, 0.78):
        power = find_power(scale, sets)
        print(f"| {power.error:.1f} | {power.by_ece:.0%} | {power.by_nll:.0%} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
