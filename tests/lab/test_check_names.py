"""The check on names reports vague assignments, arguments and attributes."""

import ast

import pytest
from check_names import main, questions, vague_names


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


@pytest.mark.parametrize(("folder", "status"), [("src", 1), ("tests", 0)])
def test_docstrings_are_checked_in_src_alone(tmp_path, folder, status):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "page.py").write_text('"""What it holds."""\n')
    assert main(tmp_path) == status


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "tools", "examples"])
def test_names_are_checked_in_every_folder(tmp_path, folder):
    (tmp_path / folder / "part").mkdir(parents=True)
    (tmp_path / folder / "part" / "page.py").write_text("found = 1\n")
    assert main(tmp_path) == 1
