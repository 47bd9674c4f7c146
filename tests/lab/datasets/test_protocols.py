"""The rules behind the protocols, on graphs whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphcal.lab.datasets import load
from graphcal.lab.datasets.arrays import GraphArrays
from graphcal.lab.datasets.catalog import find
from graphcal.lab.datasets.protocols import Request, draw, stratified


def corafull_like() -> GraphArrays:
    """As many nodes and classes as CoraFull, without its edges and features, which the lists do not depend on."""
    nodes = 19793
    labels = np.arange(nodes) % 70
    return GraphArrays(np.zeros((2, 0), np.int32), sp.csr_matrix((nodes, 3), dtype=np.float32), labels)


@pytest.mark.parametrize(("rate", "leaked", "distinct"), [(20, 0, 496), (40, 3, 492), (60, 12, 482)])
def test_corafull_lists_keep_their_defects_and_lose_them(rate: int, leaked: int, distinct: int) -> None:
    graph, request = corafull_like(), Request("corafull", rate)
    split = draw("cagcn", graph, request)
    assert (len(split.train), len(np.unique(split.train))) == (70 * rate, 70 * rate)
    assert (len(split.val), len(np.unique(split.val))) == (500, distinct)
    assert len(split.test) == 1000
    assert len(np.intersect1d(split.train, split.test)) == leaked
    assert f"{leaked} test nodes" in split.notes[0]
    assert f"{500 - distinct} validation ids" in split.notes[0]
    clean = draw("cagcn-clean", graph, request)
    assert np.array_equal(clean.train, split.train)
    assert len(clean.val) == distinct
    assert len(clean.test) == 1000 - leaked
    assert not np.intersect1d(clean.train, clean.test).size


def test_lists_equal_the_published_ones(shared_data: Path) -> None:
    path = shared_data / "splits" / "cagcn_label_rates.npz"
    if not path.exists():
        pytest.skip("the data folder has no splits/cagcn_label_rates.npz")
    lists = np.load(path)
    for rate in (20, 40, 60):
        split = draw("cagcn", corafull_like(), Request("corafull", rate))
        for part in ("train", "val", "test"):
            assert np.array_equal(getattr(split, part), lists[f"corafull_{part}{rate}"])
        for name in ("cora", "citeseer", "pubmed"):
            data = load(name, "cagcn", rate)
            assert np.array_equal(np.flatnonzero(data.train_mask), np.sort(lists[f"{name}_train{rate}"]))
            assert np.array_equal(np.flatnonzero(data.val_mask), np.sort(lists[f"{name}_val"]))
            assert np.array_equal(np.flatnonzero(data.test_mask), np.sort(lists[f"{name}_test"]))


def test_gats_uses_the_published_folds(shared_data: Path) -> None:
    lists = np.load(shared_data / "splits" / "gats_cora.npz")
    for split in (0, 5, 14):
        number, fold = divmod(split, 3)
        data = load("cora", "gats", split=split)
        assert np.array_equal(np.flatnonzero(data.val_mask), np.sort(lists[f"split{number}_fold{fold}"]))
        others = [lists[f"split{number}_fold{k}"] for k in range(3) if k != fold]
        assert np.array_equal(np.flatnonzero(data.train_mask), np.sort(np.concatenate(others)))
        assert np.array_equal(np.flatnonzero(data.test_mask), np.sort(lists[f"split{number}_test"]))
        assert not data.notes


def test_gats_rule_gives_the_published_sizes(shared_data: Path) -> None:
    """Without the lists the rule is followed: same sizes per class as in the published ones, other nodes."""
    from graphcal.lab.datasets.arrays import load_npz

    graph = load_npz(shared_data / "computers.npz")
    ours = draw("gats", graph, Request("computers", split=3, lists=None))
    published = draw("gats", graph, Request("computers", split=3, lists=shared_data / "splits"))
    assert "our own seed" in ours.notes[0]
    assert np.array_equal(np.bincount(graph.labels[ours.test]), np.bincount(graph.labels[published.test]))
    together = [np.concatenate([split.train, split.val]) for split in (ours, published)]
    assert np.array_equal(*(np.bincount(graph.labels[nodes]) for nodes in together))
    assert len(ours.val) == len(published.val)
    assert not np.array_equal(np.sort(ours.test), np.sort(published.test))


def test_gats_folds_partition_the_labelled_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHCAL_DATA", raising=False)
    folds = [load("citeseer", "gats", split=k) for k in range(3)]
    labelled = [data.train_mask | data.val_mask for data in folds]
    assert all((mask == labelled[0]).all() for mask in labelled)
    assert (sum(data.val_mask.int() for data in folds) == labelled[0].int()).all()
    assert (load("citeseer", "gats", split=3).test_mask != folds[0].test_mask).any()


def test_geom_gcn_has_ten_splits(shared_data: Path) -> None:
    masks = np.load(shared_data / "chameleon.npz")
    for split in (0, 9):
        data = load("chameleon", "geom-gcn", split=split)
        assert np.array_equal(data.train_mask, masks["train_masks"][split])
        assert np.array_equal(data.test_mask, masks["test_masks"][split])
    with pytest.raises(ValueError, match="0 to 9"):
        load("chameleon", split=10)


def test_geom_gcn_says_which_lists_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHCAL_DATA", raising=False)
    with pytest.raises(ValueError, match=r"needs geom-gcn's lists: set GRAPHCAL_DATA .*geomgcn_citeseer\.npz"):
        load("citeseer", "geom-gcn")


def test_per_class_is_per_class_and_seeded() -> None:
    data = load("citeseer", "per-class", labels_per_class=35, seed=1)
    assert data.y[data.train_mask].bincount().tolist() == [35] * 6
    assert int(data.val_mask.sum()) == 500
    assert int(data.test_mask.sum()) == 3312 - 500 - 6 * 35
    again, other = load("citeseer", "per-class", 35, seed=1), load("citeseer", "per-class", 35, seed=2)
    assert (again.train_mask == data.train_mask).all()
    assert (other.train_mask != data.train_mask).any()
    assert (load("citeseer", "per-class", 35, seed=1, split=1).train_mask != data.train_mask).any()


def test_small_classes_give_half() -> None:
    data = load("citeseer", "per-class", labels_per_class=200)
    assert data.y[data.train_mask].bincount().tolist() == [249 // 2, 200, 200, 200, 200, 200]
    assert "1 classes have fewer than 400 nodes" in data.notes[0]


@pytest.mark.parametrize(("nodes", "rate", "val", "test"), [(40, 5, 15, 15), (9, 3, 2, 3)])
def test_a_small_graph_keeps_half_of_the_rest_for_test(nodes: int, rate: int, val: int, test: int) -> None:
    split = draw("per-class", graph_of(nodes), Request("citeseer", rate))
    assert (len(split.train), len(split.val), len(split.test)) == (nodes - val - test, val, test)
    assert f"only {val} validation nodes: the graph is too small for 500" in split.notes


def test_a_graph_without_nodes_to_test_on_is_refused() -> None:
    with pytest.raises(ValueError, match="citeseer: 1 labels per class leave 1 nodes for validation and test"):
        draw("per-class", graph_of(2, classes=1), Request("citeseer", 1))


def graph_of(nodes: int, classes: int = 2) -> GraphArrays:
    labels = np.arange(nodes) % classes
    return GraphArrays(np.zeros((2, 0), np.int32), sp.csr_matrix((nodes, 3), dtype=np.float32), labels)


def test_random_shares() -> None:
    data = load("citeseer", "random")
    assert [int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test")] == [662, 332, 2318]


def test_linkx_shares() -> None:
    nodes = 169343
    labels = np.arange(nodes) % 5
    graph = GraphArrays(np.zeros((2, 0), np.int32), sp.csr_matrix((nodes, 1), dtype=np.float32), labels)
    split = draw("linkx", graph, Request("arxiv-year", split=4))
    assert [len(part) for part in (split.train, split.val, split.test)] == [84671, 42335, 42337]  # LINKX's own sizes
    assert "published" in split.notes[0]


def test_linkx_published_lists_are_used_where_they_are(tmp_path: Path) -> None:
    lists = {
        f"split{k}_{part}": np.array([k, 10 * p]) for k in range(5) for p, part in enumerate(("train", "val", "test"))
    }
    np.savez(tmp_path / "linkx_arxiv-year.npz", **lists)
    graph = GraphArrays(np.zeros((2, 0), np.int32), sp.csr_matrix((30, 1), dtype=np.float32), np.arange(30) % 5)
    split = draw("linkx", graph, Request("arxiv-year", split=3, lists=tmp_path))
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [[3, 0], [3, 10], [3, 20]]
    assert split.notes == ()


def test_stratified_has_every_class_in_training() -> None:
    labels = np.repeat([0, 1, 2, 3, -1], [500, 300, 2, 3, 10])
    split = stratified(labels, np.random.default_rng(0))
    assert np.bincount(labels[split.train]).tolist()[:2] == [pytest.approx(300, abs=2), pytest.approx(180, abs=2)]
    assert set(labels[split.train]) == {0, 1, 2, 3}
    everyone = np.concatenate([split.train, split.val, split.test])
    assert np.array_equal(np.sort(everyone), np.flatnonzero(labels >= 0))


def test_natural_labels_come_with_the_shares_of_the_graph():
    graph, _ = find("citeseer")
    split = draw("natural", graph, Request("citeseer", 20, split=3))
    assert len(split.train) == 120
    assert len(split.val) == 500
    assert len(np.unique(np.concatenate([split.train, split.val, split.test]))) == int(graph.labelled.sum())
    counts = np.bincount(graph.labels[split.train], minlength=6)
    assert counts.min() < counts.max()  # not class by class
    again = draw("natural", graph, Request("citeseer", 20, split=4))
    assert not np.array_equal(split.train, again.train)


def test_validation_and_test_nodes_of_per_class_are_alike() -> None:
    """The rarest class has its share of the validation nodes: training must not have emptied the draw of it."""
    expected = seen = 0.0
    for split in range(20):
        data = load("citeseer", "per-class", split=split)
        rest = data.val_mask | data.test_mask
        rare = data.y == torch.bincount(data.y[data.labelled]).argmin()
        expected += float((rare & rest).sum() / rest.sum() * data.val_mask.sum())
        seen += float((rare & data.val_mask).sum())
    assert abs(seen - expected) < 4 * expected**0.5  # 20 draws without replacement: below Poisson's spread


@pytest.mark.parametrize("protocol", ["region", "degree"])
def test_shifted_validation_nodes_come_from_the_half_that_is_not_tested(protocol):
    graph = find("citeseer")[0]
    split = draw(protocol, graph, Request("citeseer", 20, 1))
    labelled = int(graph.labelled.sum())
    assert (len(split.train), len(split.val)) == (120, 500)
    assert len(split.test) == -(-(labelled - 120) // 2)
    assert not set(split.val) & set(split.test)
    assert not set(split.train) & (set(split.val) | set(split.test))
    degree = np.bincount(graph.edge_index[0], minlength=graph.num_nodes)
    inside = np.isin(graph.edge_index, split.test)
    across = (inside[0] != inside[1]).mean()
    if protocol == "degree":
        assert degree[split.val].min() >= degree[split.test].max()
    else:  # two halves of a search are hardly connected: at random half of the edges run between them
        assert across < 0.25
    again = draw(protocol, graph, Request("citeseer", 20, 2))
    assert not np.array_equal(again.val, split.val)
