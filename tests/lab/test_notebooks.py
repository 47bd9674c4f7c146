"""Scripts, notebooks and pages of the examples say the same. That the scripts run: test_examples.py."""

from __future__ import annotations

import json

import nbformat
import pytest
from build_notebooks import NOTEBOOKS, ROOT, cells_of, executed, notebook_of, page_of, scripts

SCRIPTS = scripts()
LARGEST = 150_000  # bytes of a notebook


def committed(script):
    return json.loads((NOTEBOOKS / f"{script.stem}.ipynb").read_text(encoding="utf-8"))


def test_every_notebook_has_its_script():
    assert {p.stem for p in NOTEBOOKS.glob("*.ipynb")} == {script.stem for script in SCRIPTS}
    assert len(SCRIPTS) >= 6


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_the_notebook_is_the_script(script):
    """Where this fails: python tools/build_notebooks.py NAME."""
    path, notebook = NOTEBOOKS / f"{script.stem}.ipynb", committed(script)
    cells = cells_of(script.read_text(encoding="utf-8"))
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]] == cells
    nbformat.validate(notebook)
    assert path.stat().st_size < LARGEST
    printing = [cell for cell in notebook["cells"] if "print(" in "".join(cell["source"]) and cell.get("outputs")]
    assert printing, "the notebook was not run"
    assert not any(out["output_type"] == "error" for cell in printing for out in cell["outputs"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_the_page_is_the_notebook(script):
    page, pictures = page_of(script.stem, committed(script))
    assert (NOTEBOOKS / f"{script.stem}.md").read_text(encoding="utf-8") == page
    for name, content in pictures.items():
        assert (NOTEBOOKS / name).read_bytes() == content
    assert f"notebooks/{script.stem}.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_cells_are_run_in_order_and_keep_what_they_print_and_draw(tmp_path):
    text = "# %% [markdown]\n# # Title\n#\n# Words.\n\n"
    script = text + "# %%\nimport matplotlib.pyplot as plt\nx = 2\n\n# %%\nprint(x + 1)\nplt.plot([x])\n"
    cells = cells_of(script)
    assert cells[0] == ("markdown", "# Title\n\nWords.")
    notebook = notebook_of(cells, executed(cells, str(tmp_path)))
    first, last = notebook["cells"][1:]
    assert first["outputs"] == []
    assert last["outputs"][0]["text"] == ["3"]
    nbformat.validate(notebook)
    page, pictures = page_of("name", notebook)
    assert list(pictures) == ["name-1.png"]
    assert pictures["name-1.png"].startswith(b"\x89PNG")
    assert "# Title\n\n[Notebook](name.ipynb)" in page
