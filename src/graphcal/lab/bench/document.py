"""A document of a few kinds of blocks, and its two forms: Markdown, and one HTML file that loads nothing and prints well."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from graphcal.pages import with_policy

MARKS = {"": "", "bold": "**", "italic": "*"}
TAGS = {"": "", "bold": "b", "italic": "i"}


@dataclass(frozen=True)
class Text:
    """A piece of a paragraph or a cell of a grid: its words, the notes they refer to, and small lines below."""

    words: str
    style: str = ""  # bold, italic
    notes: tuple[int, ...] = ()
    small: tuple[str, ...] = ()


@dataclass(frozen=True)
class Heading:
    level: int
    words: str


@dataclass(frozen=True)
class Paragraph:
    pieces: tuple[Text, ...]


@dataclass(frozen=True)
class Grid:
    header: Sequence[str]
    body: Sequence[Sequence[Text]]
    words: Collection[int] = (0,)  # columns of words; the others are numbers


@dataclass(frozen=True)
class Notes:
    """Numbered from 1."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Command:
    words: str


@dataclass(frozen=True)
class Drawing:
    """A figure: Markdown names its file, HTML holds it."""

    title: str
    file: str
    svg: str


Block = Heading | Paragraph | Grid | Notes | Command | Drawing


def paragraph(words: str) -> Paragraph:
    return Paragraph((Text(words),))


def cells(words: Iterable[str]) -> list[Text]:
    return [Text(word) for word in words]


class Footnotes:
    """Notes in the order in which they are first referred to."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def refer(self, lines: Iterable[str]) -> tuple[int, ...]:
        """The numbers of these notes."""
        numbers = []
        for line in lines:
            if line not in self.lines:
                self.lines.append(line)
            numbers.append(self.lines.index(line) + 1)
        return tuple(numbers)


# --------------------------------------------------------------------------------------------------------------- Markdown


def markdown(blocks: Iterable[Block]) -> str:
    return "\n\n".join(_markdown_block(block) for block in blocks) + "\n"


def _markdown_block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.words}"
    if isinstance(block, Paragraph):
        return "".join(map(_markdown_text, block.pieces))
    if isinstance(block, Notes):
        return "\n".join(f"{number}. {line}" for number, line in enumerate(block.lines, 1))
    if isinstance(block, Command):
        return f"    {block.words}"
    if isinstance(block, Drawing):
        return f"![{block.title}]({block.file})"
    rule = ["---" if column in block.words else "---:" for column in range(len(block.header))]
    rows = [block.header, rule, *([_markdown_text(text) for text in row] for row in block.body)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _markdown_text(text: Text) -> str:
    mark = MARKS[text.style]
    return f"{mark}{text.words}{mark}{_below(text.notes, text.small)}"


def _below(notes: Sequence[int], small: Sequence[str]) -> str:
    """Notes and small lines: Markdown has none of its own and takes HTML's."""
    raised = f"<sup>{','.join(map(str, notes))}</sup>" if notes else ""
    return raised + (f"<br><sub>{'<br>'.join(small)}</sub>" if small else "")


# ------------------------------------------------------------------------------------------------------------------- HTML


def html(title: str, blocks: Iterable[Block]) -> str:
    style = (resources.files("graphcal.lab.bench") / "page.css").read_text(encoding="utf-8")
    body = "\n".join(_html_block(block) for block in blocks)
    return with_policy(
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>\n{style}</style></head>\n'
        f"<body><main>\n{body}\n</main></body>\n</html>\n"
    )


def _html_block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{_words(block.words)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p>{''.join(map(_html_text, block.pieces))}</p>"
    if isinstance(block, Notes):
        return f"<ol>{''.join(f'<li>{_words(line)}</li>' for line in block.lines)}</ol>"
    if isinstance(block, Command):
        return f"<pre>{escape(block.words)}</pre>"
    if isinstance(block, Drawing):
        return f"<figure>{block.svg[block.svg.index('<svg') :]}</figure>"
    kinds = ["" if column in block.words else " class=number" for column in range(len(block.header))]
    head = "".join(f"<th{kind}>{_words(title)}</th>" for kind, title in zip(kinds, block.header))
    rows = ["".join(f"<td{kind}>{_html_text(text)}</td>" for kind, text in zip(kinds, row)) for row in block.body]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"


def _html_text(text: Text) -> str:
    words, tag = _words(text.words), TAGS[text.style]
    below = _below(text.notes, [_words(line) for line in text.small])
    return f"<{tag}>{words}</{tag}>{below}" if tag else words + below


def _words(text: str) -> str:
    """Text with its `code`."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text, quote=False))
