"""Every row of a claims table can be linked to, and leads to the same claim on the other page.

`labsupport.ledger` writes the tables as a notebook can show them, where the site's pages do not
exist: in a chapter a claim's id leads to its own row. On the site it leads to the ledger's row, as
the ledger's leads to the chapter's. And as headings and figures have it from the theme, each row
gets a link to itself, which names the claim.

Headings and figures have their links from the theme. A heading without a letter, as a version's in
the changelog, would get an anchor that counts ("id1") and moves when another comes before it; here
it gets one from its figures. So does a heading that repeats another; a third one has to be counted.
"""

import re

from bs4 import BeautifulSoup
from docutils import nodes

LEDGER = "ledger"
NUMBERED = re.compile(r"id\d+")


def link_rows(table, address: str) -> None:
    """Complete the rows of a claims table; `address` is that of the ledger's page, "" on itself."""
    for row in table.tbody.find_all("tr"):
        link = row.th.a
        anchor = f"claim-{link.get_text()}"
        row["id"] = anchor
        if address:
            link["href"] = f"{address}#{anchor}"
        own = BeautifulSoup(
            f' <a class="claim-link" href="#{anchor}"><span aria-hidden="true">#</span>'
            f'<span class="visually-hidden">Link to the row of {link.get_text()}</span></a>',
            "html.parser",
        )
        row.th.append(own)


def link_claims(app, doctree, docname):
    """Complete every claims table of a page that is about to be written."""
    for node in list(doctree.findall(nodes.raw)):
        if node.get("format") == "html" and "class='claims'" in node.astext():
            soup = BeautifulSoup(node.astext(), "html.parser")
            at_ledger = docname == LEDGER
            address = "" if at_ledger else app.builder.get_relative_uri(docname, LEDGER)
            for table in soup.find_all("table", class_="claims"):
                link_rows(table, address)
            node.replace_self(nodes.raw("", str(soup), format="html"))


def name_sections(app, doctree):
    """Name the sections of a page that was read whose anchors would count."""
    taken = set(doctree.ids)
    for section in doctree.findall(nodes.section):
        anchor = nodes.make_id(f"section-{section[0].astext()}")
        if NUMBERED.fullmatch(section["ids"][0]) and anchor not in taken:
            section["ids"][0] = anchor
            taken.add(anchor)


def setup(app):
    """Connect both steps; sections are named before tables of contents are made of them."""
    app.connect("doctree-read", name_sections, priority=100)
    app.connect("doctree-resolved", link_claims)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
