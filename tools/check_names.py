"""Fail on names that say nothing about what they hold, and on docstrings in src that start with a question word."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FOLDERS = ("src", "tests", "benchmarks", "tools", "examples")
VAGUE = {"found", "known", "own", "said", "chosen", "asked", "place"}
QUESTIONS = ("What ", "How ", "Where ", "Whether ", "Which ", "Why ", "Who ", "When ")


def vague_names(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and name of each assignment, argument and attribute in ``VAGUE``."""
    names = []
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name) if name in VAGUE:
                names.append((node.lineno, name))
    return sorted(names)


def questions(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and first word of each docstring that starts with a word of ``QUESTIONS``."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [
        (node.body[0].lineno, ast.get_docstring(node) or "")
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body
    ]
    return sorted((line, text.split()[0]) for line, text in texts if text.startswith(QUESTIONS))


def main(root: Path) -> int:
    lines = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            lines += [f"{file}:{line}: rename {name!r} to what it holds" for line, name in vague_names(tree)]
            if folder == "src":
                lines += [f"{file}:{line}: start with a verb or a noun, not {word!r}" for line, word in questions(tree)]
    print("\n".join(lines), end="\n" if lines else "")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
