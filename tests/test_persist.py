"""Saving and restoring: what comes back, what is refused, and that a file is never half written."""

from __future__ import annotations

import json
import struct

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch_geometric.nn import GCNConv

import graphcal
from conftest import random_graph
from graphcal import CalibratedModel, observe, persist
from graphcal.core import Calibration, Outputs
from graphcal.graphs import fingerprint
from graphcal.methods import SCAR, TemperatureScaling
from graphcal.persist import installed_versions


class Nested(Calibration):
    """A calibration with another one inside."""

    calibration: Calibration
    why: str
    scores: dict[str, float]

    def forward(self, out: Outputs) -> torch.Tensor:
        return self.calibration(out)


NESTED = f"{Nested.__module__}:Nested"


def fitted_scar(out: Outputs) -> Calibration:
    return SCAR().fit(out, on=out.graph.val_mask)


@pytest.fixture
def out() -> Outputs:
    graph = random_graph(nodes=300, train=40, val=150)
    g = torch.Generator().manual_seed(0)
    return Outputs.from_logits(torch.randn(300, 4, generator=g), graph, torch.randn(4, 6, generator=g))


@pytest.fixture
def fitted(out) -> Calibration:
    return TemperatureScaling().fit(out, on=out.graph.val_mask)


def header_of(path) -> dict:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["graphcal"])


def test_the_header_says_what_the_file_holds(out, fitted, tmp_path):
    path = persist.save(fitted, tmp_path / "ts.safetensors")
    header = header_of(path)
    assert header["class"] == "Temperature"
    assert header["format"] == persist.FORMAT
    assert set(header["versions"]) >= {"graphcal", "torch", "python"}
    assert header["tensors"] == ["scale"]
    assert header["num_classes"] == 4
    assert header["fitted_on"]["fitting_nodes"] == 150
    assert header["fitted_on"]["nodes"] == 300
    assert header["fitted_on"]["fingerprint"] == fingerprint(out.graph)
    assert set(header) >= {"settings", "parts"}


def test_settings_and_integer_tensors_come_back(out, tmp_path):
    scar = SCAR().fit(out, on=out.graph.val_mask)
    restored = persist.restore(persist.save(scar, tmp_path / "scar.safetensors"))
    assert restored.settings == scar.settings
    assert torch.equal(restored.train_keys, scar.train_keys)
    assert restored.train_keys.dtype == torch.long
    assert len(restored.train_keys) > 30
    assert restored.fitted_on == scar.fitted_on
    assert torch.equal(restored(out), scar(out))


def test_a_calibration_inside_a_calibration_comes_back(out, tmp_path):
    nested = Nested(calibration=fitted_scar(out), why="a reason", scores={"ts": 0.5}, num_classes=4)
    restored = persist.restore(persist.save(nested, tmp_path / "nested.safetensors"))
    assert (restored.why, restored.scores) == ("a reason", {"ts": 0.5})
    assert type(restored.calibration) is type(nested.calibration)
    assert torch.equal(restored(out), nested(out))


def test_a_class_of_ones_own_is_known_once_it_is_defined(out, tmp_path):
    class Halved(Calibration):
        by: torch.Tensor

        def forward(self, out: Outputs) -> torch.Tensor:
            return (self.by * out.logits).log_softmax(-1)

    path = persist.save(Halved(by=torch.tensor(0.5)), tmp_path / "own.safetensors")
    assert header_of(path)["class"].endswith(":test_a_class_of_ones_own_is_known_once_it_is_defined.<locals>.Halved")
    assert torch.equal(persist.restore(path)(out), (0.5 * out.logits).log_softmax(-1))


