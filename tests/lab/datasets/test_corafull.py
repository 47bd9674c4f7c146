"""CoraFull is put together from whatever copies are at hand: small files of the same formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from graphcal.lab.datasets import catalog
from graphcal.lab.datasets.corafull import STRUCTURE, assemble_corafull

SHAPE = (4, 3)
EDGES = [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
WORDS = sp.csr_matrix(np.array([[1, 0, 3], [0, 0, 0], [0, 2, 0], [0, 0, 0]], dtype=np.float32))
LABELS = np.array([0, 2, 1, 2])


def parts_of(matrix: sp.csr_matrix, prefix: str) -> dict[str, np.ndarray]:
    return {f"{prefix}{part}": np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr", "shape")}


def write_whole(path: Path, dot: str = "_", labels: np.ndarray = LABELS) -> None:
    """cora_full.npz and cora.npz: directed edges with a self loop, an object array beside them."""
    adj = sp.csr_matrix(([1.0, 1.0, 1.0, 1.0], ([0, 1, 2, 2], [1, 2, 0, 2])), shape=(4, 4))
    more = {"labels": labels, "idx_to_node": np.array({0: "paper"}, dtype=object)}
    np.savez(path, **parts_of(adj, f"adj{dot}"), **parts_of(WORDS, f"attr{dot}"), **more)


def write_structure(folder: Path) -> None:
    np.savez(folder / STRUCTURE, edge_index=np.array(EDGES), labels=LABELS.astype(np.int16), self_loops=np.array([2]))


@pytest.mark.parametrize("dot", ["_", "_matrix."])
def test_a_whole_copy_is_known_by_its_shape_whatever_it_is_called(tmp_path: Path, dot: str) -> None:
    write_whole(tmp_path / "downloaded-once.npz", dot)
    graph, said = assemble_corafull([tmp_path / "nowhere", tmp_path], SHAPE)
    assert graph.edge_index.tolist() == EDGES
    assert graph.features.toarray().tolist() == WORDS.toarray().tolist()
    assert graph.labels.tolist() == LABELS.tolist()
    assert graph.splits["self_loops"].tolist() == [2]
    assert "downloaded-once.npz" in said


def test_features_alone_go_with_the_structure_file_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write_structure(tmp_path / "a")
    sp.save_npz(tmp_path / "words.npz", WORDS)
    graph, said = assemble_corafull([tmp_path / "a", tmp_path], SHAPE)
    assert (graph.edge_index.tolist(), graph.labels.tolist()) == (EDGES, LABELS.tolist())
    assert graph.features.toarray().tolist() == WORDS.toarray().tolist()
    assert "words.npz with corafull_structure.npz" in said


def test_both_are_held_against_each_other(tmp_path: Path) -> None:
    write_structure(tmp_path)
    write_whole(tmp_path / "cora.npz")
    assert assemble_corafull([tmp_path], SHAPE)[0].labels.tolist() == LABELS.tolist()
    write_whole(tmp_path / "cora.npz", labels=LABELS[::-1].copy())
    with pytest.raises(ValueError, match="cora.npz and corafull_structure.npz disagree"):
        assemble_corafull([tmp_path], SHAPE)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no .npz file with features of 4 x 3"):
        assemble_corafull([tmp_path], SHAPE)
    write_structure(tmp_path)
    (tmp_path / "broken.npz").write_bytes(b"not a zip file")
    write_whole(tmp_path / "other.npz")  # the shape of another graph is not taken
    with pytest.raises(LookupError, match="corafull_structure.npz is there, but no .npz file with features of 5 x 3"):
        assemble_corafull([tmp_path], (5, 3))
    (tmp_path / STRUCTURE).unlink()
    (tmp_path / "other.npz").unlink()
    sp.save_npz(tmp_path / "words.npz", WORDS)
    with pytest.raises(LookupError, match="words.npz has the features alone"):
        assemble_corafull([tmp_path], SHAPE)


def test_find_asks_your_files_first_and_leaves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "raw" / "corafull" / "cora_full.npz"
    own.parent.mkdir(parents=True)
    write_whole(own)
    before = own.read_bytes()
    monkeypatch.delenv("GRAPHCAL_DATA", raising=False)
    monkeypatch.setattr(catalog, "assemble_corafull", lambda folders: assemble_corafull(folders, SHAPE))
    monkeypatch.setattr(catalog, "check", lambda name, graph, where: graph)
    monkeypatch.setattr(catalog, "_from_download", lambda name, cache: pytest.fail("nothing is to be fetched"))
    graph, said = catalog.find("corafull", tmp_path)
    assert graph.num_nodes == 4
    assert said == f"assembled ({own})"
    assert own.read_bytes() == before
