"""Saving and restoring: what comes back, what is refused, and that a file is never half written."""

from __future__ import annotations

import json
import struct
import warnings

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import graphcal
from conftest import needs_lab, random_graph
from graphcal import CalibratedModel, observe, saving
from graphcal.core import Calibration, Needs, Outputs
from graphcal.decisions.monitoring import watch
from graphcal.graphs import fingerprint
from graphcal.methods import CALIBRATORS, SCAR, TemperatureScaling
from graphcal.methods.scar import fit_pull
from graphcal.metrics import reference_summary
from graphcal.saving import installed_versions


class Nested(Calibration):
    """A calibration with another one inside."""

    needs = Needs(edges=True, whole_graph=True)

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
    path = saving.save(fitted, tmp_path / "ts.safetensors")
    header = header_of(path)
    assert header["class"] == "Temperature"
    assert header["format"] == saving.FORMAT
    assert set(header["versions"]) >= {"graphcal", "torch", "python"}
    assert header["tensors"] == ["scale"]
    assert header["num_classes"] == 4
    assert header["fitted_on"]["fitting_nodes"] == 150
    assert header["fitted_on"]["nodes"] == 300
    assert header["fitted_on"]["fingerprint"] == fingerprint(out.graph)
    assert set(header) >= {"settings", "parts"}


def test_settings_and_integer_tensors_come_back(out, tmp_path):
    scar = SCAR().fit(out, on=out.graph.val_mask)
    restored = saving.restore(saving.save(scar, tmp_path / "scar.safetensors"))
    assert restored.settings == scar.settings
    assert restored.fitted_on == scar.fitted_on
    assert torch.equal(restored(out), scar(out))


def test_a_calibration_inside_a_calibration_comes_back(out, tmp_path):
    nested = Nested(calibration=fitted_scar(out), why="a reason", scores={"ts": 0.5}, num_classes=4)
    restored = saving.restore(saving.save(nested, tmp_path / "nested.safetensors"))
    assert (restored.why, restored.scores) == ("a reason", {"ts": 0.5})
    assert type(restored.calibration) is type(nested.calibration)
    assert torch.equal(restored(out), nested(out))


def test_a_class_of_ones_own_is_known_once_it_is_defined(out, tmp_path):
    class Halved(Calibration):
        by: torch.Tensor

        def forward(self, out: Outputs) -> torch.Tensor:
            return (self.by * out.logits).log_softmax(-1)

    path = saving.save(Halved(by=torch.tensor(0.5)), tmp_path / "own.safetensors")
    assert header_of(path)["class"].endswith(":test_a_class_of_ones_own_is_known_once_it_is_defined.<locals>.Halved")
    assert torch.equal(saving.restore(path)(out), (0.5 * out.logits).log_softmax(-1))


