"""Quoted result tables are those of results/."""

import pytest
from build_quotes import QUOTES, ROOT, with_quotes

PAGES = sorted({page for page, _ in QUOTES})


@pytest.mark.parametrize("page", PAGES)
def test_building_quotes_changes_nothing(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert with_quotes(page, text) == text, "run python tools/build_quotes.py"


@pytest.mark.parametrize("page", PAGES)
def test_an_edited_number_is_replaced(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    start = text.index("<!-- quote ")
    end = text.index("<!-- /quote -->")
    edited = text[:start] + text[start:end].replace("4", "5") + text[end:]
    assert edited != text
    assert with_quotes(page, edited) == text
