"""Underspecified base models: the page is made from the file, and the shuffle test counts what a search finds by chance."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphcal.lab.bench.equivalence import Sample
from graphcal.lab.paper.base_settings import (
    TABLES,
    TriedSetting,
    base_settings,
    by_entry,
    collected,
    csv_of,
    main,
    near,
    read_tried,
    shuffled,
)

RESULTS = Path(__file__).parents[3] / "results"


def tried(graph: str, ours: float, published: float, sd: float = 0.1) -> TriedSetting:
    return TriedSetting("base-models", "ece", graph, "", "gcn", "x", Sample(ours, sd, 5), Sample(published, sd, 10))


def test_the_committed_page_is_up_to_date() -> None:
    assert (RESULTS / "base-settings.md").read_text(encoding="utf-8") == base_settings(RESULTS)
    main(RESULTS, check=True, collect=None)


def test_a_search_that_explains_each_value_alone_is_told_from_one_that_explains_anything() -> None:
    apart = [tried(f"g{k}", 10.0 * k, 10.0 * k) for k in range(8)]
    alone = shuffled(apart, draws=500)
    assert (alone.entries, alone.found) == (8, 8)
    assert alone.by_chance == pytest.approx(1.0, abs=0.2), "one of eight by chance"
    assert alone.p < 0.01
    anything = [tried(f"g{k}", 10.0 * j, 10.0 * k) for k in range(8) for j in range(8)]
    found = shuffled(anything, draws=200)
    assert (found.entries, found.found, found.by_chance, found.p) == (8, 8, 8.0, 1.0)


def test_among_graphs_of_one_kind_values_of_one_size_are_found_more_often() -> None:
    """Two kinds, each with values of its own size: shuffled among all, half of them go astray."""
    rows = [tried(g, 10.0, 10.0) for g in ("cora", "citeseer")] + [
        tried(g, 30.0, 30.0 + 0.001 * k) for k, g in enumerate(("chameleon", "squirrel"))
    ]
    assert shuffled(rows, same_kind=True, draws=300).by_chance == 4.0
    assert shuffled(rows, draws=2_000).by_chance == pytest.approx(2.0, abs=0.15)


def test_the_file_is_collected_from_tables(tmp_path: Path) -> None:
    """Lines without a published value, and those that were not run, are left out."""
    names = ("dataset", "backbone", "method", "title", "runs", "published_mean", "published_sd")
    numbers = [f"{m}_{part}" for m in ("ece", "accuracy", "ece_floor", "signed_gap") for part in ("mean", "sd")]
    for table in TABLES:
        lines = [
            [table, "gcn", "uncal", "plain", "10", "2.00", "0.10", *map(str, range(1, 9))],
            [table, "gcn", "unpublished", "x", "10", "", "", *map(str, range(1, 9))],
            [table, "gcn", "not-run", "x", "0", "2.00", "0.10", *[""] * 8],
        ]
        text = "\n".join(",".join(line) for line in [[*names, *numbers], *lines])
        (tmp_path / f"{table}.csv").write_text(text + "\n", encoding="utf-8")
    lines = collected(tmp_path)
    assert [line["experiment"] for line in lines] == list(TABLES)
    assert [line["mean"] for line in lines] == [*["1.0000"] * 5, "3.0000"], "the last table is about accuracy"
    (tmp_path / "base-settings.csv").write_text(csv_of(lines), encoding="utf-8")
    assert [one.dataset for one in read_tried(tmp_path)] == list(TABLES)


def test_filtered_graphs_and_both_gats_stand_beside_one_entry() -> None:
    rows = read_tried(RESULTS)
    groups = by_entry(rows)
    assert len(groups) == 22
    assert len(rows) == 153
    chameleon = next(group for entry, group in groups.items() if entry[:3] == ("chameleon", "", "gat"))
    assert {one.dataset for one in chameleon} == {"chameleon", "chameleon-filtered"}
    assert near(Sample(1.0, 0.5, 5), Sample(2.0, 0.5, 10))
    assert not near(Sample(1.0, 0.4, 5), Sample(2.0, 0.5, 10))
