"""The synthetic graph is what its parameters say, the same for the same seed, and learnable."""

from __future__ import annotations

import hashlib

import pytest
import torch
from torch_geometric.data import Data

from graphcal.lab.datasets import synthetic


def fingerprint(data: Data) -> str:
    total = hashlib.sha256()
    for key in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        total.update(data[key].numpy().tobytes())
    return total.hexdigest()


@pytest.mark.parametrize(("degree", "homophily", "classes"), [(8.0, 0.8, 5), (4.0, 0.3, 2), (20.0, 0.5, 10)])
def test_parameters_are_met(degree: float, homophily: float, classes: int) -> None:
    data = synthetic(50_000, num_classes=classes, degree=degree, homophily=homophily)
    row, col = data.edge_index
    assert data.edge_index.shape[1] / 50_000 == pytest.approx(degree, rel=0.02)
    assert float((data.y[row] == data.y[col]).float().mean()) == pytest.approx(homophily, abs=0.01)
    assert torch.bincount(data.y).min() > 0.9 * 50_000 / classes
    assert data.num_classes == classes


def test_degrees_are_corrected() -> None:
    """Some nodes have many times the mean degree, as in real graphs and unlike in a plain block model."""
    degree = torch.bincount(synthetic(20_000, degree=8).edge_index[0], minlength=20_000).float()
    assert degree.var() > 3 * degree.mean(), "a Poisson degree has a variance equal to its mean"


def test_edges_are_simple_and_symmetric() -> None:
    row, col = synthetic(5_000).edge_index
    keys = row * 5_000 + col
    assert (row != col).all()
    assert torch.equal(keys, keys.unique())
    assert torch.equal(keys, (col * 5_000 + row).sort().values)


def test_features_are_sparse_words_that_tell_the_class() -> None:
    for signal in (0.0, 0.5):
        data = synthetic(20_000, num_classes=4, feature_signal=signal, words=64)
        assert torch.allclose(data.x.sum(1), torch.ones(20_000))
        assert float((data.x > 0).float().mean()) < 12 / 64
        of_class = (torch.arange(64) * 4 // 64)[None] == data.y[:, None]
        assert float((data.x * of_class).sum(1).mean()) == pytest.approx(signal + (1 - signal) / 4, abs=0.01)


def test_masks_partition_the_nodes() -> None:
    data = synthetic(10_000, num_classes=5)
    parts = data.train_mask.int() + data.val_mask.int() + data.test_mask.int()
    assert (parts == 1).all()
    assert torch.bincount(data.y[data.train_mask]).tolist() == [20] * 5
    assert int(data.val_mask.sum()) == 1_000


def test_the_seed_decides() -> None:
    assert fingerprint(synthetic(3_000, seed=5)) == fingerprint(synthetic(3_000, seed=5))
    assert fingerprint(synthetic(3_000, seed=5)) != fingerprint(synthetic(3_000, seed=6))


def test_blocks_change_nothing_of_the_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made in blocks of 700 the graph has the same sizes and shares as in one block."""
    from graphcal.lab.datasets import blockmodel

    monkeypatch.setattr(blockmodel, "BLOCK", 700)
    data = synthetic(10_000, homophily=0.7)
    row, col = data.edge_index
    assert data.x.shape == (10_000, 128)
    assert torch.allclose(data.x.sum(1), torch.ones(10_000))
    assert float((data.y[row] == data.y[col]).float().mean()) == pytest.approx(0.7, abs=0.02)


def test_large_features_stay_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphcal.lab.datasets import loading

    dense = synthetic(2_000).x
    monkeypatch.setattr(loading, "DENSE_LIMIT", 1_000)
    data = synthetic(2_000)
    assert data.x.layout == torch.sparse_csr
    assert torch.equal(data.x.to_dense(), dense)
    assert data.num_nodes == 2_000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_classes": 1}, "num_classes must be at least 2, not 1"),
        ({"num_nodes": 100}, "num_nodes must be at least 400"),
        ({"homophily": 1.2}, r"homophily must be in \[0, 1\], not 1.2"),
        ({"feature_signal": -1}, "feature_signal must be in"),
        ({"degree": -1}, "degree must be between 0 and num_nodes / 4, not -1"),
        ({"words": 3}, "words must be at least one for each of 5 classes, not 3"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        synthetic(**wrong)
