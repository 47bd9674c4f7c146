"""Files that earlier versions wrote keep loading and say what they said: one folder for each format, written by that version."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.data import Data

from graphcal import Outputs, restore
from graphcal.graphs import node_keys, recognised_nodes, structure

SAVED = Path(__file__).parent / "saved"
FILES = sorted(SAVED.glob("format-*/*.safetensors"))


@pytest.fixture(scope="module")
def out() -> Outputs:
    given = load_file(SAVED / "inputs.safetensors")
    logits, weight, bias = (given.pop(name) for name in ("logits", "weight", "bias"))
    return Outputs.from_logits(logits, Data(**given, num_nodes=len(logits)), weight, bias)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_saved_calibration_says_what_it_said(path, out):
    said = load_file(path.parent / "said.st")[path.stem]
    restored = restore(path)
    torch.testing.assert_close(restored(out), said, atol=2e-5, rtol=1e-4)


def test_every_format_has_files_of_every_calibrator():
    counts = {folder.name: len(list(folder.glob("*.safetensors"))) for folder in SAVED.glob("format-*")}
    assert counts.keys() == {"format-1", "format-2", "format-3"}
    assert all(count >= 18 for count in counts.values()), counts


def test_training_nodes_kept_by_number_are_forgotten(out):
    restored = restore(SAVED / "format-2" / "scar.safetensors")
    assert len(restored.train_keys) == 0
    assert structure(out.graph).train_mask.any()  # the call's own mask still counts


def test_training_nodes_kept_by_key_alone_are_recognised(out):
    """Files of format 3 hold the key of each training node, later ones its number as well."""
    restored = restore(SAVED / "format-3" / "scar.safetensors")
    keys = node_keys(out.graph)
    assert restored.train_keys.dim() == 1
    train = out.graph.train_mask
    recognised, unclear = recognised_nodes(keys, restored.train_keys)
    assert torch.equal(recognised, train)
    assert not unclear.any()


def test_a_damaged_older_header_is_refused(tmp_path):
    path = tmp_path / "c.safetensors"
    content = (SAVED / "format-1" / "ts.safetensors").read_bytes()
    path.write_bytes(content.replace(b'\\"settings\\"', b'\\"sattings\\"'))
    with pytest.raises(ValueError, match="damaged graphcal header: KeyError 'settings'"):
        restore(path)
