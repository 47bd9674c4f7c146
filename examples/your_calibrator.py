# %% [markdown]
# # A calibrator of your own
#
# Any object with `fit(out, on, stop=None)` that returns a `Calibration` will do. This one scales the logits until the mean
# confidence of the fitted nodes equals their accuracy.

# %%
from dataclasses import dataclass

from torch import Tensor

import graphcal
from graphcal.metrics import ece

# %% [markdown]
# **What is fitted.** Tensors given to the constructor become buffers: moving, saving and restoring work by themselves.


# %%
class Scaled(graphcal.Calibration):
    """Logits times one number."""

    scale: Tensor

    def kernel(self, logits: Tensor, context: Tensor) -> Tensor:  # (C, n): classes first
        return (self.scale.to(logits) * logits).log_softmax(0)


# %% [markdown]
# **How it is fitted.** A frozen dataclass of hyper-parameters: it prints, compares, and can come from a file.


# %%
@dataclass(frozen=True)
class MeanMatching:
    """Scale the logits until mean confidence equals accuracy, found by bisection."""

    steps: int = 60

    def fit(self, out: graphcal.Outputs, on: Tensor, stop: Tensor | None = None) -> Scaled:
        """The scale at which mean confidence and accuracy of the nodes ``on`` meet."""
        logits = out.logits[on].double()
        accuracy = (out.pred[on] == out.graph.y[on]).double().mean()
        low, high = 1e-3, 1e3
        for _ in range(self.steps):
            middle = (low * high) ** 0.5
            confidence = (middle * logits).softmax(-1).max(-1).values.mean()
            low, high = (middle, high) if confidence < accuracy else (low, middle)
        return Scaled(scale=out.logits.new_tensor(low), num_classes=out.num_classes)


# %% [markdown]
# **Beside the others.** It now goes wherever a recipe goes: into a `Study`, `graphcal.lab.run`, `graphcal.decide`.

# %%
graph = graphcal.lab.load("citeseer")
out = graphcal.lab.train(graph, seeds=[0])[0].outputs
for recipe in (graphcal.CALIBRATORS["none"](), MeanMatching(), graphcal.CALIBRATORS["ts"]()):
    log_probs = recipe.fit(out, on=graph.val_mask)(out)
    error = float(ece(log_probs[graph.test_mask], graph.y[graph.test_mask]))
    print(f"{type(recipe).__name__:20s} test ECE {100 * error:5.2f} %")

# %% [markdown]
# **By name.** With the classes above in a file `mine.py`, write `mine.py:MeanMatching` wherever a calibrator is named:
# `graphcal run --calibrator ts,mine.py:MeanMatching`, `graphcal calibrate --calibrator`, and the methods of a bench preset.
# To restore a calibrator that was saved by such a run, import the file first.
#
# A package announces it by an entry point. The folder `examples/calibrator_plugin` is such a package:
#
#     [project.entry-points."graphcal.calibrators"]
#     mean-matching = "my_package:MeanMatching"
