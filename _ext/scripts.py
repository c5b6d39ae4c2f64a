"""Which scripts a page loads, and when: after it has been shown.

The theme puts some twenty scripts into the head of each page, the search index and an icon library
of 1.5 MB among them. On a phone they cost seconds before the first word appears, though no word
needs them. Here what pages use is joined into a few bundles, each small enough that it blocks
nothing for long, and a few lines at the page's end fetch them once the page stands.
"""

import json
from pathlib import Path

# Our own, files of _ext/static, are joined as well.
OURS = ("reach.js", "quiz.js", "explore.js", "sections.js")
OWN_BUNDLE = "course.js"

# Bundle -> the files below _static that it joins, in order.
BUNDLES = {
    "sphinx.js": ("documentation_options.js", "doctools.js", "sphinx_highlight.js"),
    "search.js": ("searchtools.js", "language_data.js"),  # on the search page alone
    "copy.js": ("clipboard.min.js", "copybutton.js"),
    "menus.js": ("scripts/bootstrap.js",),
    "theme.js": ("scripts/sphinx-book-theme.js", "scripts/pydata-sphinx-theme.js"),
}

# The theme measures every block of code, which lays out the whole page; static/reach.js does it so
# that nothing is laid out before its time.
MEASURES_ALL = '"complete"===document.readyState?I():window.addEventListener("load",I)'

# What the joined files say -> what they shall say. Each must occur, or the theme has changed.
REPLACED = {
    # After a search its words are marked in the article, and not in the menus.
    "sphinx.js": {'querySelectorAll("div.body")': 'querySelectorAll(".bd-article")'},
    "search.js": {
        # Search shows the words of the article, without those of the buttons above it.
        '[role="main"]': ".bd-article",
        # And without those of code, which begins with imports, and of links to where they stand.
        '[".headerlink", ': '[".headerlink", ".claim-link", ".cell_input", ',
        # A term is shown apart from its meaning, and a table's cell from the next one: they follow
        # each other without a space in the page.
        "parseFromString(htmlString,": (
            r'parseFromString(htmlString.replace(/<\/(dt|td|th)>/g, "$& "),'
        ),
        # "constructor" is no word of the index, but each object of JavaScript has one of its own.
        "files: terms[word]": "files: Object.hasOwn(terms, word) ? terms[word] : undefined",
        "files: titleTerms[word]": (
            "files: Object.hasOwn(titleTerms, word) ? titleTerms[word] : undefined"
        ),
    },
    "theme.js": {
        MEASURES_ALL: "void 0",
        "t.blur()": "void 0",  # a switch that is pressed by key keeps the focus
    },
}

# Before anything is drawn: the colours that the reader chose, or those of the device. Storage may
# be refused. Without scripts the page stays light.
COLOURS = """
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  let mode = "auto";
  try { mode = localStorage.getItem("mode") || mode; } catch {}
  root.dataset.mode = mode;
  root.dataset.theme = mode === "auto" ? (dark ? "dark" : "light") : mode;
})();
"""

# Once the page stands: one bundle after the other, each in a task of its own. What the reader
# clicks before is kept for our own scripts, which come last.
LOADER = """
window.earlyClicks = [];
const keep = ({ target }) => earlyClicks.push(target);
addEventListener("click", keep);
addEventListener("load", async () => {
  for (const src of SOURCES) {
    await new Promise((done) => {
      const script = document.createElement("script");
      script.src = src;
      script.onload = script.onerror = done;
      document.body.append(script);
    });
    await new Promise((done) => setTimeout(done));
  }
  removeEventListener("click", keep);
  document.documentElement.dataset.scripts = "run";
});
"""


def keeps(script) -> bool:
    """Whether a script of the page stays as it is: data, and what a lesson's cell brought."""
    return script.get("type") == "application/json" or script.find_parent(class_="cell_output")


def sources(page: Path, site: Path) -> list[str]:
    """The addresses that a page fetches once it stands, in order, relative to the page."""
    root = "../" * len(page.relative_to(site).parents[1:])
    search = page.name == "search.html"
    names = [f"_static/course/{name}" for name in BUNDLES if search or name != "search.js"]
    if search:
        names.insert(2, "searchindex.js")
    return [root + name for name in [*names, f"_static/course/{OWN_BUNDLE}"]]


def put_off(soup, page: Path, site: Path) -> None:
    """Replace the page's scripts by two of a few lines: colours at once, the others later."""
    for script in soup.find_all("script"):
        if not keeps(script):
            script.decompose()
    for link in soup.select('link[rel="preload"]'):
        link.decompose()

    early, late = soup.new_tag("script"), soup.new_tag("script")
    early.string = COLOURS
    late.string = LOADER.replace("SOURCES", json.dumps(sources(page, site)))
    soup.head.meta.insert_after(early)  # after the encoding, before any style
    soup.body.append(late)
    soup.html["data-theme"] = "light"


def write(site: Path, own: Path) -> None:
    """Write the bundles, and our own scripts from the folder `own`, to `_static/course`."""
    static = site / "_static"
    course = static / "course"
    course.mkdir(exist_ok=True)
    for bundle, names in BUNDLES.items():
        texts = [(static / name).read_text(encoding="utf-8") for name in names]
        joined = "\n;\n".join(map(without_source_map, texts)) + "\n"
        for old, new in REPLACED.get(bundle, {}).items():
            if old not in joined:
                raise ValueError(f"{bundle}: no {old} in {', '.join(names)}; see _ext/scripts.py")
            joined = joined.replace(old, new)
        (course / bundle).write_text(joined, encoding="utf-8", newline="\n")
    texts = [(own / name).read_text(encoding="utf-8") for name in OURS]
    (course / OWN_BUNDLE).write_text("\n".join(texts), encoding="utf-8", newline="\n")


def without_source_map(text: str) -> str:
    """A script without the line that points to its map, which is not there."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.startswith("//# sourceMappingURL="))
