"""The figure to explore in chapter 3: what each loop collects over length and width."""

from itertools import product

import altair as alt
import pandas as pd

from labsupport.explore import DASH, LOG, LOG2, Figure, choice, look, tooltips

ENDS = {"measured": "", "low": "_low", "high": "_high", "predicted": "_predicted"}
TASK = (
    "Points are measured, with their intervals; dashed lines are predicted, the plain one is the "
    "bound. Choose what to go along, what to show, and one loop or all; point at a point."
)


def by_path(cells: pd.DataFrame, paths: list[str]) -> pd.DataFrame:
    """The speed-ups of `cells`, a row a path and cell: measured, low, high, predicted, and bound.

    `cells` is `sweep.table` with a column `bound`, the largest share that the machine allows.
    """
    rows = []
    for path, (_, cell) in product(paths, cells.iterrows()):
        row = {"path": path, "width": cell["d_model"], "tokens": cell["n_tokens"]}
        row |= {name: cell[path + end] for name, end in ENDS.items()}
        bound = cell["bound"] * cell["arithmetic"]
        rows.append(row | {"bound": bound, "arithmetic": cell["arithmetic"]})
    return pd.DataFrame(rows)


def collected(cells: pd.DataFrame, paths: list[str]) -> Figure:
    """Share or speed-up of each path, over the length at width 128 or the width at 256 tokens."""
    along = {"length, at width 128": "tokens", "width, at 256 tokens": "width"}
    along = choice("along", "Along the", along)
    unit = choice("unit", "Show", {"collected share, %": "share", "speed-up": "speedup"})
    only = choice("only", "Loop", {"all": ""} | {path: path for path in paths})
    scale = "(unit == 'share' ? 100 / datum.arithmetic : 1)"
    names = [*ENDS, "bound"]
    base = (
        alt.Chart()
        .transform_filter("along == 'tokens' ? datum.width == 128 : datum.tokens == 256")
        .transform_filter("only == '' || only == datum.path")
        .transform_calculate(
            x="datum[along]", **{f"the_{name}": f"datum.{name} * {scale}" for name in names}
        )
        .encode(
            x=alt.X("x:Q", title="tokens or width, as chosen (log scale)", scale=LOG2),
            tooltip=tooltips(
                path_N="loop", width_I="width", tokens_I="tokens", the_measured_Q="measured",
                the_low_Q="from", the_high_Q="to", the_predicted_Q="predicted", the_bound_Q="bound",
            ),
        )
    )  # fmt: skip
    y = alt.Y("the_measured:Q", title="share (%) or speed-up (log scale)", scale=LOG)
    loops = look("path", paths)
    colored = base.encode(color=loops["color"])
    chart = alt.layer(
        base.mark_line().encode(y="the_bound:Q", detail="path:N"),
        colored.mark_line(strokeDash=DASH, strokeWidth=1).encode(y="the_predicted:Q"),
        colored.mark_rule(strokeWidth=3).encode(y="the_low:Q", y2="the_high:Q"),
        colored.mark_point().encode(y=y, shape=loops["shape"]),
    )
    columns = ["path", "width", "tokens", *names, "arithmetic"]
    return Figure(
        name="sweep",
        data=by_path(cells, paths),
        chart=chart.add_params(along, unit, only),
        labels={name: name for name in columns} | {"path": "loop"},
        label="Speed-up of each loop with a cache in each cell of the sweep, with the bound",
        task=TASK,
    )
