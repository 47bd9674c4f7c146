"""A training by two processes, to be started in each of them."""

import torch
from torch import distributed

import graphcal as gc
from graphcal.lab.training import Sampling

TRAINING = gc.lab.Training(epochs=4, hidden_channels=16, final_weight_decay=1e-3, patience=3)


def graph():
    return gc.lab.synthetic(1500, degree=12, feature_signal=0.4, seed=3, labels_per_class=21)


def trained(loader=None):
    torch.set_num_threads(1)
    return gc.lab.train(graph(), "sage", TRAINING, seeds=[1], loader=loader or Sampling((4, 4), batch_size=32))[0]


def train_as(rank, size, meeting_file, folder):
    distributed.init_process_group("gloo", init_method=f"file://{meeting_file}", rank=rank, world_size=size)
    run = trained()
    torch.save((run.outputs.logits, run.history.val_loss, run.history.train_loss), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()
