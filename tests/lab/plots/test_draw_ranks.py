"""The critical-difference diagram."""

from matplotlib.figure import Figure

from graphcal.lab.bench.comparisons import rank_methods
from graphcal.lab.plots.curves import draw_ranks


def test_the_rank_diagram_names_every_method():
    ax = Figure().subplots()
    found = rank_methods({name: [k + 0.1 * t for t in range(8)] for k, name in enumerate("abcd")})
    draw_ranks(found, ax)
    texts = " ".join(t.get_text() for t in ax.texts)
    assert all(f"{name} {mean:.2f}" in texts for name, mean in zip(found.names, found.mean))
    assert "critical difference" in texts
