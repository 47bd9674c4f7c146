"""Fail on names in src that say nothing about what they hold."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

VAGUE = {"found", "known", "own", "said", "chosen", "asked", "place"}


def vague_names(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and name of each assignment, argument and attribute in ``VAGUE``."""
    names = []
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name) if name in VAGUE:
                names.append((node.lineno, name))
    return sorted(names)


def main(folder: Path) -> int:
    lines = [
        f"{file}:{line}: rename {name!r} to what it holds"
        for file in sorted(folder.rglob("*.py"))
        for line, name in vague_names(ast.parse(file.read_text(encoding="utf-8")))
    ]
    print("\n".join(lines), end="\n" if lines else "")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "src")))