def test_saving_replaces_the_file_whole(out, fitted, tmp_path, monkeypatch):
    path = saving.save(fitted, tmp_path / "c.safetensors")
    before = path.read_bytes()

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("graphcal.files.os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        saving.save(fitted, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]  # no leftovers


def test_what_cannot_be_saved_is_refused(fitted, tmp_path):
    with pytest.raises(ValueError, match="recipe is fitted first"):
        saving.save(TemperatureScaling(), tmp_path / "r.safetensors")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not exist"):
        saving.save(fitted, tmp_path / "nowhere" / "c.safetensors")
    with pytest.raises(ValueError, match="Temperature does not declare extra: write it into the class as a field"):
        saving.save(type(fitted)(scale=torch.ones(1), extra=1), tmp_path / "c.safetensors")
    with pytest.raises(ValueError, match="JSON cannot hold"):
        saving.save(Nested(calibration=fitted, why=object()), tmp_path / "c.safetensors")


def with_header(path, header, **tensors) -> None:
    """A file with this header, whole: its checksum is right."""
    tensors = tensors or {"scale": torch.ones(1)}
    save_file(tensors, path, metadata={"graphcal": header, "sha256": saving.checksum({"graphcal": header}, tensors)})


GOOD = {
    "format": saving.FORMAT,
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
        saving.restore(path)
    path.write_bytes(b"not a tensor file at all")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        saving.restore(path)
    for metadata in (None, {"format": "pt"}):
        save_file({"scale": torch.ones(1)}, path, metadata=metadata)
        with pytest.raises(ValueError, match="not a calibration saved by"):
            saving.restore(path)
    with_header(path, "{")
    with pytest.raises(ValueError, match="damaged graphcal header"):
        saving.restore(path)
    good = GOOD
    for form in range(1, saving.FORMAT):
        with_header(path, json.dumps({**good, "format": form}))
        with pytest.raises(ValueError, match=r"c\.safetensors: Made by an earlier version\. Fit again\."):
            saving.restore(path)
    for form in (99, 0, "3", None):
        with_header(path, json.dumps({**good, "format": form, "versions": form}))
        with pytest.raises(ValueError, match=f"format {form!r} .*this version reads format 4"):
            saving.restore(path)
    with_header(path, json.dumps({**good, "class": "os:system"}))
    with pytest.raises(ValueError, match=r"'os:system', which is not known here; known: .*Temperature"):
        saving.restore(path)
    with_header(path, json.dumps({**good, "tensors": ["scale", "shift"]}))
    with pytest.raises(ValueError, match="not there: shift"):
        saving.restore(path)
    with_header(path, json.dumps({**good, "tensors": []}))
    with pytest.raises(ValueError, match="holds tensors that the header does not announce: scale"):
        saving.restore(path)
    with_header(path, json.dumps({**good, "class": "ScaleAndShift"}))
    with pytest.raises(ValueError, match="a ScaleAndShift without shift"):
        saving.restore(path)
    with_header(path, json.dumps({**good, "settings": {"forward": 1}}))
    with pytest.raises(ValueError, match="a Temperature with forward, which it does not have; it has scale"):
        saving.restore(path)
    with_header(path, json.dumps({**good, "tensors": [], "settings": {"scale": 2.0}}), other=torch.ones(1))
    with pytest.raises(ValueError, match="does not announce: other"):
        saving.restore(path)
    with_header(path, json.dumps(good), scale=torch.tensor([torch.nan]))
    with pytest.raises(ValueError, match="whose scale is not finite"):
        saving.restore(path)
    with_header(path, json.dumps({**good, "class": "ScaleAndShift", "tensors": ["scale", "shift"]}),
                scale=torch.ones(4), shift=torch.ones(5))  # fmt: skip
    with pytest.raises(ValueError, match="not a sound ScaleAndShift"):
        saving.restore(path)
    with_header(path, json.dumps({**good, "parts": {"scale": good}}))
    with pytest.raises(ValueError, match="damaged"):
        saving.restore(path)
    with_header(path, "[" * 100_000)
    with pytest.raises(ValueError, match="damaged graphcal header"):
        saving.restore(path)
    with_header(
        path,
        json.dumps({**good, "class": NESTED, "tensors": [], "parts": {"calibration": {**good, "num_classes": 7}}}),
    )
    with pytest.raises(ValueError, match="does not announce: scale"):
        saving.restore(path)
    with_header(path, json.dumps(good))
    assert float(saving.restore(path).scale) == 1.0


@pytest.mark.parametrize("key", saving.KEYS)
@pytest.mark.parametrize("value", ["gone", 1.5, True], ids=str)
def test_a_damaged_header_is_refused_by_the_key_that_is_wrong(tmp_path, key, value):
    header = GOOD
    damaged = {k: v for k, v in header.items() if k != key} if value == "gone" else {**header, key: value}
    with_header(tmp_path / "c.safetensors", json.dumps(damaged))
    with pytest.raises(ValueError, match=f"damaged graphcal header: no valid '{key}'"):
        saving.restore(tmp_path / "c.safetensors")


def test_parts_of_another_number_of_classes_are_refused(out, tmp_path):
    nested = Nested(calibration=fitted_scar(out), num_classes=4)
    nested.calibration.num_classes = 7
    path = saving.save(nested, tmp_path / "nested.safetensors")
    with pytest.raises(ValueError, match="a calibration of 4 classes holds one of 7"):
        saving.restore(path)


def test_a_restored_calibration_refuses_another_number_of_classes(out, fitted, tmp_path):
    restored = saving.restore(saving.save(fitted, tmp_path / "ts.safetensors"))
    other = Outputs.from_logits(torch.randn(300, 9), out.graph)
    with pytest.raises(ValueError, match="this calibration was fitted on 4 classes, the logits have 9"):
        restored(other)


def test_a_flipped_bit_is_noticed(out, tmp_path):
    path = saving.save(SCAR().fit(out, on=out.graph.val_mask), tmp_path / "scar.safetensors")
    content = bytearray(path.read_bytes())
    for position in (len(content) - 1, len(content) - 200, content.index(b"worth_of_training_set") + 26):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged|not a readable"):
            saving.restore(path)


def test_a_setting_of_another_type_is_refused(out, tmp_path):
    scar = SCAR().fit(out, on=out.graph.val_mask)
    scar.settings["guarded"] = "yes"
    path = saving.save(scar, tmp_path / "scar.safetensors")
    with pytest.raises(ValueError, match="a CentroidPull whose guarded is str, not bool"):
        saving.restore(path)


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
    path = saving.save(calibrated, tmp_path / "model.safetensors")
    restored = saving.restore(path, model=Net())
    assert not restored.training
    torch.testing.assert_close(restored(graph.x, graph.edge_index), calibrated(graph.x, graph.edge_index))
    with pytest.raises(ValueError, match=r"holds a Net with its calibration: give a module of that architecture"):
        saving.restore(path)
    with pytest.raises(ValueError, match="does not fit Net"):
        saving.restore(path, model=Net(width=9))
    alone = saving.save(calibrate, tmp_path / "scar.safetensors")
    with pytest.raises(ValueError, match="a calibration without a model"):
        saving.restore(alone, model=Net())


class Sampled(Net):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index)["logits"]


@pytest.mark.parametrize("name", ["ts", "scar", "graph-scaling", "graph-scaling-keep", "rbs"])
def test_a_table_of_context_ships_with_its_model(name, graph, tmp_path):
    """A sampled batch gets the same from the restored model, nodes that are newer than the table included."""
    torch.manual_seed(0)
    model = Sampled()
    out = observe(model, graph)
    calibrate = CALIBRATORS[name]().fit(out, on=graph.val_mask)
    calibrated = CalibratedModel(model, calibrate, context=calibrate.context_of(out)[:100])
    restored = saving.restore(saving.save(calibrated, tmp_path / "model.safetensors"), model=Sampled())
    ids = torch.randperm(150)[:60]
    inside = torch.zeros(150, dtype=torch.bool).index_fill_(0, ids, True)
    batch = graph.subgraph(inside)
    n_id = inside.nonzero().flatten()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_probs = restored(batch.x, batch.edge_index, n_id=n_id)
        assert torch.equal(log_probs, calibrated(batch.x, batch.edge_index, n_id=n_id))
    if name not in ("ts", "rbs"):  # they say the same of every node here
        blank = torch.full_like(calibrate.context_of(out)[n_id], torch.nan)
        assert not torch.allclose(log_probs, calibrate.log_probs(model(batch.x, batch.edge_index), blank), atol=1e-3)


def test_the_training_nodes_that_were_named_ship_with_the_model(graph, tmp_path):
    torch.manual_seed(0)
    model, other = Sampled(), random_graph(seed=7)
    calibrate = fit_pull(observe(model, graph), graph.val_mask, 0.03, 0.2)
    for mask in (other.train_mask, other.train_mask.nonzero().flatten(), other.train_mask.numpy()):
        calibrated = CalibratedModel(model, calibrate, train_mask=mask)
        restored = saving.restore(saving.save(calibrated, tmp_path / "model.safetensors"), model=Sampled())
        assert torch.equal(restored(other.x, other.edge_index), calibrated(other.x, other.edge_index))


@pytest.mark.parametrize("given", [{"pick": lambda output: output}, {"as_graph": lambda x, edge_index: None}])
def test_functions_of_a_calibrated_model_cannot_be_saved(given, fitted, tmp_path):
    with pytest.raises(ValueError, match=f"{next(iter(given))}= of the CalibratedModel is a function"):
        saving.save(CalibratedModel(Sampled(), fitted, **given), tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def resaved(path, change=None, **tensors) -> None:
    """The file with another header and more tensors, its checksum right."""
    with safe_open(path, framework="pt") as file:
        metadata, state = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if change is not None:
        metadata["graphcal"] = json.dumps({**json.loads(metadata["graphcal"]), **change})
    state |= {name.replace("__", ":"): tensor for name, tensor in tensors.items()}
    metadata["sha256"] = saving.checksum(metadata, state)
    save_file(state, path, metadata=metadata)


def test_a_served_model_in_a_damaged_file_is_refused(graph, tmp_path):
    torch.manual_seed(0)
    calibrate = SCAR().fit(observe(Sampled(), graph), on=graph.val_mask)
    path = tmp_path / "model.safetensors"
    for tensors, message in (
        ({"served__context": torch.zeros(150, 2)}, "context has 2 columns, but CentroidPull reads 1"),
        ({"served__context": torch.zeros(150, 1, dtype=torch.long)}, "context must be the table"),
        ({"served__other": torch.zeros(1)}, "a CalibratedModel with other"),
    ):
        saving.save(CalibratedModel(Sampled(), calibrate), path)
        resaved(path, **tensors)
        with pytest.raises(ValueError, match=f"model.safetensors is damaged: {message}"):
            saving.restore(path, model=Sampled())
    for entry in (5, [], "Net", {"class": ["Net"]}, {"class": "Net", "pick": {}}, {"class": "Net", "node_type": 1.5}):
        saving.save(CalibratedModel(Sampled(), calibrate), path)
        resaved(path, {"model": entry})
        with pytest.raises(ValueError, match=r"model.safetensors has a damaged graphcal header: no valid 'model'"):
            saving.restore(path, model=Sampled())
    saving.save(calibrate, path)
    resaved(path, served__context=torch.zeros(150, 1))
    with pytest.raises(ValueError, match="holds tensors that the header does not announce: served:context"):
        saving.restore(path)


WRONG = (
    None,
    True,
    -1,
    0,
    1.5,
    10**400,
    float("nan"),
    "3",
    "",
    [],
    [[1]],
    [1],
    [2, 2],
    [1] * 20,
    [-1] * 20,
    {},
    {"a": 1},
)


@pytest.mark.parametrize("key", saving.FITTED_ON)
def test_what_a_file_says_of_its_fit_has_the_right_types(key, fitted, tmp_path):
    path = tmp_path / "c.safetensors"
    for value in WRONG:
        saving.save(fitted, path)
        resaved(path, {"fitted_on": {**fitted.fitted_on, key: value}})
        try:
            saving.restore(path)
        except ValueError as error:
            assert str(error).startswith(f"{path} has a damaged graphcal header: no valid {key!r} in 'fitted_on'")  # noqa: PT017
        else:
            assert isinstance(value, saving.FITTED_ON[key])


PAIR = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3)
REFERENCE = {
    **reference_summary(torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]).log(), PAIR),
    "promise": {"threshold": 0.8, "max_error": 0.05, "certainty": 0.95},
}


