"""The figure to explore in chapter 4: fourteen models' caches beside their weights."""

import altair as alt
import pandas as pd

from labsupport import sharing
from labsupport.explore import DASH, LOG, Figure, choice, level, look, slider, tooltips

LENGTHS = [2**power for power in range(7, 21)]
TASK = (
    "A marker stands at the longest sequence that the makers state; dashes go on beyond it. The "
    "plain line is where a cache weighs what the weights do. Choose the bits of a weight, a "
    "number of sequences, and one model or all; point at a marker."
)
# What is held, from a row of `sizes` and a number of tokens
HELD = "datum.always * datum.tokens + datum.windowed * min(datum.tokens, datum.window)"


def sizes(cards: dict) -> pd.DataFrame:
    """What the figure's arithmetic needs of each card, in bytes at two bytes a number.

    always, windowed: what a token leaves in the layers without and with a window; window: the most
    tokens that the latter keep, 0 for none; seen: the same in words; weights: all of them;
    context: in tokens.
    """
    rows = []
    for card in cards.values():
        shape = card.shape("float16")
        kind = "latent" if card.latent_dim else sharing.name(card.n_heads, card.n_kv_heads)
        always = shape.bytes_per_token_at(card.window or 0)  # all windows are full by then
        row = {"model": card.name, "kind": kind, "always": always}
        row |= {"windowed": shape.bytes_per_token - always, "window": card.window or 0}
        row["seen"] = f"{card.window:,}" if card.window else "none"
        rows.append(row | {"weights": card.weight_bytes("float16"), "context": card.context})
    return pd.DataFrame(rows)


def caches(cards: dict) -> Figure:
    """Each model's cache over the length, in GB or over its weights; `cards`: name -> Card."""
    unit = choice("unit", "Show", {"cache / weights": "ratio", "cache, GB": "gigabytes"})
    bits = choice("bits", "A weight has", {f"{n} bits": n for n in (16, 8, 4)})
    only = choice("only", "Model", {"all": ""} | {name: name for name in cards})
    sequences = slider("sequences", "Sequences", 1, 64)
    data = sizes(cards)
    kinds = look("kind", data["kind"])
    base = alt.Chart().encode(
        x=alt.X("tokens:Q", title="tokens of a sequence (log scale)", scale=LOG),
        y=alt.Y("y:Q", title="cache / weights, or GB (log scale)", scale=LOG),
        color=kinds["color"],
        detail="model:N",
        tooltip=tooltips(
            model_N="model", kind_N="heads", tokens_I="tokens", gigabytes_Q="cache, GB",
            ratio_Q="cache / weights", context_I="context",
        ),
    )  # fmt: skip
    base = base.transform_filter("only == '' || only == datum.model")

    def weighed(chart):
        """With the cache's size, once `tokens` is known."""
        chart = chart.transform_calculate(gigabytes=f"({HELD}) * sequences / 1e9")
        ratio = "datum.gigabytes * 1e9 / (datum.weights * bits / 16)"
        return chart.transform_calculate(ratio=ratio).transform_calculate(y="datum[unit]")

    lines = weighed(base.transform_calculate(tokens=f"{LENGTHS}").transform_flatten(["tokens"]))
    ends = weighed(base.transform_calculate(tokens="datum.context"))
    visible = alt.expr("unit == 'ratio' ? 1 : 0")
    chart = alt.layer(
        level(1, opacity=visible),
        lines.transform_filter("datum.tokens <= datum.context").mark_line(strokeWidth=2),
        lines.transform_filter("datum.tokens >= datum.context").mark_line(
            strokeWidth=1, strokeDash=DASH
        ),
        ends.mark_point().encode(shape=kinds["shape"]),
    )
    labels = {
        "model": "model", "kind": "heads", "always": "bytes a token, no window",
        "windowed": "bytes a token, windowed", "seen": "window (tokens)",
        "weights": "bytes of weights", "context": "context (tokens)",
    }  # fmt: skip
    return Figure(
        name="caches",
        data=data,
        chart=chart.add_params(unit, bits, only, sequences),
        labels=labels,
        label="The caches of fourteen models over the length, and as shares of their weights",
        task=TASK,
    )
