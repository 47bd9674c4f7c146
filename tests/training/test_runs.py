"""What is asked of one run: its decays and its nodes."""

import pytest

from graphcal.training import History, Replica, Training


def test_what_a_replica_does_not_say_is_the_trainings():
    training = Training(weight_decay=0.1)
    assert Replica(0).weight_decays(training) == (0.1, 0.1)
    assert Replica(0, weight_decay=0.3).weight_decays(training) == (0.3, 0.3)
    assert Replica(0, final_weight_decay=0.0).weight_decays(training) == (0.1, 0.0)
    both = Training(weight_decay=0.1, final_weight_decay=0.2)
    assert Replica(0).weight_decays(both) == (0.1, 0.2)
    assert Replica(0, weight_decay=0.3).weight_decays(both) == (0.3, 0.2)
    assert Replica(0, final_weight_decay=0.4).weight_decays(both) == (0.1, 0.4)


def test_its_masks_are_the_graphs_unless_it_has_its_own(graph):
    assert Replica(0).masks(graph) == (graph.train_mask, graph.val_mask)
    swapped = Replica(0, train_mask=graph.val_mask, val_mask=graph.train_mask)
    assert swapped.masks(graph) == (graph.val_mask, graph.train_mask)
    with pytest.raises(ValueError, match="train_mask and val_mask share 60 nodes"):
        Replica(0, train_mask=graph.val_mask).masks(graph)


def test_a_history_counts_its_epochs():
    assert History(val_loss=[1.0, 0.5]).epochs == 2
