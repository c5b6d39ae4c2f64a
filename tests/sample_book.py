"""A book of two lessons, each with modules of its own, for the tests of the build."""

LESSON = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  name: python3
  display_name: Python 3
---

# A lesson

Some text.

```{code-cell} ipython3
%s
```
"""

BOOK = {
    "_toc.yml": "format: jb-book\nroot: index\nchapters:\n"
    "  - file: chapters/one\n  - file: chapters/two\n",
    "_config.yml": "title: Tiny\nonly_build_toc_files: true\n"
    "execute:\n  execute_notebooks: cache\n  raise_on_error: true\n"
    "launch_buttons:\n  binderhub_url: https://mybinder.org\n"
    "repository:\n  url: https://github.com/price-of-remembering/tiny\n",
    "requirements.txt": "numpy\n",
    "index.md": "# Tiny\n",
    "_static/tiny.css": "p {}\n",
    "chapters/one.md": LESSON % "from labsupport import top\nprint(top.VALUE)",
    "chapters/two.md": LESSON % "import labsupport.other\nprint('two')",
    "labsupport/__init__.py": "STYLE = 'course.mplstyle'\n",
    "labsupport/top.py": "from labsupport.middle import VALUE\n",
    "labsupport/middle.py": "def f():\n    from . import deep\n\nVALUE = 1\n",
    "labsupport/deep.py": "RUN = 'run-a'\n",
    "labsupport/other.py": "",
    "labsupport/unused.py": "",
    "labsupport/__main__.py": "",
    "labsupport/course.mplstyle": "lines.linewidth: 2\n",
    "labsupport/README.md": "top, middle, other\n",
    "evidence/run-a/raw.csv": "1\n",
    "evidence/run-b/raw.csv": "1\n",
}


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
