"""Names from elsewhere: the example package by entry point, and any object with a fit."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import graphcal
from conftest import random_graph
from graphcal import saving
from graphcal.lab.bench.expansion import expand
from graphcal.lab.bench.presets import build_preset
from graphcal.methods import recipes_by_name
from graphcal.methods.temperature import TemperatureScaling
from graphcal.plugins import Names
from small_outputs import model_outputs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXAMPLES = Path(__file__).parents[2] / "examples"
GROUP = "graphcal.calibrators"

RESTORE = """
import sys
path, folder = sys.argv[1:]
sys.path.insert(0, folder)
import graphcal
names = graphcal.CALIBRATORS
print("margin-scaling" in names, names["margin-scaling"].__module__, type(graphcal.restore(path)).__name__)
"""


@pytest.fixture
def installed(tmp_path) -> str:
    """The example package as an installer leaves it: the module, and the metadata its pyproject.toml asks for."""
    package = EXAMPLES / "calibrator_plugin"
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path / "site"
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = project["entry-points"][GROUP]
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (folder / "margin_scaling.py").write_text((package / "margin_scaling.py").read_text(encoding="utf-8"))
    return str(folder)


@pytest.mark.slow
def test_the_example_package_is_found_fits_saves_and_comes_back(installed, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    out = model_outputs()
    recipe = Names("calibrator", {"ts": TemperatureScaling}, method="fit", signature="fit(out, on, stop=None)")[
        "margin-scaling"
    ]()
    fitted = recipe.fit(out, on=out.graph.val_mask)
    assert torch.equal(fitted(out).argmax(-1), out.pred)
    path = saving.save(fitted, tmp_path / "margin.safetensors")
    elsewhere = [sys.executable, "-c", RESTORE, str(path), installed]  # a process that has not imported the package
    output = subprocess.run(elsewhere, check=True, capture_output=True, text=True).stdout
    assert output.split() == ["True", "margin_scaling", "MarginScale"]


def test_our_own_names_cannot_be_taken_over_and_unknown_ones_list_the_choices(monkeypatch):
    from importlib.metadata import EntryPoint

    points = [
        EntryPoint("ts", "somewhere:Else", GROUP),
        EntryPoint("broken", "graphcal.core:FinalLayer", GROUP),
    ]
    monkeypatch.setattr("graphcal.plugins.entry_points", lambda group: points)
    table = Names("calibrator", {"ts": TemperatureScaling}, method="fit", signature="fit(out, on, stop=None)")
    assert list(table) == ["ts", "broken"]
    assert len(table) == 2
    assert table["ts"] is TemperatureScaling
    assert "nonsense" not in table
    with pytest.raises(ValueError, match="unknown calibrator 'nonsense'; choose among ts, broken"):
        table["nonsense"]
    with pytest.raises(ValueError, match="has no fit"):
        table["broken"]


def test_a_name_whose_part_was_taken_out_says_where_it_would_be(monkeypatch):
    from importlib.metadata import EntryPoint

    points = [EntryPoint("old-way", "graphcal.taken_out.old_way:OldWay", GROUP)]
    monkeypatch.setattr("graphcal.plugins.entry_points", lambda group: points)
    table = Names("calibrator", {"ts": TemperatureScaling})
    assert "old-way" not in table
    lacks = (
        r"unknown calibrator 'old-way' \(it is in graphcal.taken_out.old_way, which this installation lacks\); choose"
    )
    with pytest.raises(ValueError, match=lacks):
        table["old-way"]
    preset = {"title": "t", "source": "s", "runs": 1, "methods": ["old-way"], "axes": {"dataset": ["cora"]}}
    with pytest.raises(ValueError, match="names the methods old-way .*which this installation lacks"):
        build_preset("mine", preset)


@pytest.mark.slow
def test_the_example_calibrator_runs(capsys):
    runpy.run_path(str(EXAMPLES / "your_calibrator.py"), run_name="__main__")
    errors = {line.split()[0]: float(line.split()[-2]) for line in capsys.readouterr().out.splitlines()}
    assert errors["MeanMatching"] < errors["Uncalibrated"]


def test_the_name_that_was_probably_meant_is_said():
    names = Names("calibrator", {"temperature": TemperatureScaling})
    with pytest.raises(
        ValueError, match=r"unknown calibrator 'Temprature'; choose among .* Did you mean 'temperature'\?"
    ):
        names["Temprature"]
    with pytest.raises(ValueError, match="unknown calibrator 'xyz'") as refused:
        names["xyz"]
    assert "Did you mean" not in str(refused.value)


OWN_FILE = """
from dataclasses import dataclass
import graphcal
from torch import Tensor

