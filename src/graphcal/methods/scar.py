"""SCAR's node-level calibration (arXiv:2505.11335, Eq. 9 and 10), in logit space, exact and in several forms.

Each node outside the training set moves towards the centroid of its predicted class, a column of the final weight:

    h <- w W[:, y_hat] + (1 - w) h        w = alpha next to the training set (V_F), beta elsewhere (V_S), 0 on it

With z = W^T h + b and G = W^T W this is, exactly and without touching a representation,

    z' = z + w (t - z)                    t = G[:, y_hat] + b
    z' = s z + w t                        `temperature=True`: a scale on the logits, fitted jointly
    z'_n = s_n z_n + w_n t_n              `graph=True`: s_n, w_n linear in eight label-free facts of the node (node_facts.py)

The weights may differ per side of the training set (`per="side"`, the paper), be one (`per="shared"`), or be one for each
distance 1, 2, 3+, unreachable (`per="hop"`, shrunk towards the pooled weight where few nodes speak).

Fitting. All of these are linear in their parameters, so validation NLL is convex: Newton's method gives the minimum to
machine precision in milliseconds. The graph-aware form has a ridge towards the plain form, its strength chosen by
leave-one-out NLL. A fit whose leave-one-out NLL is not below the model's own is dropped for the identity, and says so.
`search="grid"` is the paper's search: alpha < beta on a grid, by validation ECE or NLL.

Keeping predictions. The paper says that predictions do not change; without diagonal dominance of G they can. Each node's
weight is capped where its margin over some class would vanish (closed form), and the capped nodes are counted.

Departures: weights may have either sign when fitted (an over-confident model needs a negative one).
`centroids="means"` takes the class means of the training representations as centroids instead of the columns of W, which
are some fifteen times longer than any representation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from graphcal.core import Outputs, fitting_nodes
from graphcal.methods.card import Card
from graphcal.methods.centroid_pull import CentroidPull
from graphcal.methods.scar_fit import Problem, Solution


@dataclass(frozen=True)
class SCAR:
    """Move each node towards its predicted class centroid: alpha next to the training set, beta elsewhere."""

    alpha: float | None = None  # None: fitted
    beta: float | None = None
    temperature: bool = False
    search: str = "exact"
    keep_predictions: bool = True
    graph: bool | None = None  # None: graph-aware, unless something of the plain form is asked for
    per: str = "side"
    centroids: str = "weights"
    criterion: str = "nll"  # of search="grid"

    card: ClassVar[Card] = Card(
        title="SCAR, node level",
        idea="Move each node towards the centroid of its predicted class, by weights that depend on its place in the graph.",
        formula="z' = s z + w (G[:, y_hat] + b), G = W^T W of the final layer; s and w linear in eight facts of the node",
        paper="The Final Layer Holds the Key: A Unified and Efficient GNN Calibration Framework, arXiv:2505.11335",
        parameters="s, w: 18 under a ridge (graph-aware, the default); alpha, beta: 2 (graph=False, the paper)",
        cost="fit: Newton steps on the fitted nodes, milliseconds; apply: O(E + N C)",
        keeps_predictions=True,
        minimises_nll=True,
        graph=True,
        final_layer=True,
        departures="fitted exactly instead of on a grid; weights may be negative, and are capped where a prediction would change",
    )

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"SCAR({name}=...) must be one of {', '.join(choices)}; got {getattr(self, name)!r}")
        given = self.alpha is not None or self.beta is not None
        if given and self.per != "side":
            raise ValueError("given weights alpha and beta belong to per='side'")
        if self.search == "grid" and (given or self.temperature or self.per != "side"):
            raise ValueError("search='grid' is the paper's search for alpha and beta: nothing else may be set with it")
        plain = given or self.temperature or self.search == "grid" or self.per != "side"
        if self.graph and plain:
            raise ValueError(
                "graph=True fits its own weights and scale: alpha, beta, temperature, per, search belong without it"
            )
        if self.graph is None:
            object.__setattr__(self, "graph", not plain)

    def fit(self, out: Outputs, on: Tensor, stop: Tensor | None = None) -> CentroidPull:
        problem = Problem(self, out, fitting_nodes(out, on))
        if self.search == "grid":
            return problem.calibration(problem.on_grid())[0]
        if self.alpha is not None and self.beta is not None and not self.temperature:
            given = out.logits.new_tensor([self.alpha, self.beta])
            return problem.calibration(Solution(given.new_ones(1), given, float("nan")))[0]
        if self.alpha is not None or self.beta is not None:
            return problem.calibration(problem.exact())[0]
        return problem.unless_worse(problem.exact())


CHOICES = {
    "search": ("exact", "grid"),
    "per": ("side", "shared", "hop"),
    "centroids": ("weights", "means"),
    "criterion": ("nll", "ece"),
}
