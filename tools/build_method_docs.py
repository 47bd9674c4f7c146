"""Write docs/methods.md and the files that `graphcal methods` reads, from the cards: python tools/build_method_docs.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphcal.cli.completion import CARDS
from graphcal.cli.methods import described
from graphcal.methods import CALIBRATORS
from graphcal.methods.card import Card, idea_of
from graphcal.plugins import announced

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "methods.md"
SOURCE = ROOT / "src" / "graphcal"

HEAD = """# Calibrators

<!-- Written by tools/build_method_docs.py from the cards beside the recipes. Change the cards, not this page. -->

Every calibrator is a recipe with a `fit(out, on, stop=None)` that gives a calibration. `graphcal methods NAME` shows the
same card in the terminal. "Keeps predictions" means that the most probable class of a node never changes.

```python
import graphcal

graph = graphcal.lab.load("citeseer")
out = graphcal.lab.train(graph, seeds=[0])[0].outputs
calibrate = graphcal.CALIBRATORS["ts"]().fit(out, on=graph.val_mask)
log_probs = calibrate(out)
```

A calibrator of your own is any object with such a `fit`; `examples/your_calibrator.py` has one, and
`examples/calibrator_plugin` is a package that adds one to the table by the entry point `graphcal.calibrators`. The variants that
imitate published code, slips included (`ts-accumulated`, `scar-grid`, ...), are added in the same way by `graphcal.lab.paper`;
`graphcal methods` lists them, with where each comes from.
"""


def recipes() -> dict[str, dict[str, Any]]:
    """Recipes by cards file: the product's, and the laboratory's learned baselines; plug-ins and variants have no card here."""
    product: dict[str, Any] = CALIBRATORS.builtin
    names = [name for name, point in announced("calibrator").items() if point.module == "graphcal.lab.baselines"]
    return dict(zip(CARDS, (product, {name: CALIBRATORS[name] for name in sorted(names)})))


def idea(name: str) -> str:
    return idea_of(CALIBRATORS[name])


def table(cards: dict[str, Card]) -> str:
    lines = ["| name | idea | needs | keeps predictions |", "|---|---|---|---|"]
    for name, card in cards.items():
        anchor = name.replace(" ", "-")
        lines.append(f"| [`{name}`](#{anchor}) | {idea(name)} | {card.needs} | {_yes(card.keeps_predictions)} |")
    return "\n".join(lines)


def section(name: str, card: Card) -> str:
    rows = {
        "Method": card.title,
        "Idea": idea(name),
        "Formula": f"`{card.formula}`",
        "Needs": card.needs,
        "Labels of": card.labels,
        "Keeps predictions": _yes(card.keeps_predictions),
        "Parameters": card.parameters,
        "Cost": card.cost,
        "Paper": card.paper,
        "Departures": card.departures,
    }
    return "\n".join([f"## {name}", "", *(f"- **{key}**: {value}" for key, value in rows.items())])


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def page() -> str:
    cards = {name: recipe.card for group in recipes().values() for name, recipe in group.items()}
    return "\n\n".join([HEAD.rstrip(), table(cards), *(section(name, card) for name, card in cards.items())]) + "\n"


def cards_files() -> dict[Path, str]:
    """Contents of the cards files."""
    return {
        SOURCE / file: json.dumps({name: described(recipe) for name, recipe in group.items()}, indent=1) + "\n"
        for file, group in recipes().items()
    }


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    for file, text in cards_files().items():
        file.write_text(text, encoding="utf-8")
