"""Figures that a reader explores in the page itself: no kernel, no network.

A `Figure` is a data frame and an Altair chart of it. In the book it is a folded block with a
sentence on what to try, a table of the very same rows, for whoever cannot use the chart, and the
chart as Vega-Lite; `_ext/static/explore.js` draws it when a reader opens the block. JupyterLab
draws it at once: its own Vega does that.
"""

import json
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import altair as alt
import pandas as pd
from IPython.display import display
from matplotlib import rc_params_from_file

LAB = "application/vnd.vegalite.v5+json"  # the newest kind that JupyterLab draws without a network
LAB_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
LAB_WIDTH = 620  # pixels; in the book a chart is as wide as its column
MOST_ROWS = 100  # a longer table is nothing that a reader could use in the chart's place
MOST_BYTES = 60_000
DASH = [5, 4]  # of lines that are no measurement
LOG = alt.Scale(type="log", nice=False, padding=12)
LOG2 = alt.Scale(type="log", base=2, nice=False, padding=12)
DIGITS = 4  # significant digits of numbers that are no integers, in the chart and in the table


@dataclass(frozen=True)
class Figure:
    """One figure to explore; ValueError if it is too large for a page.

    name    part of its ids, unique in its page: lower-case words joined by hyphens
    data    a row a mark or so, its numbers rounded to DIGITS
    chart   an Altair chart without data of its own; it gets `data`
    labels  column -> its heading in the table; other columns stay out of the table
    label   what the chart shows, in a sentence, for whoever hears it
    task    what to try, in a sentence or three
    """

    name: str
    data: pd.DataFrame
    chart: alt.TopLevelMixin
    labels: dict[str, str]
    label: str
    task: str
    spec: dict = field(init=False, repr=False)

    def __post_init__(self):
        if len(self.data) > MOST_ROWS:
            raise ValueError(f"{self.name} has {len(self.data)} rows, but {MOST_ROWS} at most fit")
        object.__setattr__(self, "data", rounded(self.data))  # the one way, in a frozen dataclass
        whole = self.chart.properties(
            data=self.data, width="container", height=300, description=self.label
        )
        spec = whole.configure(**theme()).to_dict()  # which compares it with Vega-Lite's schema
        object.__setattr__(self, "spec", spec)
        size = len(self.html().encode())
        if size > MOST_BYTES:
            raise ValueError(f"{self.name} takes {size} bytes, but {MOST_BYTES} at most fit")

    def __repr__(self) -> str:
        return f"{self.label} ({len(self.data)} rows; drawn in the page and in JupyterLab.)"

    def _ipython_display_(self) -> None:
        # Two outputs, since JupyterLab prefers HTML to its own chart where it can choose. The book
        # does not know the first kind, and leaves it out.
        chart = self.spec | {"$schema": LAB_SCHEMA, "width": LAB_WIDTH}
        display({LAB: chart}, raw=True)
        display({"text/html": self.html(), "text/plain": repr(self)}, raw=True)

    def html(self) -> str:
        """The folded block of the book."""
        name, label = escape(self.name), escape(self.label)
        return f"""<details class="explore" id="explore-{name}">
<summary>Explore these points</summary>
<p>{escape(self.task)}</p>
<div class="explore-chart"></div>
<div class="explore-choices"></div>
<p class="explore-status" role="status"></p>
<div class="explore-table" tabindex="0" role="region" aria-label="Table: {label}">
{self.table()}
</div>
<script type="application/json">{inert(self.spec)}</script>
</details>"""

    def table(self) -> str:
        """The rows as an HTML table, with the headings of `labels`."""
        shown = self.data[list(self.labels)]
        words = [not pd.api.types.is_numeric_dtype(kind) for kind in shown.dtypes]
        kinds = [' class="words"' if word else "" for word in words]
        heads = "".join(
            f'<th scope="col"{kind}>{escape(heading)}</th>'
            for kind, heading in zip(kinds, self.labels.values(), strict=True)
        )
        rows = [
            "<tr>"
            + "".join(
                f"<td{kind}>{escape(text(value))}</td>"
                for kind, value in zip(kinds, row, strict=True)
            )
            + "</tr>"
            for row in shown.itertuples(index=False)
        ]
        body = "\n".join(rows)
        return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def rounded(data: pd.DataFrame) -> pd.DataFrame:
    """The same table with floating numbers of DIGITS significant digits."""
    shown = data.reset_index(drop=True)
    for name in shown.select_dtypes("floating"):
        shown[name] = [float(f"{value:.{DIGITS}g}") for value in shown[name]]
    return shown


def text(value) -> str:
    """A value as a table shows it: numbers with a comma each three digits, nothing for none."""
    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:,.10f}".rstrip("0").rstrip(".")
    return value if isinstance(value, str) else f"{value:,}"


def inert(spec: dict) -> str:
    """JSON that cannot end the script element which holds it, the same bytes for the same chart."""
    return json.dumps(spec, separators=(",", ":")).replace("<", "\\u003c")


def choice(name: str, label: str, options: dict) -> alt.Parameter:
    """A drop-down list: words -> the value that they stand for; the first is chosen at first."""
    values = list(options.values())
    bound = alt.binding_select(options=values, labels=list(options), name=label)
    return alt.param(name=name, value=values[0], bind=bound)


def slider(name: str, label: str, low: int, high: int) -> alt.Parameter:
    """A whole number to slide, `low` at first."""
    bound = alt.binding_range(min=low, max=high, step=1, name=label)
    return alt.param(name=name, value=low, bind=bound)


def look(column: str, values) -> dict:
    """Colour and shape that tell `values` apart, in their order, in one legend."""
    scale = alt.Scale(domain=list(dict.fromkeys(values)))
    return {
        "color": alt.Color(f"{column}:N", scale=scale),
        "shape": alt.Shape(f"{column}:N", scale=scale),
    }


def level(y: float, **mark) -> alt.Chart:
    """A line across the chart at `y`, in the colour of text; it has nothing to tell."""
    one = alt.Chart(alt.InlineData([{}]))
    return one.mark_rule(aria=False, **mark).encode(y=alt.datum(y))


def tooltips(**titles: str) -> list[alt.Tooltip]:
    """What a mark tells under the pointer: column=title.

    The column's last letter, after "_", is N for words, I for integers, Q for other numbers, which
    are told with DIGITS digits.
    """
    kinds = {
        "N": {"type": "nominal"},
        "I": {"type": "quantitative", "format": ",d"},
        "Q": {"type": "quantitative", "format": f",.{DIGITS}~r"},
    }
    columns = {name.rsplit("_", 1)[0]: kinds[name[-1]] for name in titles}
    return [
        alt.Tooltip(field=column, title=title, **kind)
        for (column, kind), title in zip(columns.items(), titles.values(), strict=True)
    ]


def theme() -> dict:
    """The house style of the still figures, for a chart; the page adds its font and colours."""
    style = Path(__file__).with_name("house.mplstyle")
    look = rc_params_from_file(style, use_default_template=False)
    return {
        "range": {"category": look["axes.prop_cycle"].by_key()["color"]},
        "axis": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "tickCount": 6,
        },
        "legend": {"labelFontSize": 12, "title": None, "orient": "top"},
        "point": {"filled": True, "opacity": 1, "size": 70},
        "view": {"stroke": None},
        "line": {"color": "black"},
    }