def with_reference(path, fitted, reference):
    """A file with this reference, its checksum right."""
    saving.save(fitted, path)
    with safe_open(path, framework="pt") as file:
        metadata, state = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata["reference"] = reference if isinstance(reference, str) else json.dumps(reference)
    metadata["sha256"] = saving.checksum(metadata, state)
    save_file(state, path, metadata=metadata)
    return path


def test_a_reference_comes_back_and_its_file_is_checked(fitted, tmp_path):
    path = saving.save(fitted, tmp_path / "c.safetensors", REFERENCE)
    assert saving.read_reference(path) == REFERENCE
    content = path.read_bytes()
    for position in (content.index(b"confidence") + 22, len(content) - 1):  # a digit of a count; a tensor
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"c\.safetensors is (damaged|not a readable)"):
            saving.read_reference(path)
    saving.save(fitted, path)
    with pytest.raises(ValueError, match="does not say what its predictions looked like"):
        saving.read_reference(path)
    with pytest.raises(ValueError, match="no saved calibration at"):
        saving.read_reference(tmp_path / "nothing")


@pytest.mark.parametrize("reference", ["{", "[" * 100_000, "[]", "3", '"x"', "true", "{}"])
def test_a_reference_that_is_none_is_refused(reference, fitted, tmp_path):
    path = with_reference(tmp_path / "c.safetensors", fitted, reference)
    with pytest.raises(ValueError, match=r"c\.safetensors is damaged: (in )?its reference"):
        saving.read_reference(path)


