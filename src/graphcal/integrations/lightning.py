"""A Lightning callback: when training ends, the model is observed and calibrated on validation nodes.

    callback = CalibrateOnFitEnd(data)
    Trainer(callbacks=[callback]).fit(model, loader)
    callback.calibration                                # to save and ship

Validation NLL and ECE of the raw model are logged after each validation epoch, so that early stopping can watch them.
"""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback
from torch import nn
from torch_geometric.data import Data

from graphcal.core import Calibration, Outputs
from graphcal.methods import CALIBRATORS
from graphcal.metrics import score
from graphcal.observation import observe
from graphcal.study import Study


class CalibrateOnFitEnd(Callback):
    """Calibrate the module on ``data.val_mask`` when training ends; ``observed`` is passed to `graphcal.observe`.

    The validation nodes fit the calibration, so they cannot also say how good it is: measure on nodes that were held back.
    """

    def __init__(self, data: Data, calibrator: str = "graph-scaling", **observed: Any) -> None:
        self.data, self.recipe, self.observed = data, CALIBRATORS[calibrator](), observed
        self.calibration: Calibration | None = None

    def on_validation_epoch_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Log the raw model's NLL and ECE on the validation nodes."""
        found = score(self._seen(pl_module).logits.log_softmax(-1)[self.data.val_mask], self.data.y[self.data.val_mask])
        pl_module.log_dict({"val_nll": found.nll, "val_ece": found.ece})  # type: ignore[operator]

    def on_fit_end(self, trainer: Any, pl_module: nn.Module) -> None:
        study = Study.of([self._seen(pl_module)], {"last": self.recipe}, on=self.data.val_mask)
        self.calibration = study.fitted["last"][0].calibration

    def _seen(self, model: nn.Module) -> Outputs:
        training = model.training
        try:
            with torch.no_grad():
                return observe(model, self.data, **self.observed)
        finally:
            model.train(training)
