"""Every python block in the README and the docs runs; the blocks of one page share a namespace."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES_WITH_CODE = [p for p in PAGES if BLOCK.search(p.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda p: p.name)
def test_code_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    if "GRAPHCAL_DATA" in "".join(BLOCK.findall(text)) and not os.environ.get("GRAPHCAL_DATA"):
        pytest.skip("this page's code reads real graphs: set GRAPHCAL_DATA")
    namespace: dict = {"__name__": "docs"}
    for match in BLOCK.finditer(text):
        line = text[: match.start()].count("\n") + 2
        code = "\n" * (line - 1) + match.group(1)
        exec(compile(code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
