"""Writes the library that draws the figures to explore: _static/course/vega.js of the built site.

Vega, Vega-Lite and Vega-Embed in one file come from vl_convert, without a network. The file is no
part of _static/ of the sources, since Jupyter Book would add it to every page;
`_ext/static/explore.js` asks for it when a reader opens a figure. It is made again only when a
version changes: its head names them.

A figure to explore has two outputs, one of them for JupyterLab. MyST-NB does not know that kind,
rightly leaves it out, and warns. As warnings are errors here, those of that kind are switched off.
"""

from importlib.metadata import version

import vl_convert

BANNER = """\
/*! Vega {vega}, Vega-Lite {lite} and Vega-Embed {embed} in one file, made by vl-convert {made_by}.
 * Copyright (c) 2015-2023, University of Washington Interactive Data Lab. BSD-3-Clause licence:
 * https://github.com/vega/vega/blob/main/LICENSE */
"""


def banner():
    """The head of the file: which versions are in it, and by what licence."""
    return BANNER.format(
        vega=vl_convert.get_vega_version(),
        lite=vl_convert.get_vegalite_versions()[-1],
        embed=vl_convert.get_vega_embed_version(),
        made_by=version("vl-convert-python"),
    )


def write_library(folder):
    """Write vega.js into `folder` unless it is there, of these versions; returns its path."""
    path, head = folder / "vega.js", banner()
    if not (path.is_file() and path.read_text(encoding="utf-8").startswith(head)):
        folder.mkdir(parents=True, exist_ok=True)
        # In a function, since the bundle's own names would be global otherwise.
        code = f"{head}(() => {{{vl_convert.javascript_bundle()}}})();\n"
        path.write_text(code, encoding="utf-8", newline="\n")
    return path


def on_config(app, config):
    """Let a cell have an output of a kind that MyST-NB does not know."""
    config.suppress_warnings = [*config.suppress_warnings, "mystnb.unknown_mime_type"]


def on_finished(app, exception):
    """Complete a site that was built."""
    if exception is None and app.builder.format == "html":
        write_library(app.outdir / "_static" / "course")


def setup(app):
    app.connect("config-inited", on_config)
    app.connect("build-finished", on_finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
