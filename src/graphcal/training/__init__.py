"""Training many replicas of a backbone as one (`train`, `train_replicas`), and the lever for other people's loops."""

from graphcal.training.decay_groups import param_groups
from graphcal.training.ensembles import ensemble, mc_dropout
from graphcal.training.published import RECIPES, Preset, preset, recipe
from graphcal.training.replicas import History, Replica, Run
from graphcal.training.runs import train, train_replicas
from graphcal.training.settings import Training

__all__ = [
    "RECIPES",
    "History",
    "Preset",
    "Replica",
    "Run",
    "Training",
    "ensemble",
    "mc_dropout",
    "param_groups",
    "preset",
    "recipe",
    "train",
    "train_replicas",
]
