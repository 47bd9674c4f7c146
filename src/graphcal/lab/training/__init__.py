"""Training many replicas of a backbone as one (`train`, `train_replicas`), and the lever for other people's loops."""

from graphcal.lab.training._loop import History
from graphcal.lab.training.cross_fitting import CrossFit, cross_fit, ensemble, mc_dropout
from graphcal.lab.training.loaders import NeighborSampler
from graphcal.lab.training.losses import AULS, CrossEntropy
from graphcal.lab.training.retraining import Retraining, retrain
from graphcal.lab.training.settings import (
    TRAININGS,
    Published,
    Replica,
    Training,
    default_training,
    param_groups,
    published,
)
from graphcal.lab.training.trainer import Run, train, train_replicas

__all__ = [
    "AULS",
    "TRAININGS",
    "CrossEntropy",
    "CrossFit",
    "History",
    "NeighborSampler",
    "Published",
    "Replica",
    "Retraining",
    "Run",
    "Training",
    "cross_fit",
    "default_training",
    "ensemble",
    "mc_dropout",
    "param_groups",
    "published",
    "retrain",
    "train",
    "train_replicas",
]
