"""What the site has beyond docs/: the committed results, under results/, so that links to them hold on the site as on disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
SHOWN = (".md", ".svg", ".csv")


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
