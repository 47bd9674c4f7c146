"""Tables of Markdown pages, read back."""

from __future__ import annotations

import re
from pathlib import Path


def tables(path: Path, below: str = "") -> list[list[dict[str, str]]]:
    """Every table of a Markdown page below a heading, as rows of heading -> text."""
    text = path.read_text(encoding="utf-8")
    text = text.partition(below)[2] if below else text
    rows: list[list[dict[str, str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.strip().split("\n")]
        if len(lines) > 2:
            once = [k for k, name in enumerate(lines[0]) if name not in lines[0][:k]]  # of a heading twice, the first
            rows.append([{lines[0][k]: line[k] for k in once} for line in lines[2:]])
    return rows
