"""Every link inside a built site leads somewhere: to a file of the site, and to a heading of it where one is named.

    python tools/check_links.py site

Prints each dead link with the page it stands on, and ends with 1 if there are any. Addresses elsewhere are not fetched.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links of a page and the names that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if value and key in ("href", "src"):
                self.links.append(value)
            elif value and key in ("id", "name"):
                self.names.add(value)


@cache
def page_of(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def target_of(link: str, page: Path, site: Path) -> Path:
    """The file that a link of ``page`` names."""
    path = unquote(urlsplit(link).path)
    target = page if not path else site / path.lstrip("/") if path.startswith("/") else page.parent / path
    return target / "index.html" if target.is_dir() else target


def dead_links(site: Path) -> list[str]:
    """``page: link`` for each link to a file or a heading that does not exist."""
    dead = []
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":  # served at any address: its links are absolute ones of the server
            continue
        for link in page_of(page).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = target_of(link, page, site)
            named = unquote(parts.fragment)
            if not target.exists() or (named and target.suffix == ".html" and named not in page_of(target).names):
                dead.append(f"{page.relative_to(site)}: {link}")
    return dead


def main() -> None:
    dead = dead_links(Path(sys.argv[1]))
    print(*dead, sep="\n", end="\n" if dead else "")
    sys.exit(bool(dead))


if __name__ == "__main__":
    main()
