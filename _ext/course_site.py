"""The course's Sphinx extension: what the theme and well-kept extensions leave undone.

`_config.yml` loads this module alone; it sets up the others of this folder. Each has one job and
says in its docstring why that job has to be done here.
"""

PARTS = ()  # the modules of this folder that are extensions themselves


def setup(app):
    """Set up the parts, then the mending of written pages."""
    for part in PARTS:
        app.setup_extension(part)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
