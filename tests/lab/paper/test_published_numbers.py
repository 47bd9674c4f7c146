"""Every number of the paper is written once, and presets point at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import graphcal.lab.paper
from graphcal.files import read_toml
from graphcal.lab.bench.presets import read_preset
from graphcal.lab.bench.tabulation import printed

PAPER = Path(graphcal.lab.paper.__file__).parent
NUMBERS = read_toml(PAPER / "published.toml")


def pairs(value: Any) -> Iterator[tuple[float, float]]:
    """Every [mean, sd] below a value."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, float) for part in value):
        yield value[0], value[1]
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from pairs(inner)


def test_the_tables_of_the_paper_are_whole() -> None:
    counts = {table: len(list(pairs(NUMBERS[table]))) for table in NUMBERS["axes"]}
    assert counts == {
        "gcn": 12 * 8 - 3,  # MS has no CoraFull
        "gat": 12 * 8 - 3,
        "ablation": 8 * 4,
        "accuracy": 12 * 6,
        "hetero": 12,
        "backbones": 20,
    }


@pytest.mark.parametrize("path", sorted((PAPER / "presets").glob("*.toml")), ids=lambda path: path.stem)
def test_no_preset_holds_a_published_number(path: Path) -> None:
    text = read_toml(path)
    assert all("values" not in entry and "table" in entry for entry in text.get("published", ()))
    assert not list(pairs(text.get("published", ())))
    assert "remark" not in text


@pytest.mark.parametrize(
    ("name", "row", "method", "value"),
    [
        ("table-gcn", {"dataset": "cora", "labels_per_class": 20}, "uncal", (13.47, 0.63)),
        ("table-gcn", {"dataset": "pubmed", "labels_per_class": 60}, "scar-paper", (2.67, 0.63)),
        ("table-gat", {"dataset": "citeseer", "labels_per_class": 40, "backbone": "gat"}, "ts", (7.97, 0.31)),
        ("optimisers", {"dataset": "cora", "labels_per_class": 20, "backbone": "gat-cagcn"}, "ts-noisy", (7.17, 0.98)),
        ("table-hetero", {"dataset": "squirrel", "backbone": "gat"}, "scar-val", (8.12, 0.53)),
        ("fair-backbones", {"dataset": "citeseer", "backbone": "fagcn"}, "scar-fit", (4.92, 1.40)),
        ("fair", {"dataset": "cora", "labels_per_class": 20, "backbone": "gcn"}, "scar-text", (3.35, 0.53)),
        ("table-backbones", {"dataset": "cora", "backbone": "gcnii"}, "uncal", (35.51, 0.56)),
        ("table-ablation", {"dataset": "pubmed", "backbone": "gcn"}, "scar-nlc", (3.88, 0.44)),
        (
            "table-accuracy",
            {"dataset": "cora", "labels_per_class": 40, "backbone": "gat-cagcn"},
            "uncal",
            (83.56, 0.25),
        ),
    ],
)
def test_published_values(name: str, row: dict[str, Any], method: str, value: tuple[float, float]) -> None:
    assert printed(read_preset(name), row, method)[0] == value
