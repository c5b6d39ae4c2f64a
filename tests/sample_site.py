"""A small site with the course's pages about itself: one lesson, the status page, a third page.

Sphinx builds it directly with the extensions that the tests are about, in a few seconds.
"""

import os
import shutil
import subprocess
import sys

from repository import ROOT, read
from sample_book import LESSON, write

CONF = """
extensions = ["myst_nb", "sphinx_external_toc", "sphinx_design", "head", "not_found", "status"]
html_baseurl = "https://example.org/tiny/"
html_theme = "sphinx_book_theme"
html_theme_options = {
    "repository_url": "https://github.com/tiny/tiny/",
    "repository_branch": "trunk",
}
html_use_index = False
project = "Tiny"
html_title = "Tiny"
language = "en"
myst_enable_extensions = ["colon_fence", "dollarmath"]
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
external_toc_path = "_toc.yml"
exclude_patterns = ["_build", "evidence"]

"""

FRONT = "---\nmyst:\n  html_meta:\n    description: %s\n---\n\n"
FILES = {
    "_toc.yml": "format: jb-book\nroot: index\nchapters:\n"
    "  - file: chapters/one\n  - file: pages/status\n",
    "index.md": FRONT % "'A tiny book: \"yes\" & no.'" + "# Tiny\n\n$$x = \\frac12$$\n",
    "chapters/one.md": LESSON % "print(1)",
    "requirements.txt": "numpy==0.1   # an older one\nsphinx==7.4.7 # the builder\n",
}


def make(root):
    """Write the site's sources below `root`."""
    write(root, {**FILES, "conf.py": CONF, "pages/status.md": read("pages/status.md")})
    shutil.copytree(ROOT / "evidence" / "warm-slower", root / "evidence" / "warm-slower")
    shutil.copytree(ROOT / "evidence" / "cost-source", root / "evidence" / "cost-source")


def build(root):
    """Build it; returns the folder of its pages. Any warning fails, but those of the labels that
    the status page takes from other pages of the course."""
    path = os.pathsep.join([str(ROOT / "_ext"), str(ROOT)])
    html = root / "_build" / "html"
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(root), str(html)]
    command += ["-W", "-D", "suppress_warnings=myst.xref_missing,myst.iref_missing,config.cache"]
    done = subprocess.run(
        [*command, "-d", str(root / "_build" / ".doctrees")],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": path, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return html
