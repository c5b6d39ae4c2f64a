"""The figure to explore in chapter 2: the break-even map with its intervals and predictions."""

import altair as alt
import pandas as pd

from labsupport.explore import DASH, LOG, LOG2, Figure, choice, level, look, tooltips

ENDS = {"ratio": "", "low": "_low", "high": "_high", "predicted": "_predicted"}
TASK = (
    "Points are measured, with their intervals; dashed lines are predicted. The plain line is "
    "where reuse breaks even. Choose the number of tokens and the path; point at a point."
)


def breakeven_map(cells: pd.DataFrame) -> Figure:
    """Time of a reusing path over time of full, over the width; `cells` is `breakeven.table`."""
    numbers = [path + end for path in ("frozen", "rehash") for end in ENDS.values()]
    path = choice("path", "Path", {"frozen": "frozen", "rehash": "rehash"})
    tokens = choice("n", "Tokens", {f"{n}": int(n) for n in cells["tokens"].unique()})
    shares = look("share", cells["share"])
    base = (
        alt.Chart()
        .transform_filter("datum.tokens == n")
        .transform_calculate(**{name: f"datum[path + '{end}']" for name, end in ENDS.items()})
        .encode(
            x=alt.X("width:Q", title="width (log scale)", scale=LOG2),
            color=shares["color"],
            tooltip=tooltips(
                tokens_I="tokens", share_N="share", width_I="width", ratio_Q="time / time of full",
                low_Q="from", high_Q="to", predicted_Q="predicted",
            ),
        )
    )  # fmt: skip
    y = alt.Y("ratio:Q", title="time / time of full (log scale)", scale=LOG)
    chart = alt.layer(
        level(1),
        base.mark_line(strokeDash=DASH, strokeWidth=1).encode(y="predicted:Q"),
        base.mark_rule(strokeWidth=3).encode(y="low:Q", y2="high:Q"),
        base.mark_point().encode(y=y, shape=shares["shape"]),
    )
    labels = {"tokens": "tokens", "share": "share", "width": "width"}
    return Figure(
        name="map",
        data=cells[[*labels, *numbers]],
        chart=chart.add_params(path, tokens),
        labels=labels | {name: name.replace("_", ", ") for name in numbers},
        label="Time with reuse over time without it, by width, tokens and share reused",
        task=TASK,
    )
