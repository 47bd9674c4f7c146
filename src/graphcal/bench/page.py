"""The table and its figure as one HTML file: nothing is loaded from anywhere, light and dark, prints well."""

from __future__ import annotations

from html import escape
from importlib import resources

from graphcal.bench.markdown import markdown
from graphcal.bench.tables import Table


def page(table: Table, figure: str | None) -> str:
    """The whole file. ``figure`` is SVG text."""
    style = (resources.files("graphcal.bench") / "page.css").read_text(encoding="utf-8")
    drawing = f"<figure>{figure[figure.index('<svg') :]}</figure>" if figure else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{escape(table.preset.title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>\n{style}</style></head>\n'
        f"<body><main>\n{from_markdown(markdown(table), drawing)}</main></body>\n</html>\n"
    )


def from_markdown(text: str, drawing: str) -> str:
    """Our own Markdown as HTML: headings, tables, numbered notes, paragraphs. The drawing follows the first paragraph."""
    blocks, shown = [], False
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        if lines[0].startswith("#"):
            level = len(lines[0]) - len(lines[0].lstrip("#"))
            blocks.append(f"<h{level}>{_inline(lines[0].lstrip('# '))}</h{level}>")
        elif lines[0].startswith("|"):
            blocks.append(_table(lines))
        elif lines[0].startswith("1. "):
            notes = "".join(f"<li>{_inline(line.partition('. ')[2])}</li>" for line in lines)
            blocks.append(f"<ol>{notes}</ol>")
        else:
            blocks.append(f"<p>{_inline(' '.join(lines))}</p>")
            if not shown:
                blocks.append(drawing)
                shown = True
    return "\n".join(blocks) + "\n"


def _table(lines: list[str]) -> str:
    header, rule, *body = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    right = [cell.endswith(":") for cell in rule]

    def row(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(
            f"<{tag}{' class=number' if n else ''}>{_inline(c)}</{tag}>" for c, n in zip(cells, right)
        ) + "</tr>"  # fmt: skip

    rows = "\n".join(row(cells, "td") for cells in body)
    return f"<div class=wide><table><thead>{row(header, 'th')}</thead>\n<tbody>{rows}</tbody></table></div>"


TAGS = ("sub", "/sub", "sup", "/sup", "br")


def _inline(text: str) -> str:
    """Bold, italic, code; the tags our Markdown uses stay tags, everything else is text."""
    text = escape(text, quote=False)
    for tag in TAGS:
        text = text.replace(f"&lt;{tag}&gt;", f"<{tag}>")
    for mark, tag in (("**", "b"), ("*", "i"), ("`", "code")):
        parts = text.split(mark)
        if len(parts) % 2:  # marks come in pairs
            text = "".join(part if k % 2 == 0 else f"<{tag}>{part}</{tag}>" for k, part in enumerate(parts))
    return text
