"""What importing may not do, and the public surface. Who may import whom is in pyproject.toml (import-linter)."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import graphcal
from conftest import HAS_LAB

ROOT = Path(graphcal.__file__).parent


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def test_only_the_study_fits_and_blinds():
    """One loop hides the test labels, fits, applies and measures; a calibrator that is built on others fits those."""
    fits = {
        part_of(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fit"
        and any(keyword.arg == "on" for keyword in node.keywords)
    }  # fmt: skip
    assert fits <= {"study", "methods", "lab"}


def test_no_class_is_defined_twice():
    defined: dict[str, Path] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                assert node.name not in defined, f"{node.name} stands in {defined[node.name]} and in {path}"
                defined[node.name] = path


def test_matplotlib_is_known_only_to_the_drawing_modules():
    for path in MODULES:
        if "matplotlib" in path.read_text(encoding="utf-8") and part_of(path) not in ("plots", "lab"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
            assert not any("matplotlib" in ast.unparse(n) for n in imports), path


def test_importing_the_command_line_does_not_import_torch():
    code = (
        "import sys, graphcal.cli; sys.exit(any(m in sys.modules for m in ('torch', 'matplotlib', 'scipy', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lists_do_not_wait_for_torch():
    """`graphcal methods`, and `graphcal datasets` of the laboratory, answer from tables."""
    names = ("methods", "datasets") if HAS_LAB else ("methods",)
    code = (
        "import sys; from typer.testing import CliRunner; from graphcal.cli import app\n"
        f"for name in {names!r}:\n"
        "    assert CliRunner().invoke(app, [name]).exit_code == 0\n"
        "sys.exit(any(m in sys.modules for m in ('torch', 'matplotlib', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_exist():
    for name in graphcal.__all__:
        assert getattr(graphcal, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        graphcal.nonsense  # noqa: B018


def test_the_stub_has_the_same_names():
    stub = ast.parse((ROOT / "__init__.pyi").read_text(encoding="utf-8"))
    names = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names == set(dir(graphcal)) - {"__version__"}


@pytest.mark.slow
def test_a_script_of_a_user_has_no_type_errors_and_a_typo_has_one(tmp_path):
    """What Pyright, the checker inside most editors, says of ten usual lines."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    assert pyright(script) == []
    script.write_text(SCRIPT.replace("graphcal.observe", "graphcal.obsrve"), encoding="utf-8")
    assert any("obsrve" in message for message in pyright(script))


SCRIPT = """
import graphcal
from torch_geometric.nn.models import GCN

data = graphcal.example().graph
out = graphcal.observe(GCN(data.num_features, 64, 2, out_channels=6), data)
calibrate = graphcal.SCAR().fit(out, on=data.val_mask)
probs = calibrate(out).exp()
decision = graphcal.decide(out, calibrate, certify=data.test_mask)
graphcal.save(calibrate, "scar.safetensors")
"""


def pyright(script: Path) -> list[str]:
    """The errors that Pyright finds, in its standard mode (basedpyright: the same checker with all it needs in its wheel)."""
    (script.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    command += ["--project", str(script.parent), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [one["message"] for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]


def test_no_public_name_is_shadowed_by_a_module_of_the_same_name():
    """Importing graphcal.x sets the attribute x of the package: it would replace a function x."""
    modules = {p.stem for p in ROOT.glob("*.py")} | {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert not modules & set(graphcal.__all__)


def test_the_package_is_typed():
    assert (ROOT / "py.typed").exists()
