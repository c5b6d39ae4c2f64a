"""The server of the tests and the benchmark answers as the web host of the book would."""

import gzip
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from serving import serve


@pytest.fixture
def book(tmp_path):
    folder = tmp_path / "book"
    (folder / "chapters").mkdir(parents=True)
    (folder / "index.html").write_text("<p>home</p>", encoding="utf-8")
    (folder / "404.html").write_text("<p>not here</p>", encoding="utf-8")
    (folder / "chapters" / "dot.png").write_bytes(b"\x89PNG")
    (tmp_path / "secret.txt").write_text("outside", encoding="utf-8")
    with serve(folder, "/course/") as address:
        yield address


def ask(address, encoding="gzip", method="GET"):
    return urlopen(Request(address, headers={"Accept-Encoding": encoding}, method=method))


def test_text_goes_out_compressed_and_images_as_they_are(book):
    page = ask(f"{book}/index.html")
    assert page.headers["Content-Encoding"] == "gzip"
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "max-age" in page.headers["Cache-Control"]
    assert gzip.decompress(page.read()) == b"<p>home</p>"
    image = ask(f"{book}/chapters/dot.png")
    assert (image.headers["Content-Encoding"], image.read()) == (None, b"\x89PNG")
    assert ask(f"{book}/index.html", encoding="identity").read() == b"<p>home</p>"


def test_a_folder_answers_with_its_index_and_head_without_a_body(book):
    assert ask(f"{book}/", encoding="identity").read() == b"<p>home</p>"
    head = ask(f"{book}/index.html", encoding="identity", method="HEAD")
    assert (head.headers["Content-Length"], head.read()) == ("11", b"")


@pytest.mark.parametrize(
    "path",
    ["/course/none.html", "/index.html", "/course/../secret.txt", "/course/%2e%2e/secret.txt"],
)
def test_what_is_not_there_or_outside_answers_404_with_the_books_page(book, path):
    root = book.removesuffix("/course")
    with pytest.raises(HTTPError) as refused:
        ask(root + path, encoding="identity")
    assert refused.value.code == 404
    assert refused.value.read() == b"<p>not here</p>"
