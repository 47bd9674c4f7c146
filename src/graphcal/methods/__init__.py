"""Calibrators: recipes that turn validation nodes into a calibration, one file each. `CALIBRATORS` names them all.

A method of your own is one file with a recipe and one line in this table, or an entry point of your package (`graphcal.plugins`).
"""

from graphcal.core import Recipe
from graphcal.methods.cagcn import CaGCN
from graphcal.methods.card import Card
from graphcal.methods.dcgc import DCGC
from graphcal.methods.dcgnn import DCGNN
from graphcal.methods.dirichlet import Dirichlet
from graphcal.methods.ets import EnsembleTemperatureScaling
from graphcal.methods.gats import GATS
from graphcal.methods.gets import GETS
from graphcal.methods.graph_scaling import GraphScaling, KeptGraphScaling
from graphcal.methods.histogram import HistogramBinning
from graphcal.methods.isotonic import Isotonic, KeptIsotonic
from graphcal.methods.matrix_scaling import MatrixScaling
from graphcal.methods.none import Uncalibrated
from graphcal.methods.order_invariant import OrderInvariant
from graphcal.methods.platt import Platt
from graphcal.methods.rbs import RatioBinnedScaling
from graphcal.methods.scar import SCAR
from graphcal.methods.simcalib import SimCalib
from graphcal.methods.simi_mailbox import SimiMailbox
from graphcal.methods.spline import Spline
from graphcal.methods.structured_scaling import StructuredMatrixScaling
from graphcal.methods.temperature import TemperatureScaling
from graphcal.methods.vector_scaling import VectorScaling
from graphcal.methods.wats import WATS
from graphcal.plugins import Names

__all__ = [
    "CALIBRATORS",
    "DCGC",
    "DCGNN",
    "GATS",
    "GETS",
    "SCAR",
    "WATS",
    "CaGCN",
    "Card",
    "Dirichlet",
    "EnsembleTemperatureScaling",
    "GraphScaling",
    "HistogramBinning",
    "Isotonic",
    "KeptGraphScaling",
    "KeptIsotonic",
    "MatrixScaling",
    "OrderInvariant",
    "Platt",
    "RatioBinnedScaling",
    "SimCalib",
    "SimiMailbox",
    "Spline",
    "StructuredMatrixScaling",
    "TemperatureScaling",
    "Uncalibrated",
    "VectorScaling",
]

CALIBRATORS: Names[type[Recipe]] = Names(
    "calibrator",
    {
        "none": Uncalibrated,
        "ts": TemperatureScaling,
        "platt": Platt,
        "vs": VectorScaling,
        "ms": MatrixScaling,
        "sms": StructuredMatrixScaling,
        "ets": EnsembleTemperatureScaling,
        "isotonic": Isotonic,
        "isotonic-keep": KeptIsotonic,
        "histogram": HistogramBinning,
        "dirichlet": Dirichlet,
        "spline": Spline,
        "order-invariant": OrderInvariant,
        "scar": SCAR,
        "graph-scaling": GraphScaling,
        "graph-scaling-keep": KeptGraphScaling,
        "cagcn": CaGCN,
        "gats": GATS,
        "dcgc": DCGC,
        "simcalib": SimCalib,
        "gets": GETS,
        "wats": WATS,
        "simi-mailbox": SimiMailbox,
        "rbs": RatioBinnedScaling,
        "dc-gnn": DCGNN,
        "auto": GraphScaling,  # for tables of two classes: the best of three (`graphcal.tables.two_classes`)
    },
    method="fit",
    signature="fit(out, on, stop=None): it is not a recipe",
)
