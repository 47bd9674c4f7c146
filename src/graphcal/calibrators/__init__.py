"""Calibrators: recipes that turn validation nodes into a calibration. `CALIBRATORS` names them all."""

from graphcal.calibrators.auto import Auto
from graphcal.calibrators.cagcn import CaGCN
from graphcal.calibrators.card import Card as Card
from graphcal.calibrators.dcgc import DCGC
from graphcal.calibrators.dcgnn import DCGNN
from graphcal.calibrators.dirichlet import Dirichlet
from graphcal.calibrators.ets import EnsembleTemperatureScaling
from graphcal.calibrators.gats import GATS
from graphcal.calibrators.gets import GETS
from graphcal.calibrators.histogram import HistogramBinning
from graphcal.calibrators.isotonic import Isotonic
from graphcal.calibrators.matrix_scaling import MatrixScaling
from graphcal.calibrators.names import Names
from graphcal.calibrators.none import Uncalibrated
from graphcal.calibrators.order_invariant import OrderInvariant
from graphcal.calibrators.platt import Platt
from graphcal.calibrators.rbs import RatioBinnedScaling
from graphcal.calibrators.scar import SCAR
from graphcal.calibrators.simcalib import SimCalib
from graphcal.calibrators.simi_mailbox import SimiMailbox
from graphcal.calibrators.spline import Spline
from graphcal.calibrators.temperature import TemperatureScaling
from graphcal.calibrators.vector_scaling import VectorScaling
from graphcal.calibrators.wats import WATS

CALIBRATORS = Names(
    {
        "none": Uncalibrated,
        "ts": TemperatureScaling,
        "platt": Platt,
        "vs": VectorScaling,
        "ms": MatrixScaling,
        "ets": EnsembleTemperatureScaling,
        "isotonic": Isotonic,
        "histogram": HistogramBinning,
        "dirichlet": Dirichlet,
        "spline": Spline,
        "order-invariant": OrderInvariant,
        "scar": SCAR,
        "cagcn": CaGCN,
        "gats": GATS,
        "dcgc": DCGC,
        "simcalib": SimCalib,
        "gets": GETS,
        "wats": WATS,
        "simi-mailbox": SimiMailbox,
        "rbs": RatioBinnedScaling,
        "dc-gnn": DCGNN,
        "auto": Auto,
    }
)
