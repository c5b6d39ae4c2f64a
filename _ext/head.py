"""What a page says of itself to search engines and to those who link to it.

sphinxext-opengraph writes the Open Graph tags, sphinx-sitemap the site map, and Sphinx the
canonical links. What they need to know follows from the site's address, which `_config.yml` names
once. Four things have to be added:

- opengraph describes a page by its first lines, formulas in LaTeX included: here it gets the
  page's own description, and the image that `cards` draws.
- sphinx-sitemap lists the pages of this build alone, search and index among them; after an edit of
  one page that is one page. It gets all pages of the book.
- A page that nobody should find (search, say) asks not to be listed and has no canonical link.
- robots.txt names the site map.

The 404 page has its own module, `not_found`.
"""

import html
from pathlib import Path
from queue import SimpleQueue

import cards
from docutils import nodes

EXTENSIONS = ("sphinxext.opengraph", "sphinx_sitemap")
UNLISTED = {"404", "search"}


def configure(app, config) -> None:
    """Tell the extensions the site's address, its name and the images' size."""
    config.ogp_site_url = config.html_baseurl
    config.ogp_site_name = config.html_title
    config.ogp_custom_meta_tags = [
        f'<meta property="og:image:width" content="{cards.WIDTH}" />',
        f'<meta property="og:image:height" content="{cards.HEIGHT}" />',
        '<meta name="twitter:card" content="summary_large_image" />',
    ]
    config.sitemap_url_scheme = "{link}"


def description(doctree) -> str:
    """The description in a page's front matter; empty if there is none."""
    found = [
        meta["content"] for meta in doctree.findall(nodes.meta) if meta.get("name") == "description"
    ]
    return " ".join(found[0].split()) if found else ""


def describe(app, pagename, templatename, context, doctree) -> None:
    """Give opengraph a page's description and image; ask search engines not to list some."""
    if pagename in UNLISTED:
        unlisted = '<meta name="robots" content="noindex">'
        context["metatags"] = f"{context.get('metatags', '')}\n{unlisted}"
        context["pageurl"] = None
    if doctree is None:
        return
    said, title = description(doctree), doctree_title(doctree)
    site_name = app.config.ogp_site_name
    tags = {"og:image": cards.draw(Path(app.outdir), pagename, site_name, title, said)}
    if said:
        tags["og:description"] = html.escape(said)
        tags["og:image:alt"] = html.escape(f"{title}. {said}")
    context["meta"] = (context["meta"] or {}) | tags


def doctree_title(doctree) -> str:
    """A page's title as plain text."""
    return next(iter(doctree.findall(nodes.title))).astext()


def list_all_pages(app, exception) -> None:
    """Have the site map list every page of the book, in their order in it."""
    links = SimpleQueue()
    for doc in dict.fromkeys(app.config.external_site_map):
        links.put((app.builder.get_target_uri(doc), None))
    app.sitemap_links = links


def write_robots(app, exception) -> None:
    """Everything may be read; the site map is here."""
    if exception is None:
        text = f"User-agent: *\nAllow: /\n\nSitemap: {app.config.html_baseurl}sitemap.xml\n"
        (Path(app.outdir) / "robots.txt").write_text(text, encoding="utf-8", newline="\n")


def setup(app):
    """Load the two extensions, tell them what they need, add what they lack."""
    for extension in EXTENSIONS:
        app.setup_extension(extension)
    app.connect("config-inited", configure, priority=900)
    app.connect("html-page-context", describe, priority=400)
    app.connect("build-finished", list_all_pages, priority=400)  # before the site map is written
    app.connect("build-finished", write_robots)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
