"""The order of nodes does not depend on their numbers; folds are a partition."""

from __future__ import annotations

import pytest
import torch

from graphcal.core import hide_test_labels
from graphcal.methods.solvers.node_order import canonical_order, fitting_order, kfold, stopping_order, training_nodes
from small_outputs import model_outputs, permuted


def test_renumbered_nodes_come_in_the_same_order():
    out = model_outputs()
    order = torch.randperm(out.num_nodes, generator=torch.Generator().manual_seed(0))
    moved = permuted(out, order)
    before = canonical_order(out.logits, out.graph.val_mask)
    after = canonical_order(moved.logits, moved.graph.val_mask)
    assert torch.equal(order[after], before)
    assert torch.equal(before.sort().values, out.graph.val_mask.nonzero().flatten())


def test_stopping_nodes_are_checked_and_default_to_the_fitted_ones():
    out = model_outputs()
    fitted = fitting_order(out, out.graph.val_mask)
    assert stopping_order(out, None, fitted) is fitted
    train = stopping_order(out, out.graph.train_mask, fitted)
    assert torch.equal(train.sort().values, out.graph.train_mask.nonzero().flatten())
    blind = type(out)(out.logits, hide_test_labels(out.graph))
    with pytest.raises(ValueError, match="stop selects .* nodes without a label"):
        stopping_order(blind, out.graph.test_mask, fitted)


def test_training_nodes_are_a_mask_or_nothing():
    out = model_outputs()
    assert torch.equal(training_nodes(out), out.graph.train_mask)
    bare = out.graph.clone()
    del bare.train_mask
    assert training_nodes(type(out)(out.logits, bare)) is None


def test_folds_are_a_partition():
    folds = kfold(23, 5, torch.Generator().manual_seed(0))
    assert sorted(torch.cat(folds).tolist()) == list(range(23))
    assert {len(fold) for fold in folds} == {4, 5}
