"""Calibrators: recipes that turn validation nodes into a calibration, one file each. `CALIBRATORS` names them all.

A method of your own is one file with a recipe and one line in this table, or an entry point of your package (`graphcal.plugins`).
"""

from collections.abc import Iterable

from graphcal.core import Recipe
from graphcal.methods.card import Card
from graphcal.methods.dirichlet import Dirichlet
from graphcal.methods.ets import EnsembleTemperatureScaling
from graphcal.methods.graph_scaling import GraphScaling, KeptGraphScaling
from graphcal.methods.histogram import HistogramBinning
from graphcal.methods.isotonic import Isotonic, KeptIsotonic
from graphcal.methods.matrix_scaling import MatrixScaling
from graphcal.methods.none import Uncalibrated
from graphcal.methods.order_invariant import OrderInvariant
from graphcal.methods.platt import Platt
from graphcal.methods.positive_curves import LogOddsCurve
from graphcal.methods.rbs import RatioBinnedScaling
from graphcal.methods.scar import SCAR
from graphcal.methods.spline import Spline
from graphcal.methods.structured_scaling import StructuredMatrixScaling
from graphcal.methods.temperature import TemperatureScaling
from graphcal.methods.vector_scaling import VectorScaling
from graphcal.plugins import Names

__all__ = [
    "CALIBRATORS",
    "SCAR",
    "Card",
    "Dirichlet",
    "EnsembleTemperatureScaling",
    "GraphScaling",
    "HistogramBinning",
    "Isotonic",
    "KeptGraphScaling",
    "KeptIsotonic",
    "LogOddsCurve",
    "MatrixScaling",
    "OrderInvariant",
    "Platt",
    "RatioBinnedScaling",
    "Spline",
    "StructuredMatrixScaling",
    "TemperatureScaling",
    "Uncalibrated",
    "VectorScaling",
    "recipes_by_name",
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
        "rbs": RatioBinnedScaling,
        "auto": GraphScaling,  # for tables of two classes: the best of three (`graphcal.tables.two_classes`)
    },
    method="fit",
    signature="fit(out, on, stop=None): it is not a recipe",
)


def recipes_by_name(calibrators: Iterable[str | Recipe]) -> dict[str, Recipe]:
    """Recipes by their names in a study, "none" first. A name is looked up; a recipe is called by its class.

    >>> recipes_by_name(["ts", Isotonic()])
    {'none': Uncalibrated(), 'ts': TemperatureScaling(), 'Isotonic': Isotonic()}
    """
    recipes: dict[str, Recipe] = {"none": Uncalibrated()}
    for calibrator in calibrators:
        name = calibrator if isinstance(calibrator, str) else type(calibrator).__name__
        if not isinstance(calibrator, str) and name in recipes:
            raise ValueError(f"two recipes are called {name}. Run them one after the other")
        recipes[name] = CALIBRATORS[calibrator]() if isinstance(calibrator, str) else calibrator
    return recipes