def test_saving_replaces_the_file_whole(out, fitted, tmp_path, monkeypatch):
    path = persist.save(fitted, tmp_path / "c.safetensors")
    before = path.read_bytes()

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("graphcal.files.os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        persist.save(fitted, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]  # no leftovers


def test_what_cannot_be_saved_is_refused(fitted, tmp_path):
    with pytest.raises(ValueError, match="recipe is fitted first"):
        persist.save(TemperatureScaling(), tmp_path / "r.safetensors")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not exist"):
        persist.save(fitted, tmp_path / "nowhere" / "c.safetensors")
    with pytest.raises(ValueError, match="Temperature does not declare extra: write it into the class as a field"):
        persist.save(type(fitted)(scale=torch.ones(1), extra=1), tmp_path / "c.safetensors")
    with pytest.raises(ValueError, match="JSON cannot hold"):
        persist.save(Nested(calibration=fitted, why=object()), tmp_path / "c.safetensors")


def with_header(path, header, **tensors) -> None:
    """A file with this header, whole: its checksum is right."""
    tensors = tensors or {"scale": torch.ones(1)}
    save_file(tensors, path, metadata={"graphcal": header, "sha256": persist.checksum({"graphcal": header}, tensors)})


GOOD = {
    "format": persist.FORMAT,
    "versions": {},
    "class": "Temperature",
    "num_classes": 4,
    "fitted_on": {},
    "settings": {},
    "parts": {},
    "tensors": ["scale"],
}


def test_what_cannot_be_restored_is_refused(tmp_path):
    path = tmp_path / "c.safetensors"
    with pytest.raises(ValueError, match="no saved calibration"):
        persist.restore(path)
    path.write_bytes(b"not a tensor file at all")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        persist.restore(path)
    save_file({"scale": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="not a calibration saved by"):
        persist.restore(path)
    with_header(path, "{")
    with pytest.raises(ValueError, match="damaged graphcal header"):
        persist.restore(path)
    good = GOOD
    with_header(path, json.dumps({**good, "format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        persist.restore(path)
    with_header(path, json.dumps({**good, "class": "os:system"}))
    with pytest.raises(ValueError, match=r"'os:system', which is not known here; known: .*Temperature"):
        persist.restore(path)
    with_header(path, json.dumps({**good, "tensors": ["scale", "shift"]}))
    with pytest.raises(ValueError, match="not there: shift"):
        persist.restore(path)
    with_header(path, json.dumps({**good, "tensors": []}))
    with pytest.raises(ValueError, match="holds tensors that the header does not announce: scale"):
        persist.restore(path)
    with_header(path, json.dumps({**good, "class": "ScaleAndShift"}))
    with pytest.raises(ValueError, match="a ScaleAndShift without shift"):
        persist.restore(path)
    with_header(path, json.dumps({**good, "settings": {"forward": 1}}))
    with pytest.raises(ValueError, match="a Temperature with forward, which it does not have; it has scale"):
        persist.restore(path)
    with_header(path, json.dumps({**good, "tensors": [], "settings": {"scale": 2.0}}), other=torch.ones(1))
    with pytest.raises(ValueError, match="does not announce: other"):
        persist.restore(path)
    with_header(path, json.dumps(good), scale=torch.tensor([torch.nan]))
    with pytest.raises(ValueError, match="whose scale is not finite"):
        persist.restore(path)
    with_header(path, json.dumps({**good, "class": "ScaleAndShift", "tensors": ["scale", "shift"]}),
                scale=torch.ones(4), shift=torch.ones(5))  # fmt: skip
    with pytest.raises(ValueError, match="its ScaleAndShift cannot be applied"):
        persist.restore(path)
    with_header(path, json.dumps({**good, "parts": {"scale": good}}))
    with pytest.raises(ValueError, match="damaged"):
        persist.restore(path)
    with_header(path, "[" * 100_000)
    with pytest.raises(ValueError, match="damaged graphcal header"):
        persist.restore(path)
    with_header(
        path,
        json.dumps({**good, "class": NESTED, "tensors": [], "parts": {"calibration": {**good, "num_classes": 7}}}),
    )
    with pytest.raises(ValueError, match="does not announce: scale"):
        persist.restore(path)
    with_header(path, json.dumps(good))
    assert float(persist.restore(path).scale) == 1.0


@pytest.mark.parametrize("key", persist.KEYS)
@pytest.mark.parametrize("value", ["gone", 1.5, True], ids=str)
def test_a_damaged_header_is_refused_by_the_key_that_is_wrong(tmp_path, key, value):
    header = GOOD
    damaged = {k: v for k, v in header.items() if k != key} if value == "gone" else {**header, key: value}
    with_header(tmp_path / "c.safetensors", json.dumps(damaged))
    with pytest.raises(ValueError, match=f"damaged graphcal header: no valid '{key}'"):
        persist.restore(tmp_path / "c.safetensors")


def test_parts_of_another_number_of_classes_are_refused(out, tmp_path):
    nested = Nested(calibration=fitted_scar(out), num_classes=4)
    nested.calibration.num_classes = 7
    path = persist.save(nested, tmp_path / "nested.safetensors")
    with pytest.raises(ValueError, match="a calibration of 4 classes holds one of 7"):
        persist.restore(path)


def test_a_restored_calibration_refuses_another_number_of_classes(out, fitted, tmp_path):
    restored = persist.restore(persist.save(fitted, tmp_path / "ts.safetensors"))
    other = Outputs.from_logits(torch.randn(300, 9), out.graph)
    with pytest.raises(ValueError, match="this calibration was fitted on 4 classes, the logits have 9"):
        restored(other)


def test_a_flipped_bit_is_noticed(out, tmp_path):
    path = persist.save(SCAR().fit(out, on=out.graph.val_mask), tmp_path / "scar.safetensors")
    content = bytearray(path.read_bytes())
    for place in (len(content) - 1, len(content) - 200, content.index(b"worth_of_training_set") + 26):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged|not a readable"):
            persist.restore(path)


def test_a_setting_of_another_type_is_refused(out, tmp_path):
    scar = SCAR().fit(out, on=out.graph.val_mask)
    scar.settings["guarded"] = "yes"
    path = persist.save(scar, tmp_path / "scar.safetensors")
    with pytest.raises(ValueError, match="a CentroidPull whose guarded is str, not bool"):
        persist.restore(path)


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.norm, self.last = GCNConv(10, width), nn.BatchNorm1d(width), GCNConv(width, 4)

    def forward(self, x, edge_index):
        return {"h": x, "logits": self.last(self.norm(self.first(x, edge_index)).relu(), edge_index)}


def test_a_model_ships_with_its_calibration_in_one_file(graph, tmp_path):
    torch.manual_seed(0)
    model = Net()
    calibrate = SCAR().fit(observe(model, graph), on=graph.val_mask)
    calibrated = CalibratedModel(model, calibrate, pick="logits")
    path = persist.save(calibrated, tmp_path / "model.safetensors")
    restored = persist.restore(path, model=Net())
    assert not restored.training
    torch.testing.assert_close(restored(graph.x, graph.edge_index), calibrated(graph.x, graph.edge_index))
    with pytest.raises(ValueError, match=r"holds a Net with its calibration: give a module of that architecture"):
        persist.restore(path)
    with pytest.raises(ValueError, match="does not fit Net"):
        persist.restore(path, model=Net(width=9))
    alone = persist.save(calibrate, tmp_path / "scar.safetensors")
    with pytest.raises(ValueError, match="a calibration without a model"):
        persist.restore(alone, model=Net())


def test_versions_are_those_of_the_packages_in_use() -> None:
    versions = installed_versions()
    assert versions["graphcal"] == graphcal.__version__
    assert versions["torch"] == torch.__version__
    assert {"python", "torch_geometric", "numpy", "scipy", "scikit-learn"} <= versions.keys()
