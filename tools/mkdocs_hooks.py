"""Add the committed results to the site, and show examples of docstrings as code.

Results are copied under results/, so that links to them work on the site and on disk.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
SHOWN = (".md", ".svg", ".csv")


class DoctestBlocks(Preprocessor):
    """Lines from ``>>>`` to the next empty line become a block of code."""

    def run(self, lines: list[str]) -> list[str]:
        shown: list[str] = []
        inside = False
        for line in [*lines, ""]:
            if line.lstrip().startswith(">>>") and not inside:
                shown += ["", "```pycon"]
                inside = True
            elif inside and not line.strip():
                shown.append("```")
                inside = False
            shown.append(line.lstrip() if inside and line.lstrip().startswith((">>>", "...")) else line)
        return shown


class DoctestExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(DoctestBlocks(md), "doctest_blocks", priority=40)  # before fences are read


def on_config(config: Any) -> Any:
    config.markdown_extensions.append(DoctestExtension())
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add every committed result as a page or a file of the site."""
    for path in sorted((ROOT / "results").iterdir()):
        if path.suffix in SHOWN:
            name = "index.md" if path.name == "README.md" else path.name
            files.append(File.generated(config, f"results/{name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links that leave docs/ on disk stay inside the site."""
    up = "../" * page.file.src_uri.count("/")
    if page.file.src_uri.startswith("results/"):
        return re.sub(r"\]\(\.\./docs/", "](../", markdown.replace("](README.md", "](index.md"))
    markdown = re.sub(r"\]\((?:\.\./)+results/README\.md", f"]({up}results/index.md", markdown)
    return re.sub(r"\]\((?:\.\./)+results/", f"]({up}results/", markdown)
