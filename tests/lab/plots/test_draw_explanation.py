"""The picture of an explanation shows the parts of the lead."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn.models import GCN

from conftest import random_graph
from graphcal.lab.explanation import Explanation, explain
from graphcal.lab.plots.explanation import bars, draw_explanation, save_explanation
from graphcal.methods import SCAR
from graphcal.observation import observe


@pytest.fixture
def explanation() -> Explanation:
    data = random_graph()
    torch.manual_seed(0)
    out = observe(GCN(data.x.shape[1], 12, 2, 4), data)
    return explain(out, 77, SCAR().fit(out, on=data.val_mask))


def test_the_picture_shows_the_parts_of_the_lead(explanation: Explanation, tmp_path) -> None:
    from matplotlib.figure import Figure

    rows = bars(explanation)
    assert rows[-2][2] == pytest.approx(rows[-3][1] + rows[-3][2], abs=1e-4)  # the waterfall ends at the lead
    ax = Figure().subplots()
    draw_explanation(explanation, ax)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([length for _, _, length in rows])
    save_explanation(explanation, tmp_path / "node.svg")
    assert "<svg" in (tmp_path / "node.svg").read_text()
    with pytest.raises(ValueError, match="cannot draw node.tune"):
        save_explanation(explanation, tmp_path / "node.tune")
