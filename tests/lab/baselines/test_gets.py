"""GETS trains what it should and can keep predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcal.lab.baselines import GETS
from small_outputs import model_outputs


@pytest.fixture(scope="module")
def out():
    return model_outputs()


def test_gets_trains_its_degree_embedding_and_can_keep_predictions(out):
    start = GETS(epochs=0).fit(out, out.graph.val_mask)
    fitted = GETS(epochs=10, patience=100).fit(out, out.graph.val_mask)
    assert not torch.equal(start.embed, fitted.embed)
    node = GETS(epochs=10, per_class=False).fit(out, out.graph.val_mask)
    assert torch.equal(node(out).argmax(-1), out.pred)
    bare = out.graph.clone()
    del bare["x"]
    with pytest.raises(ValueError, match="no x"):
        GETS().fit(replace(out, graph=bare), out.graph.val_mask)
