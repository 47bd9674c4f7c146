"""Blocks as Markdown."""

from __future__ import annotations

from graphcal.lab.bench.document import (
    Command,
    Drawing,
    Footnotes,
    Grid,
    Heading,
    Notes,
    Paragraph,
    Text,
    markdown,
)

NOTES = Footnotes()
BLOCKS = [
    Heading(1, "A < B"),
    Paragraph((Text("Text "), Text("it", "italic"), Text(" "), Text("b", "bold"), Text(" `c`."))),
    Drawing("A figure", "a.svg", '<?xml version="1.0"?><svg>drawn</svg>'),
    Grid(
        ["a", "b"],
        [
            [Text("<i>x</i>"), Text("1", "bold", NOTES.refer(["first", "second"]), ("floor 2", "paper < 3"))],
            [Text("y"), Text("–", "", NOTES.refer(["second"]))],
        ],
    ),
    Command("graphcal bench <x>"),
    Notes(NOTES.lines),
]


def test_markdown() -> None:
    assert markdown(BLOCKS) == (
        "# A < B\n\n"
        "Text *it* **b** `c`.\n\n"
        "![A figure](a.svg)\n\n"
        "| a | b |\n| --- | ---: |\n"
        "| <i>x</i> | **1**<sup>1,2</sup><br><sub>floor 2<br>paper < 3</sub> |\n"
        "| y | –<sup>2</sup> |\n\n"
        "    graphcal bench <x>\n\n"
        "1. first\n2. second\n"
    )
