"""Train a graph neural network, calibrate it, measure it."""

from graphcal.pipeline import run

__all__ = ["run"]
