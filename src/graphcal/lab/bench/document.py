"""Blocks of a page (headings, paragraphs, grids, notes, figures), written as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

MARKS = {"": "", "bold": "**", "italic": "*"}


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
    """A figure and the file it is written to."""

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
