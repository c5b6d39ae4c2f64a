"""The page that the web server shows, at any depth, where there is none: 404.html.

Its addresses must begin at the site's root, which lies below a path of its own.
sphinx-notfound-page writes them so, but then the mends of `course_site` do not find the files that
they name. Here the page is written like any other, and its addresses are completed after the mends.
"""

from pathlib import Path
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup

PAGE = "404"
BODY = """\
<section id="page-not-found">
<h1>There is no page at this address</h1>
<p>It may have moved, or the link that you followed has a mistake in it.</p>
<form action="search.html" method="get" class="not-found-search">
<label for="not-found-q">Search the course</label>
<input type="search" id="not-found-q" name="q" autocomplete="off">
<button type="submit" class="btn btn-primary">Search</button>
</form>
<p>Or begin at <a href="index.html">the first page</a>. If a page of the course led you here,
please <a href="{issues}">tell us which</a>.</p>
</section>
"""


def page(app) -> list:
    """The page, for Sphinx to write with the theme around it."""
    repository = app.config.html_theme_options.get("repository_url", "").rstrip("/")
    body = BODY.format(issues=f"{repository}/issues")
    return [(PAGE, {"title": "Page not found", "body": body}, "page.html")]


def complete(html: str, root: str) -> str:
    """A page at the site's root with each relative address written from `root`, "/path/"."""
    soup = BeautifulSoup(html, "html.parser")
    soup.html["data-content_root"] = root  # where the search script begins
    for name in ("href", "src", "action"):
        for tag in soup.find_all(attrs={name: True}):
            if not tag[name].startswith("#"):
                tag[name] = urljoin(root, tag[name])
    for script in soup.find_all("script", string=True):  # what is fetched after the page is shown
        script.string = script.string.replace('"_static/', f'"{root}_static/')
    return soup.decode(formatter="html5")


def finish(app, exception) -> None:
    """Complete the written page's addresses."""
    file = Path(app.outdir) / f"{PAGE}.html"
    if exception is None and file.is_file():
        root = urlsplit(app.config.html_baseurl).path or "/"
        text = complete(file.read_text(encoding="utf-8"), root)
        file.write_text(text, encoding="utf-8", newline="\n")


def setup(app):
    """Write the page; complete it after `course_site` has mended it."""
    app.connect("html-collect-pages", page)
    app.connect("build-finished", finish, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
