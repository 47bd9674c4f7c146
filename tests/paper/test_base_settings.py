"""Underspecified base models: the page is made from the file, and the shuffle test counts what a search finds by chance."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphcal.metrics.equivalence import Sample
from graphcal.paper.base_settings import TriedSetting, base_settings, by_entry, main, near, read_tried, shuffled

RESULTS = Path(__file__).parents[2] / "results"


def tried(graph: str, ours: float, published: float, sd: float = 0.1) -> TriedSetting:
    return TriedSetting("base-models", "ece", graph, "", "gcn", "x", Sample(ours, sd, 5), Sample(published, sd, 10))


def test_the_committed_page_is_up_to_date() -> None:
    assert (RESULTS / "base-settings.md").read_text(encoding="utf-8") == base_settings(RESULTS)
    main(RESULTS, check=True)


def test_a_search_that_explains_each_value_alone_is_told_from_one_that_explains_anything() -> None:
    apart = [tried(f"g{k}", 10.0 * k, 10.0 * k) for k in range(8)]
    assert shuffled(apart, draws=500)[:2] == (8, 8)
    assert shuffled(apart, draws=500)[2] == pytest.approx(1.0, abs=0.2), "one of eight by chance"
    assert shuffled(apart, draws=500)[3] < 0.01
    anything = [tried(f"g{k}", 10.0 * j, 10.0 * k) for k in range(8) for j in range(8)]
    entries, real, chance, p = shuffled(anything, draws=200)
    assert (entries, real, chance, p) == (8, 8, 8.0, 1.0)


def test_filtered_graphs_and_both_gats_stand_beside_one_entry() -> None:
    rows = read_tried(RESULTS)
    groups = by_entry(rows)
    assert len(groups) == 22
    assert len(rows) == 153
    chameleon = next(group for entry, group in groups.items() if entry[:3] == ("chameleon", "", "gat"))
    assert {one.dataset for one in chameleon} == {"chameleon", "chameleon-filtered"}
    assert near(Sample(1.0, 0.5, 5), Sample(2.0, 0.5, 10))
    assert not near(Sample(1.0, 0.4, 5), Sample(2.0, 0.5, 10))
