"""Pages that did not change, and yet have to be written again.

After an edit Sphinx writes the edited page, and those that hold the contents of the book. A book
that was built before then differs from one that is built from nothing, in two ways that are mended
here:

- Where a heading, its anchor or a label changes, other pages keep the old words in their sidebars
  and their links. A link that leads nowhere now passes unseen, since its warning comes when its own
  page is written. So all pages are written.
- The index for the search keeps the entries of the pages that are written and loses all others: an
  entry of the glossary is found no more. So pages with such entries are written at each build.
"""


def outline(env) -> list:
    """What pages say of each other: contents with their anchors, and labels."""
    contents = {doc: toc.pformat() for doc, toc in env.tocs.items()}
    labels = env.get_domain("std")
    return [contents, dict(labels.labels), dict(labels.anonlabels)]


def renew(app, env) -> list[str]:
    """The pages to write again: all, or those with entries in the index."""
    before, env.book_outline = getattr(env, "book_outline", None), outline(env)
    if env.book_outline != before:
        return sorted(env.found_docs)
    return [doc for doc, entries in env.get_domain("index").entries.items() if entries]


def setup(app):
    """Choose the pages once all are read."""
    app.connect("env-updated", renew)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
