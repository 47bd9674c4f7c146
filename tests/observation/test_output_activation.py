"""A closing softmax or sigmoid is proved by watching; probabilities of unknown origin serve as logarithms."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GATConv, GCNConv

from conftest import random_graph
from graphcal import CALIBRATORS, SCAR, CalibratedModel, observe

GRAPH = random_graph()
BINARY = random_graph(classes=2)


class Ends(nn.Module):
    def __init__(self, ending, classes: int = 4, attention: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.ending = GCNConv(10, 8), ending
        self.last = GATConv(8, classes) if attention else GCNConv(8, classes)

    def logits(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)

    def forward(self, x, edge_index):
        return self.ending(self.logits(x, edge_index))


ENDINGS = {
    "F.log_softmax": lambda z: F.log_softmax(z, dim=-1),
    "log_softmax method": lambda z: z.log_softmax(dim=1),
    "nn.LogSoftmax": nn.LogSoftmax(-1),
    "torch.softmax": lambda z: torch.softmax(z, 1),
    "F.softmax": lambda z: F.softmax(z, 1),
}


@pytest.mark.parametrize("attention", [False, True], ids=["GCN", "GAT"])
@pytest.mark.parametrize("name", ENDINGS)
def test_a_closing_softmax_is_looked_through(name, attention):
    model = Ends(ENDINGS[name], attention=attention)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = observe(model, GRAPH)
    torch.testing.assert_close(out.logits, model.logits(GRAPH.x, GRAPH.edge_index))
    assert torch.equal(out.final.weight, model.last.lin.weight)
    for recipe in (SCAR(), CALIBRATORS["vs"]()):  # vector scaling sees what is common to all logits of a node
        calibrate = recipe.fit(out, on=GRAPH.val_mask)
        served = CalibratedModel(model, calibrate, GRAPH.train_mask)
        torch.testing.assert_close(served(GRAPH.x, GRAPH.edge_index), calibrate(out), atol=1e-5, rtol=1e-4)


def test_a_compiled_model_that_ends_in_log_softmax():
    model = Ends(ENDINGS["F.log_softmax"])
    calibrate = CALIBRATORS["vs"]().fit(observe(model, GRAPH), on=GRAPH.val_mask)
    served = CalibratedModel(torch.compile(model, backend="eager"), calibrate)
    expected = CalibratedModel(model, calibrate)(GRAPH.x, GRAPH.edge_index)
    torch.testing.assert_close(served(GRAPH.x, GRAPH.edge_index), expected)


@pytest.mark.parametrize("written", ["softmax", "log-softmax"])
def test_a_softmax_written_by_hand_gives_logarithms(written):
    def softmax(z):
        p = (z - z.max(-1, keepdim=True).values).exp()
        return p / p.sum(-1, keepdim=True)

    def log_softmax(z):
        return z - z.logsumexp(-1, keepdim=True)

    model = Ends(softmax if written == "softmax" else log_softmax)
    with pytest.warns(UserWarning, match="no final layer was found"):
        out = observe(model, GRAPH)
    expected = model.logits(GRAPH.x, GRAPH.edge_index).log_softmax(-1)
    torch.testing.assert_close(out.logits, expected, atol=1e-5, rtol=1e-4)
    calibrate = CALIBRATORS["ts"]().fit(out, on=GRAPH.val_mask)
    torch.testing.assert_close(CalibratedModel(model, calibrate)(GRAPH.x, GRAPH.edge_index), calibrate(out))


ONE_LOGIT = {
    "(N, 1)": lambda z: z,
    "(N,)": lambda z: z.squeeze(-1),
    "sigmoid": lambda z: torch.sigmoid(z),
    "sigmoid (N,)": lambda z: z.sigmoid().squeeze(-1),
}


@pytest.mark.parametrize("name", ["(N, 1)", "(N,)", "sigmoid"])
def test_one_logit_becomes_two_classes(name):
    model = Ends(ONE_LOGIT[name], classes=1)
    out = observe(model, BINARY)
    z = model.logits(BINARY.x, BINARY.edge_index).squeeze(-1)
    torch.testing.assert_close(out.logits, torch.stack([torch.zeros_like(z), z], 1))
    torch.testing.assert_close(out.logits.softmax(-1)[:, 1], z.sigmoid())
    torch.testing.assert_close(out.final.weight, torch.cat([torch.zeros(1, 8), model.last.lin.weight]))
    calibrate = SCAR().fit(out, on=BINARY.val_mask)
    served = CalibratedModel(model, calibrate, BINARY.train_mask)(BINARY.x, BINARY.edge_index)
    torch.testing.assert_close(served, calibrate(out), atol=1e-5, rtol=1e-4)
    assert served.shape == (150, 2)


def test_probabilities_of_class_one_of_unknown_origin_are_taken_with_a_word():
    model = Ends(ONE_LOGIT["sigmoid (N,)"], classes=1)
    with pytest.warns(UserWarning, match="taken as probabilities of class 1"):
        out = observe(model, BINARY)
    torch.testing.assert_close(out.logits.softmax(-1)[:, 1], model(BINARY.x, BINARY.edge_index), atol=1e-5, rtol=1e-4)


def test_tasks_of_another_kind_are_named():
    class Images(Ends):
        def forward(self, x, edge_index):
            return self.logits(x, edge_index)[:, :, None]

    with pytest.raises(ValueError, match=r"returned \(150, 4, 1\) of torch.float32; logits are \(N, C\)"):
        observe(Images(None), GRAPH)
    labels = GRAPH.clone()
    labels.y = torch.randint(2, (150, 4))
    with pytest.raises(ValueError, match="classifiers that give each node one class"):
        observe(Ends(ONE_LOGIT["(N, 1)"]), labels)
