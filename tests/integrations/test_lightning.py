"""The callback, with a real Trainer."""

import pytest
import torch
from torch.nn.functional import cross_entropy, dropout
from torch.utils.data import DataLoader
from torch_geometric.nn import GCNConv

import graphcal as gc

lightning = pytest.importorskip("lightning.pytorch")
from graphcal.integrations.lightning import CalibrateOnFitEnd  # noqa: E402

DATA = gc.synthetic(400, seed=0)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.first, self.last = GCNConv(DATA.num_features, 16), GCNConv(16, 5)

    def forward(self, x, edge_index):
        return self.last(dropout(self.first(x, edge_index).relu(), 0.5, self.training), edge_index)

    def training_step(self, batch, index):
        return cross_entropy(self(DATA.x, DATA.edge_index)[DATA.train_mask], DATA.y[DATA.train_mask])

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def test_a_module_is_calibrated_when_training_ends(tmp_path):
    once = DataLoader([0])
    callback = CalibrateOnFitEnd(DATA, "ts")
    trainer = lightning.Trainer(
        max_epochs=3, callbacks=[callback], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, accelerator="cpu",
    )  # fmt: skip
    module = Module()
    trainer.fit(module, once, once)
    assert 0 < float(trainer.callback_metrics["val_nll"]) < 5
    out = gc.observe(module, DATA)
    expected = gc.TemperatureScaling().fit(out, on=DATA.val_mask)(out)
    torch.testing.assert_close(callback.calibration(out), expected)