FIELDS = [*REFERENCE, *(f"{part}.{name}" for part in ("promise", "sample") for name in REFERENCE[part])]
SOUND = [("promise", None), ("promise.threshold", 0)]
SOUND += [("sample.degree", True), ("sample.classes", [1])]  # as it was


@pytest.mark.parametrize("key", FIELDS)
def test_every_field_of_a_reference_is_checked(key, fitted, tmp_path):
    """What is not refused can be watched with."""
    path, log_probs = tmp_path / "c.safetensors", torch.tensor([[0.9, 0.1], [0.4, 0.6]]).log()
    outer, _, inner = key.partition(".")
    for value in WRONG:
        changed = {**REFERENCE, outer: {**REFERENCE[outer], inner: value} if inner else value}
        try:
            reference = saving.read_reference(with_reference(path, fitted, changed))
        except ValueError as error:
            assert str(error).startswith(f"{path} is damaged: in its reference, ")  # noqa: PT017
            assert outer in str(error)  # noqa: PT017
        else:
            assert any((key, value) == sound for sound in SOUND)
            watch(reference, log_probs)
    with_reference(path, fitted, {name: value for name, value in REFERENCE.items() if name != key})
    if key in ("nodes", "confidence", "predicted", "prior", "sample"):
        with pytest.raises(ValueError, match=f"in its reference, {key} must"):
            saving.read_reference(path)
    else:
        watch(saving.read_reference(path), log_probs)


