"""A rocket on pages of text, too: it starts the course on Binder, at the first chapter.

The theme gives launch buttons to notebooks alone, where they open that very notebook. From the
home page or the glossary a reader would have to find a chapter before.
"""

from pathlib import Path

from sphinx_external_toc.parsing import parse_toc_yaml

AFTER_THE_THEME = 502  # it adds its own buttons at 501


def first_chapter(app):
    """The first page of `_toc.yml` that is a chapter; StopIteration if there is none."""
    pages = parse_toc_yaml(Path(app.srcdir) / "_toc.yml")
    return next(doc for doc in pages if doc.startswith("chapters/"))


def binder_address(app, doc):
    """Where Binder opens the source of `doc` in JupyterLab, as the theme's own links do."""
    options = app.config.html_theme_options
    slug = options["repository_url"].removeprefix("https://github.com/")
    binder, branch = options["launch_buttons"]["binderhub_url"], options["repository_branch"]
    path = Path(app.env.doc2path(doc)).relative_to(app.srcdir).as_posix()
    return f"{binder}/v2/gh/{slug}/{branch}?urlpath=lab/tree/{path}"


def add_launch_button(app, pagename, templatename, context, doctree):
    """Put the theme's group of launch buttons before the others of a page that has none."""
    buttons = context["header_buttons"]
    launched = any(button.get("label") == "launch-buttons" for button in buttons)
    if launched or pagename not in app.env.found_docs:
        return
    binder = {
        "type": "link",
        "text": "Binder",
        "tooltip": "Start the course on Binder",
        "icon": "_static/images/logo_binder.svg",
        "url": binder_address(app, first_chapter(app)),
    }
    group = {
        "type": "group",
        "tooltip": "Launch interactive content",
        "icon": "fas fa-rocket",
        "label": "launch-buttons",
        "buttons": [binder],
    }
    buttons.insert(0, group)


def setup(app):
    """Add the button when a page's template is filled."""
    app.connect("html-page-context", add_launch_button, priority=AFTER_THE_THEME)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
