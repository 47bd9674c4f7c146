"""Variants of the reproduction that earlier versions saved keep loading and say what they said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.data import Data

from graphcal import Outputs, restore

SAVED = Path(__file__).parents[2] / "saved"  # what they were applied to, and what they said
FILES = sorted((Path(__file__).parent / "saved").glob("format-*/*.safetensors"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_saved_variant_says_what_it_said(path):
    given = load_file(SAVED / "inputs.safetensors")
    logits, weight, bias = (given.pop(name) for name in ("logits", "weight", "bias"))
    out = Outputs.from_logits(logits, Data(**given, num_nodes=len(logits)), weight, bias)
    said = load_file(SAVED / path.parent.name / "said.st")[path.stem]
    torch.testing.assert_close(restore(path)(out), said, atol=2e-5, rtol=1e-4)


def test_every_format_has_the_variants_whose_class_is_their_own():
    assert len(FILES) == 11
    assert {path.parent.name for path in FILES} == {"format-1", "format-2", "format-3"}
