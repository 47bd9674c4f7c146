"""A calibrator of your own: any object with ``fit(out, on, stop=None)`` that returns a `Calibration`.

Here: the mean confidence of the fitted nodes is made equal to their accuracy by one scale, found by bisection. Run it:

    python examples/your_calibrator.py
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

import graphcal as gc
from graphcal.metrics import ece


@dataclass(frozen=True)
class MeanMatching:
    """Scale the logits until mean confidence equals accuracy."""

    steps: int = 60

    def fit(self, out: gc.Outputs, on: Tensor, stop: Tensor | None = None) -> Scaled:
        """The scale at which mean confidence and accuracy of the nodes ``on`` meet."""
        logits = out.logits[on].double()
        accuracy = (out.pred[on] == out.graph.y[on]).double().mean()
        low, high = 1e-3, 1e3
        for _ in range(self.steps):
            middle = (low * high) ** 0.5
            confidence = (middle * logits).softmax(-1).max(-1).values.mean()
            low, high = (middle, high) if confidence < accuracy else (low, middle)
        return Scaled(scale=out.logits.new_tensor(low), num_classes=out.num_classes)


class Scaled(gc.Calibration):
    """Tensors given to the constructor are buffers: moving, saving and restoring work by themselves."""

    scale: Tensor

    def from_context(self, logits: Tensor, context: Tensor) -> Tensor:
        return (self.scale.to(logits) * logits).log_softmax(-1)


def main() -> None:
    graph = gc.load("citeseer")
    out = gc.train(graph, seeds=[0])[0].outputs
    test = graph.test_mask
    for recipe in (gc.CALIBRATORS["none"](), MeanMatching(), gc.CALIBRATORS["ts"]()):
        log_probs = recipe.fit(out, on=graph.val_mask)(out)
        error = float(ece(log_probs[test], graph.y[test]))
        print(f"{type(recipe).__name__:20s} test ECE {100 * error:5.2f}")


if __name__ == "__main__":
    main()
