"""The check on names in src reports vague assignments, arguments and attributes."""

import ast

import pytest
from check_names import questions, vague_names


@pytest.mark.parametrize("code", ["found = 1", "def f(own): ...", "x.place", "for said in y: ...", "self.known = 2"])
def test_vague_name_is_reported(code):
    assert len(vague_names(ast.parse(code))) == 1


@pytest.mark.parametrize("code", ["f(found)", "{'known': 1}", "owner = 1", "def chosen(): ..."])
def test_reads_keys_and_longer_names_pass(code):
    assert vague_names(ast.parse(code)) == []


@pytest.mark.parametrize(
    ("summary", "count"), [("What it holds.", 1), ("How far.", 1), ("Whatever.", 0), ("Return x.", 0)]
)
def test_question_word_is_reported(summary, count):
    assert len(questions(ast.parse(f'def f():\n    """{summary}"""'))) == count
