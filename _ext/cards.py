"""The image that is shown where somebody shares a page: the logo's rows, the title, a description.

opengraph's own cards know no SVG logo, show formulas as LaTeX and cannot have our ground. This one
is drawn with matplotlib and its own font, once a text: its name holds a digest of what is on it.
"""

import hashlib
import textwrap
from pathlib import Path

WIDTH, HEIGHT = 1200, 630
DPI = 100
FOLDER = "_images/cards"
GROUND, ROWS, LAST, WHITE = "#0b3954", "#bfd7ea", "#ff9f1c", "#ffffff"  # the logo's colours
EDITION = "1"  # counted up when the look changes, so that old images are not kept


def wrapped(title: str, description: str) -> tuple[str, float, str]:
    """Title and description in lines that fit, and the title's size in points."""
    size, lines = next(
        (size, lines)
        for size, wide, most in ((48, 25, 2), (40, 30, 2), (32, 38, 9))
        if len(lines := textwrap.wrap(title, wide)) <= most
    )
    told = textwrap.wrap(description, 58, max_lines=4, placeholder=" …")
    return "\n".join(lines), size, "\n".join(told)


def logo(axes, left: float, top: float, size: float) -> None:
    """The four rows of _static/logo.svg, each longer than the last; `size` is its width."""
    from matplotlib.patches import FancyBboxPatch

    unit = size / 64
    for i, (width, colour) in enumerate(zip((12, 24, 36, 48), [ROWS] * 3 + [LAST], strict=True)):
        corner = (left + 8 * unit, top - (16 + 12 * i) * unit)
        style = f"round,pad=0,rounding_size={unit}"
        axes.add_patch(
            FancyBboxPatch(
                corner, width * unit, 8 * unit, boxstyle=style, facecolor=colour, edgecolor="none"
            )
        )


def draw(site: Path, page: str, site_name: str, title: str, description: str) -> str:
    """Write the image of a page unless it is there already; returns its name below `site`."""
    said = "\0".join((EDITION, site_name, title, description)).encode()
    name = f"{FOLDER}/{page.replace('/', '-')}-{hashlib.sha256(said).hexdigest()[:8]}.png"
    if not (site / name).is_file():
        # Not above: it takes a second to load, and most builds draw nothing.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        (site / name).parent.mkdir(parents=True, exist_ok=True)
        figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor=GROUND)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))
        axes.set_axis_off()
        lines, size, told = wrapped(title, description)
        font = {"family": "DejaVu Sans", "ha": "left", "parse_math": False}
        logo(axes, 63, 600, 150)
        if title != site_name:
            axes.text(240, 515, site_name, size=24, color=ROWS, va="center", **font)
        axes.text(82, 415, lines, size=size, color=WHITE, weight="bold", va="top", **font)
        axes.text(82, 60, told, size=23, color=ROWS, va="bottom", linespacing=1.4, **font)
        figure.savefig(site / name, metadata={"Software": None}, facecolor=GROUND)
    return name
