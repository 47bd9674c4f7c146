"""The card of a method: its formula, what it needs and what it costs, written once, in the recipe it describes.

What a method does, in one line, is the first line of the recipe's docstring (`idea_of`). `graphcal methods NAME`, the
documentation and the contract tests all read these.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """One calibrator in a few lines. Every field is for people; `keeps_predictions` and `minimises_nll` are also tested."""

    title: str
    formula: str  # plain text
    paper: str
    parameters: str  # what is learned, with its size
    cost: str  # of fitting and of applying
    keeps_predictions: bool
    minimises_nll: bool = False  # the fit lowers the NLL of the nodes it is given, and nothing else
    graph: bool = False
    features: bool = False
    final_layer: bool = False
    model: bool = False  # runs the frozen model again
    labels: str = "the nodes it is fitted on"
    departures: str = "none"

    @property
    def needs(self) -> str:
        """Inputs of the calibrator besides the logits, in words."""
        wanted = {
            "the graph": self.graph,
            "node features": self.features,
            "the final layer": self.final_layer,
            "the model, to run it again": self.model,
        }
        return ", ".join(["logits", *(name for name, needed in wanted.items() if needed)])


def idea_of(recipe: type) -> str:
    """Summary of a recipe in one line."""
    return (recipe.__doc__ or recipe.__name__).strip().splitlines()[0]
