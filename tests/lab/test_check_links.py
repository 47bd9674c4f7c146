"""The checker of links finds what is dead and nothing else. `make docs` runs it on the whole site."""

from __future__ import annotations

from check_links import dead_links


def test_files_and_headings_that_do_not_exist_are_found(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a b.png").write_bytes(b"")
    (tmp_path / "deep" / "index.html").write_text('<h2 id="here">x</h2><a href="../#top">up</a><a href="../gone.html">')
    (tmp_path / "index.html").write_text(
        '<p id="top"><a href="deep/#here">1</a><a href="deep/#not">2</a><a href="#top">3</a><img src="a%20b.png">'
        '<a href="https://example.org/none">4</a><a href="/deep/">5</a><img src="none.png">'
    )
    assert dead_links(tmp_path) == ["deep/index.html: ../gone.html", "index.html: deep/#not", "index.html: none.png"]
