"""Pictures: drawn on the axis given, showing the numbers given, with nothing set globally."""

import pytest
import torch

from conftest import random_graph

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

from graphcal import plots  # noqa: E402
from graphcal.metrics import evaluate  # noqa: E402


@pytest.fixture(scope="module")
def measured():
    graph, g = random_graph(nodes=800), torch.Generator().manual_seed(0)
    z = 2 * torch.nn.functional.one_hot(graph.y, 4) + torch.randn(800, 4, generator=g)
    return evaluate((0.5 * z).log_softmax(1), graph.y, graph.test_mask, graph, draws=50)


@pytest.fixture(params=["default", "dark_background"])
def ax(request):
    with plt.style.context(request.param):
        figure, axis = plt.subplots()
        yield axis
        figure.savefig("/dev/null", format="svg")
        plt.close(figure)


def points(ax):
    return [(x, y) for line in ax.lines if line.get_marker() not in ("None", "") for x, y in zip(*line.get_data())]


def test_reliability_diagram(ax, measured):
    rel = measured.reliability
    plots.draw_reliability(rel, ax, "gcn")
    full = rel.count > 0
    expected = sorted(zip(rel.conf[full].tolist(), rel.accuracy[full].tolist()))
    assert sorted(points(ax)) == [pytest.approx(p) for p in expected]
    assert ax.get_title() == f"gcn: ECE {100 * measured.ece:.1f} %"
    assert {t.get_text() for t in ax.legend().get_texts()} >= {"calibrated: 95 % band", "bin: 95 % interval"}


def test_confidences_add_up(ax, measured):
    plots.draw_confidences(measured.reliability, ax)
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(1)


def test_floor(ax):
    plots.draw_floor(["none", "ts"], [0.1, 0.05], [0.04, 0.04], ax)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([10, 5])


def test_drawing_leaves_the_settings_alone(measured):
    before = dict(plt.rcParams)
    figure, axis = plt.subplots()
    plots.draw_reliability(measured.reliability, axis)
    plt.close(figure)
    assert dict(plt.rcParams) == before
