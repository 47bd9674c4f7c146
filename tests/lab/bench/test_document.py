"""One document, two forms."""

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
    html,
    markdown,
    paragraph,
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


def test_html_is_text_where_we_have_no_tag() -> None:
    page = html("A < B", BLOCKS)
    assert "<title>A &lt; B</title>" in page
    assert "<h1>A &lt; B</h1>" in page
    assert "<p>Text <i>it</i> <b>b</b> <code>c</code>.</p>" in page
    assert "<td>&lt;i&gt;x&lt;/i&gt;</td>" in page
    assert "<td class=number><b>1</b><sup>1,2</sup><br><sub>floor 2<br>paper &lt; 3</sub></td>" in page
    assert "<figure><svg>drawn</svg></figure>" in page
    assert "<pre>graphcal bench &lt;x&gt;</pre>" in page
    assert "<ol><li>first</li><li>second</li></ol>" in page


def test_html_loads_nothing() -> None:
    page = html("T", [paragraph("words")])
    assert not any(word in page for word in ("http:", "https:", "src=", "@import", "<script"))