class Doubled(graphcal.Calibration):
    factor: Tensor
    def kernel(self, logits, context):
        return (self.factor.to(logits) * logits).log_softmax(0)

@dataclass(frozen=True)
class Doubling:
    factor: float = 2.0
    def fit(self, out, on, stop=None):
        return Doubled(factor=out.logits.new_tensor(self.factor), num_classes=out.num_classes)
"""


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doubling.py").write_text(OWN_FILE)
    yield "doubling.py:Doubling"
    sys.modules.pop("doubling", None)


def test_a_class_in_a_file_is_a_calibrator_everywhere(own_file, tmp_path):
    graph = random_graph(nodes=300, train=60, val=120)
    training = graphcal.lab.Training(epochs=5, hidden_channels=8)
    recipe = graphcal.CALIBRATORS[own_file]()
    by_name = graphcal.lab.run(graph, calibrators=[own_file, "ts"], seeds=[0], training=training)
    by_value = graphcal.lab.run(graph, calibrators=[recipe], seeds=[0], training=training)
    assert by_name.value(own_file, "nll") == by_value.value("Doubling", "nll") != by_value.value("none", "nll")
    assert by_value.chosen_method == "Doubling"
    by_value.save(tmp_path / "report")  # page, card and calibrator
    assert type(saving.restore(tmp_path / "report" / "calibrator.safetensors")).__name__ == "Doubled"
    z = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    y = (z + torch.randn(400, 3, generator=torch.Generator().manual_seed(1))).argmax(1).numpy()
    for calibrator in (own_file, recipe):
        result = graphcal.calibrate(z.numpy(), y, kind="logits", calibrator=calibrator)
        torch.testing.assert_close(torch.tensor(result.probs), (2 * z).softmax(1), atol=1e-6, rtol=0)


def test_a_changed_file_is_another_cell(own_file, tmp_path):
    def keys():
        text = {
            "title": "mine", "source": "me", "runs": 1, "methods": [own_file, "ts"],
            "axes": {"dataset": ["citeseer"], "backbone": ["gcn"]}, "base": {"protocol": "public"},
        }  # fmt: skip
        preset = build_preset("mine", text)
        assert preset.title_of(own_file) == "Doubling"
        return {slot.method: slot.cell.key for slot in expand(preset)}

    before = keys()
    (tmp_path / "doubling.py").write_text(OWN_FILE + "# changed")
    after = keys()
    assert before["ts"] == after["ts"]
    assert before[own_file] != after[own_file]


def test_files_that_hold_no_recipe_are_refused(own_file, tmp_path):
    (tmp_path / "json.py").write_text("x = 1")
    for name, message in {
        "absent.py:Doubling": "no file absent.py",
        "doubling.py:Other": "no 'Other'",
        "doubling.py": "names no class",
        "doubling.py:Doubled": "it is not a recipe",
        "json.py:x": "already imported",
    }.items():
        with pytest.raises(ValueError, match=message):
            graphcal.CALIBRATORS[name]
    with pytest.raises(ValueError, match="two recipes are called Doubling"):
        recipes_by_name([graphcal.CALIBRATORS[own_file](1.0), graphcal.CALIBRATORS[own_file](3.0)])
