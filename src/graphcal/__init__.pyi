"""The public surface, for editors and type checkers; `__init__.py` imports each name when it is first used."""

from graphcal import core as core
from graphcal import decisions as decisions
from graphcal import graphs as graphs
from graphcal import lab as lab
from graphcal import methods as methods
from graphcal import metrics as metrics
from graphcal import plots as plots
from graphcal._example import example as example
from graphcal.alert_table import alerts as alerts
from graphcal.core import Calibration as Calibration
from graphcal.core import FinalLayer as FinalLayer
from graphcal.core import Outputs as Outputs
from graphcal.core import Recipe as Recipe
from graphcal.decisions import Decision as Decision
from graphcal.decisions import count as count
from graphcal.decisions import decide as decide
from graphcal.decisions import estimate as estimate
from graphcal.graphs import structure as structure
from graphcal.methods import CALIBRATORS as CALIBRATORS
from graphcal.methods import SCAR as SCAR
from graphcal.methods import GraphScaling as GraphScaling
from graphcal.methods import TemperatureScaling as TemperatureScaling
from graphcal.metrics import Measurement as Measurement
from graphcal.metrics import evaluate as evaluate
from graphcal.observation import observe as observe
from graphcal.reports import report as report
from graphcal.saving import restore as restore
from graphcal.saving import save as save
from graphcal.serving import CalibratedModel as CalibratedModel
from graphcal.study import Study as Study
from graphcal.tables.calibration import calibrate as calibrate
from graphcal.tables.writing import export as export

__version__: str
__all__: list[str]
