"""Graph scaling: temperature scaling and one convex member that reads logits, edges and hidden representation, mixed.

`columns` names what is read, `fit` fits it, `calibration` applies it.
"""

from graphcal.methods.graph_scaling.calibration import GraphScaled
from graphcal.methods.graph_scaling.fit import GraphScaling, KeptGraphScaling

__all__ = ["GraphScaled", "GraphScaling", "KeptGraphScaling"]
