import json

import pytest

import graphcal
from graphcal.lab.shift import new_nodes as module
from graphcal.lab.shift.new_nodes import inductive

METHODS = {name: graphcal.CALIBRATORS[name]() for name in ("none", "ts", "scar")}
SHORT = graphcal.lab.Training(epochs=15, hidden_channels=16)


def rows_of(rows, **labels):
    return {row["method"]: row for row in rows if all(row.get(k) == v for k, v in labels.items())}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    data = graphcal.lab.synthetic(800, degree=12, feature_signal=0.4, seed=0)
    folder = tmp_path_factory.mktemp("kept")
    return data, folder, inductive(data, training=SHORT, seeds=[0, 1], methods=METHODS, folder=folder)


@pytest.mark.slow
def test_every_wave_and_every_way_has_a_row_per_method(measured):
    _, _, rows = measured
    assert len(rows) == 3 * (5 + 1 + 3 * 3)
    for wave in range(1, 6):
        assert rows_of(rows, shift="wave", wave=wave).keys() == METHODS.keys()
    for fanout in ("5", "10", "25"):
        for way in module.WAYS:
            assert rows_of(rows, shift="sampled", fanout=fanout, way=way).keys() == METHODS.keys()


@pytest.mark.slow
def test_a_method_that_reads_no_graph_is_the_same_in_every_way(measured):
    _, _, rows = measured
    for fanout in ("5", "25"):
        nll = {rows_of(rows, fanout=fanout, way=way)["ts"]["nll"] for way in module.WAYS}
        assert max(nll) - min(nll) < 1e-9
    small, large = (rows_of(rows, fanout=f, way="table")["none"]["nll"] for f in ("5", "all"))
    assert small != large  # but the logits are those of sampled neighbourhoods


def test_a_seed_is_computed_once(measured, monkeypatch):
    data, folder, rows = measured
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(module, "one_seed", lambda *args: pytest.fail("computed again"))
    assert inductive(data, training=SHORT, seeds=[0, 1], methods=METHODS, folder=folder) == rows
    one = json.loads((folder / "synthetic-sage-0.json").read_text())
    assert rows[0]["nll"] != one[0]["nll"]  # the mean of two seeds
