"""The public surface, for editors and type checkers; `__init__.py` imports each name when it is first used."""

from graphcal import bench as bench
from graphcal import core as core
from graphcal import datasets as datasets
from graphcal import decisions as decisions
from graphcal import graphs as graphs
from graphcal import methods as methods
from graphcal import metrics as metrics
from graphcal import models as models
from graphcal import plots as plots
from graphcal import theory as theory
from graphcal import training as training
from graphcal import tuning as tuning
from graphcal.core import Calibration as Calibration
from graphcal.core import FinalLayer as FinalLayer
from graphcal.core import Outputs as Outputs
from graphcal.core import Recipe as Recipe
from graphcal.datasets import load as load
from graphcal.datasets import read as read
from graphcal.datasets import synthetic as synthetic
from graphcal.decisions import Decision as Decision
from graphcal.decisions import decide as decide
from graphcal.explanation import explain as explain
from graphcal.graphs import structure as structure
from graphcal.methods import CALIBRATORS as CALIBRATORS
from graphcal.methods import SCAR as SCAR
from graphcal.methods import GraphScaling as GraphScaling
from graphcal.methods import TemperatureScaling as TemperatureScaling
from graphcal.metrics import Measurement as Measurement
from graphcal.metrics import evaluate as evaluate
from graphcal.models import BACKBONES as BACKBONES
from graphcal.observation import observe as observe
from graphcal.persist import restore as restore
from graphcal.persist import save as save
from graphcal.pipeline import run as run
from graphcal.reports import report as report
from graphcal.serving import CalibratedModel as CalibratedModel
from graphcal.study import Study as Study
from graphcal.tables.calibration import calibrate as calibrate
from graphcal.tables.writing import export as export
from graphcal.training import NeighborSampler as NeighborSampler
from graphcal.training import Run as Run
from graphcal.training import Sampling as Sampling
from graphcal.training import Training as Training
from graphcal.training import cross_fit as cross_fit
from graphcal.training import param_groups as param_groups
from graphcal.training import train as train
from graphcal.tuning import tune_decay as tune_decay

__version__: str
__all__: list[str]
