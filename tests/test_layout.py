"""Who may import whom, read off the import lines; and what importing may not do."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import graphcal

ROOT = Path(graphcal.__file__).parent

# A module may import modules of its own part and of parts in the same row's list; nothing imports cli.
FOUNDATION = {"checks", "core", "graphs", "metrics"}
ALLOWED = {
    "checks": set(),
    "core": {"checks"},
    "graphs": set(),
    "metrics": {"graphs"},
    "observation": {"checks", "core"},
    "persist": {"core", "calibrators"},
    "backbones": FOUNDATION,
    "calibrators": FOUNDATION,
    "datasets": FOUNDATION,
    "training": FOUNDATION | {"backbones"},
}


def imported_parts(path: Path) -> set[str]:
    parts = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        parts |= {name.split(".")[1] for name in names if name.startswith("graphcal.") and name.count(".") >= 1}
    return parts - {"__version__"}


def part_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    part, imports = part_of(path), imported_parts(path)
    if part != "cli":
        assert "cli" not in imports
    if part in ALLOWED:
        assert imports <= ALLOWED[part] | {part}, f"{part} may import {sorted(ALLOWED[part])}"


def test_matplotlib_is_known_only_to_the_drawing_modules():
    for path in MODULES:
        if "matplotlib" in path.read_text(encoding="utf-8") and not part_of(path).startswith("plots"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
            assert not any("matplotlib" in ast.unparse(n) for n in imports), path


def test_importing_the_command_line_does_not_import_torch():
    code = (
        "import sys, graphcal.cli; sys.exit(any(m in sys.modules for m in ('torch', 'matplotlib', 'scipy', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_exist():
    for name in graphcal.__all__:
        assert getattr(graphcal, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        graphcal.nonsense  # noqa: B018


def test_no_public_name_is_shadowed_by_a_module_of_the_same_name():
    """Importing graphcal.x sets the attribute x of the package: it would replace a function x."""
    modules = {p.stem for p in ROOT.glob("*.py")} | {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert not modules & set(graphcal.__all__)


def test_the_package_is_typed():
    assert (ROOT / "py.typed").exists()
