"""Notebooks and pages of the examples, from one source: examples/*.py, scripts whose cells begin with ``# %%``.

    python tools/build_notebooks.py               run every example, write docs/notebooks/*.ipynb, *.md and their pictures
    python tools/build_notebooks.py rare_class    only this one

A cell of a script is a cell of the notebook; ``# %% [markdown]`` cells are text. What a cell prints and draws is kept with it.
tests/test_notebooks.py holds that scripts, notebooks and pages say the same.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
import tempfile
import textwrap
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
NOTEBOOKS = ROOT / "docs" / "notebooks"
MARK = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)
FRONT = "---\nhide: [toc]\n---\n\n"  # room for code instead of a table of contents
WIDTH = 110  # of what is printed, on a page


class Cell(NamedTuple):
    kind: str  # "markdown" or "code"
    source: str


def scripts() -> list[Path]:
    """The examples that are written in cells."""
    return [path for path in sorted(EXAMPLES.glob("*.py")) if path.read_text(encoding="utf-8").startswith("# %%")]


def cells_of(script: str) -> list[Cell]:
    """A script cut at its marks; text loses its comment signs."""
    _, *parts = MARK.split(script)
    cells = [Cell("markdown" if mark else "code", text.strip("\n")) for mark, text in zip(parts[::2], parts[1::2])]
    return [cell if cell.kind == "code" else Cell("markdown", uncommented(cell.source)) for cell in cells]


def uncommented(text: str) -> str:
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.split("\n"))


def executed(cells: list[Cell], folder: str) -> list[list[dict[str, Any]]]:
    """The outputs of each cell, run in order in ``folder``: what is printed, and figures as PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    module = ModuleType("example")
    sys.modules["example"] = module  # dataclasses look their module up
    before = os.getcwd()
    os.chdir(folder)
    try:
        outputs = []
        for number, cell in enumerate(cells):
            if cell.kind == "code":
                printed = io.StringIO()
                with redirect_stdout(printed):
                    exec(compile(cell.source, f"cell {number}", "exec"), module.__dict__)
                figures = [drawn(pyplot.figure(n)) for n in pyplot.get_fignums()]
                pyplot.close("all")
                outputs.append(as_outputs(printed.getvalue(), figures))
            else:
                outputs.append([])
        return outputs
    finally:
        os.chdir(before)


def drawn(figure: Any) -> str:
    """A figure as base64 of a small PNG."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100, metadata={"Software": None})
    return base64.b64encode(picture.getvalue()).decode()


def as_outputs(printed: str, figures: list[str]) -> list[dict[str, Any]]:
    text = "\n".join(line.rstrip() for line in printed.split("\n")).rstrip("\n")
    streams = [{"name": "stdout", "output_type": "stream", "text": lines_of(text)}] if text else []
    data = [{"image/png": png, "text/plain": ["a figure"]} for png in figures]
    return streams + [{"data": one, "metadata": {}, "output_type": "display_data"} for one in data]


def notebook_of(cells: list[Cell], outputs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The document, format 4.5."""
    made = []
    count = 0
    for number, (cell, shown) in enumerate(zip(cells, outputs)):
        entry: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}}
        if cell.kind == "code":
            count += 1
            entry |= {"execution_count": count, "outputs": shown}
        made.append({**entry, "source": lines_of(cell.source)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def lines_of(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def page_of(name: str, notebook: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """The notebook as Markdown for the site, and the pictures it shows by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            if "text" in output:
                parts.append(f"```text\n{wrapped(''.join(output['text']))}\n```")
            else:
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode(output["data"]["image/png"])
                parts.append(f"![What the cell draws]({file})")
    source = f"[Notebook]({name}.ipynb){{: download }} · script: `examples/{name}.py`"
    title, _, text = parts[0].partition("\n\n")
    return FRONT + "\n\n".join([title, source, text, *parts[1:]]) + "\n", pictures


def wrapped(text: str) -> str:
    """Sentences longer than a page is wide are broken at spaces."""
    return "\n".join("\n".join(textwrap.wrap(line, WIDTH)) if len(line) > WIDTH else line for line in text.split("\n"))


def write(script: Path) -> None:
    """Run one example and write its notebook, page and pictures."""
    cells = cells_of(script.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        notebook = notebook_of(cells, executed(cells, folder))
    NOTEBOOKS.mkdir(exist_ok=True)
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    (NOTEBOOKS / f"{script.stem}.ipynb").write_text(text, encoding="utf-8")
    page, pictures = page_of(script.stem, notebook)
    (NOTEBOOKS / f"{script.stem}.md").write_text(page, encoding="utf-8")
    for file, content in pictures.items():
        (NOTEBOOKS / file).write_bytes(content)


def main() -> None:
    wanted = sys.argv[1:]
    for script in scripts():
        if not wanted or script.stem in wanted:
            write(script)
            print(script.stem)


if __name__ == "__main__":
    main()
