"""Named graphs come with the counts, labels and masks the literature used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphcal.lab.datasets import NAMES, PROTOCOLS, load
from graphcal.lab.datasets.arrays import digest, load_npz


def sizes(data) -> tuple[int, int, int]:
    return tuple(int(data[f"{part}_mask"].sum()) for part in ("train", "val", "test"))


def test_citeseer_is_embedded(alone: Path) -> None:
    data = load("citeseer")
    assert data.source == "embedded in graphcal"
    assert data.x.shape == (3327, 3703)
    assert data.x.dtype == torch.float32
    assert data.edge_index.shape == (2, 9104)
    assert data.num_classes == 6
    assert (data.name, data.protocol) == ("citeseer", "public")
    assert sizes(data) == (120, 500, 1000)
    assert torch.bincount(data.y[data.train_mask]).tolist() == [20] * 6
    assert not list(alone.iterdir()), "loading an embedded graph writes nothing"


def test_edges_have_both_directions_and_no_loops(alone: Path) -> None:
    row, col = load("citeseer").edge_index
    keys, reverse = row * 3327 + col, col * 3327 + row
    assert (row != col).all()
    assert torch.equal(keys, keys.unique())
    assert torch.equal(keys, reverse.sort().values)


def test_rows_sum_to_one_where_the_protocol_normalises(alone: Path) -> None:
    raw, normal = load("citeseer", row_normalise=False).x, load("citeseer").x
    assert set(raw.unique().tolist()) == {0.0, 1.0}
    filled = raw.sum(1) > 0
    assert torch.allclose(normal[filled].sum(1), torch.ones(int(filled.sum())))
    assert (normal[~filled] == 0).all()
    assert int((~filled).sum()) == 15


def test_nodes_without_label_are_in_no_mask(alone: Path) -> None:
    bare = load("citeseer", row_normalise=False).x.sum(1) == 0
    for name, protocol in PROTOCOLS.items():
        if "citeseer" in protocol.fits and name != "geom-gcn":
            data = load("citeseer", name)
            assert not (bare & (data.train_mask | data.val_mask | data.test_mask)).any(), name


@pytest.mark.parametrize(("rate", "counts"), [(40, [31, 43, 40, 40, 40, 46]), (60, [41, 64, 62, 61, 68, 64])])
def test_label_rates_of_citeseer(alone: Path, rate: int, counts: list[int]) -> None:
    data = load("citeseer", labels_per_class=rate)
    assert data.protocol == "cagcn"
    assert sizes(data) == (6 * rate, 500, 1000)
    assert torch.bincount(data.y[data.train_mask]).tolist() == counts
    assert "file order" in data.notes[0]


@pytest.mark.parametrize(
    ("name", "rate", "counts"),
    [
        ("cora", 20, [20] * 7),
        ("cora", 40, [46, 28, 41, 56, 39, 42, 28]),
        ("cora", 60, [64, 35, 65, 97, 66, 58, 35]),
        ("pubmed", 20, [20] * 3),
        ("pubmed", 40, [34, 42, 44]),
        ("pubmed", 60, [48, 70, 62]),
    ],
)
def test_label_rates(shared_data: Path, name: str, rate: int, counts: list[int]) -> None:
    data = load(name, "cagcn", labels_per_class=rate)
    assert torch.bincount(data.y[data.train_mask]).tolist() == counts
    assert sizes(data)[1:] == (500, 1000)
    assert not (data.train_mask & (data.val_mask | data.test_mask)).any()


def test_the_embedded_graph_equals_planetoids(shared_data: Path) -> None:
    import graphcal.lab.datasets

    embedded = Path(graphcal.lab.datasets.__file__).parent / "data" / "citeseer.npz"
    assert digest(load_npz(embedded)) == digest(load_npz(shared_data / "citeseer.npz")) == NAMES["citeseer"].content


@pytest.mark.slow_cases(
    "debian-bookworm",
    "debian-bullseye",
    "cs",
    "physics",
    "tolokers",
    "blogcatalog",
    "photo",
    "facebook_pages",
    "computers",
    "pubmed",
)
@pytest.mark.parametrize("name", list(NAMES))
def test_every_graph_loads_under_every_protocol_that_fits(shared_data: Path, name: str) -> None:
    if not (shared_data / f"{name}.npz").exists():
        pytest.skip(f"{name} is not in the data folder")
    protocols = [key for key, protocol in PROTOCOLS.items() if name in protocol.fits]
    if name == "physics":  # 1 GB of dense features each time
        protocols = ["gats"]
    assert NAMES[name].content == digest(load_npz(shared_data / f"{name}.npz"))
    for protocol in protocols:
        data = load(name, protocol)
        train, val, test = data.train_mask, data.val_mask, data.test_mask
        assert min(sizes(data)) > 0
        assert not ((train & val) | (train & test) | (val & test)).any()
        if protocol != "natural" or not name.startswith("debian"):  # 1,020 nodes of 60,000 may miss a rare class
            assert set(data.y[train].tolist()) == set(range(data.num_classes)), "every class is in training"
        if protocol == "gats":
            total = data.x.sum(1)
            assert torch.allclose(total[total > 0], torch.ones(1))


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(
        ValueError, match=r"unknown dataset 'corra'; choose among cora, citeseer, pubmed.*Did you mean 'cora'"
    ):
        load("corra")
    with pytest.raises(
        ValueError, match=r"unknown protocol 'publik'; choose among public, cagcn.*Did you mean 'public'"
    ):
        load("citeseer", "publik")
    with pytest.raises(ValueError, match=r"'linkx' does not fit citeseer; choose among public, cagcn"):
        load("citeseer", "linkx")


def test_wrong_rates_and_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="20, 40 or 60 labels per class, not 30"):
        load("citeseer", "cagcn", labels_per_class=30)
    with pytest.raises(ValueError, match="'public' has 20 labels per class, not 40"):
        load("citeseer", "public", labels_per_class=40)
    with pytest.raises(ValueError, match=r"'gats' has no split 15; choose 0 to 14"):
        load("citeseer", "gats", split=15)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        load("citeseer", "per-class", labels_per_class=0)
    with pytest.raises(ValueError, match="no split -1"):
        load("citeseer", "per-class", split=-1)