def test_versions_are_those_of_the_packages_in_use() -> None:
    versions = installed_versions()
    assert versions["graphcal"] == graphcal.__version__
    assert versions["torch"] == torch.__version__
    assert {"python", "torch_geometric", "numpy", "scipy", "scikit-learn"} <= versions.keys()


@needs_lab
def test_what_a_damaged_file_does_when_it_is_applied_is_said_of_the_file(out, tmp_path):
    """Of a calibration that reads the graph nothing can be tried before there is one."""
    path = saving.save(cagcn(out), tmp_path / "c.safetensors")
    whole = saving.restore(path)
    assert torch.equal(whole(out), cagcn(out)(out))
    name = next(name for name, tensor in whole.named_buffers() if tensor.dim() == 2)
    setattr(whole, name, torch.ones(3, 1000))
    with pytest.raises(ValueError, match=r"c\.safetensors: its .* cannot be applied to 300 nodes with 4 classes"):
        whole(out)
    broken = saving.restore(path)
    broken.forward = lambda out: out.logits  # numbers, but no log-probabilities
    with pytest.raises(ValueError, match=r"c\.safetensors is damaged: its .* gives no log-probabilities"):
        broken(out)
    with pytest.raises(
        ValueError, match=r"c\.safetensors: this calibration was fitted on 4 classes, the logits have 3"
    ):
        saving.restore(path)(Outputs(out.logits[:, :3], Data(num_nodes=300)))


def cagcn(out):
    return CALIBRATORS["cagcn"](epochs=2).fit(out, on=out.graph.val_mask)
