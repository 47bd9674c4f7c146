"""The list of datasets and the card of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphcal.lab.datasets import NAMES
from graphcal.lab.datasets.cards import card, listing


def test_the_list_says_where_each_is(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {row.name: row.here for row in listing() if row.here} == {"citeseer": "embedded"}
    (alone / "cache").mkdir()
    (alone / "cache" / "photo.npz").write_bytes(b"")
    (alone / "data").mkdir()
    (alone / "data" / "cora.npz").write_bytes(b"")
    monkeypatch.setenv("GRAPHCAL_DATA", str(alone / "data"))
    where = {row.name: row.here for row in listing() if row.here}
    assert where == {"citeseer": "embedded", "photo": "cache", "cora": "GRAPHCAL_DATA"}
    assert [row.name for row in listing()] == list(NAMES)


def test_the_card_of_citeseer(alone: Path) -> None:
    facts = card("citeseer")
    assert (facts.num_nodes, facts.num_edges, facts.num_features, facts.num_classes) == (3327, 9104, 3703, 6)
    assert facts.nodes_per_class == (264 - 15, 590, 668, 701, 596, 508)
    assert (facts.isolated, facts.unlabelled) == (48, 15)
    assert facts.homophily == pytest.approx(0.738, abs=5e-4)
    rows = {(row.protocol, row.labels_per_class): row for row in facts.protocols}
    for rate, share in ((20, 0.10), (40, 0.19), (60, 0.25)):  # the shares measured for the paper's V_F
        row = rows["cagcn", rate]
        assert (row.train, row.val, row.test) == (6 * rate, 500, 1000)
        assert row.test_next_to_training == pytest.approx(share, abs=0.005)
    assert "geomgcn_citeseer.npz" in facts.not_available["geom-gcn"]


def test_the_card_of_pubmed(shared_data: Path) -> None:
    rows = {(row.protocol, row.labels_per_class): row for row in card("pubmed").protocols}
    shares = [rows["cagcn", rate].test_next_to_training for rate in (20, 40, 60)]
    assert shares == pytest.approx([0.019, 0.036, 0.053], abs=5e-4)
    assert ("geom-gcn", None) in rows


@pytest.mark.parametrize(
    ("name", "homophily", "isolated"), [("cora", 0.810, 0), ("computers", 0.777, 281), ("squirrel", 0.222, 0)]
)
def test_cards_of_known_graphs(shared_data: Path, name: str, homophily: float, isolated: int) -> None:
    facts = card(name)
    assert facts.homophily == pytest.approx(homophily, abs=5e-4)
    assert facts.isolated == isolated
