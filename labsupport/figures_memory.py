"""The figures of chapter 4, in the house style of `figures`; each function takes data and draws."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from labsupport.figures import COLD, GAP, GOOD, LAYER, TOKEN, WARM
from labsupport.figures_costs import ABOVE
from labsupport.figures_derivation import LOOKS, log_axis, told_apart

KiB = 2**10
NEAR = 0.001  # nats: up to here the axis of added losses is linear
KINDS = {  # of what a store's memory holds: (name, colour)
    "tokens": ("tokens", GOOD),
    "reserved": ("reserved, used later", TOKEN),
    "internal": ("reserved, never used", WARM),
    "external": ("given to nobody", GAP),
}


def storage(held: pd.DataFrame, peak: pd.DataFrame, formula: pd.Series) -> plt.Figure:
    """Bytes of caches filled to each length, at the end and at the most; a panel a policy.

    held, peak  a row a number of tokens, a column a policy; bytes. formula [n_tokens] likewise
    """
    wide = {"color": "#BBBBBB", "lw": 5, "solid_capstyle": "round"}  # so that it shows beneath

    fig, axes = plt.subplots(1, held.shape[1], figsize=(7.2, 3.1), sharey=True, squeeze=False)
    for ax, policy in zip(axes[0], held.columns, strict=True):
        ax.plot(formula.index, formula / KiB, label="formula", **wide)
        ax.plot(held.index, held[policy] / KiB, "-o", color=COLD, ms=3, label="held")
        ax.plot(peak.index, peak[policy] / KiB, "--", color=WARM, label="peak")
        ax.set(title=policy, xlabel="tokens")
    axes[0, 0].set_ylabel("memory (KiB)")
    axes[0, 0].set_ylim(bottom=0)
    handles, names = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, names, ncol=3, loc="outside upper center")
    return fig


def outweighs(ratios: pd.DataFrame, contexts: dict) -> plt.Figure:
    """The cache over its model's weights, over the length; both axes log, dotted past the context.

    ratios    a row a number of tokens, a column a model
    contexts  model -> (the longest sequence that its makers state, the ratio there)
    """
    fig, ax = plt.subplots(figsize=(7.2, 4.2))
    shades = [*(look for look in LOOKS), (LAYER, "P"), ("#777777", "X"), ("#1F4E79", "*")]
    for name, (color, marker) in told_apart(ratios.columns, shades):
        n, end = ratios.index, contexts[name]
        inside = ratios[name][n < end[0]]
        ax.plot([*inside.index, end[0]], [*inside, end[1]], color=color, lw=1.6)
        ax.plot([end[0], *n[n > end[0]]], [end[1], *ratios[name][n > end[0]]], ":", color=color)
        ax.plot(*end, marker, color=color, ms=7, label=name)
    ax.axhline(1, color="black", ls="--", lw=1)
    log_axis(ax, "x", [100, 1000, 10_000, 100_000, 1_000_000])
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set(yscale="log", xlabel="tokens (log scale)", ylabel="cache / weights (log scale)")
    ax.set_ylim(1e-4, 30)
    ax.legend(ncol=3, **ABOVE)
    return fig


def shared_heads(losses: pd.DataFrame, times: pd.DataFrame) -> plt.Figure:
    """What shared heads cost in loss, seed by seed, and give in time of a step.

    losses  a row a seed, a column a kind: held-out loss less that of multi-head, same seed
    times   `sharedtimes.step_times`: ratio, low, high, bytes and multiplications by kind
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.4))
    for i, kind in enumerate(losses):
        left.plot(np.full(len(losses), i), losses[kind], "o", color=COLD, alpha=0.7)
        left.plot([i - 0.2, i + 0.2], [losses[kind].mean()] * 2, color="black", lw=1.6)
    left.axhline(0, color="#777777", lw=1)
    left.set_xticks(range(losses.shape[1]), _broken(losses.columns))
    left.set(ylabel="held-out loss less multi-head's\n(nats a character)")
    left.set_xlim(-0.6, losses.shape[1] - 0.4)
    left.margins(y=0.2)

    at = np.arange(len(times))
    reach = [times["ratio"] - times["low"], times["high"] - times["ratio"]]
    right.errorbar(at, times["ratio"], reach, fmt="o", color=COLD, capsize=3, label="measured")
    right.plot(at, times["bytes"], "_", color=WARM, ms=18, mew=2, label="bytes read")
    right.plot(at, times["multiplications"], "_", color="black", ms=18, mew=2, label="products")
    right.set_xticks(at, _broken(times.index))
    right.set(ylabel="step, over multi-head's", xlim=(-0.5, len(at) - 0.5))
    finite = times["high"][np.isfinite(times["high"])]  # few rounds bound nothing
    right.set_ylim(0, max(1.1, 1.05 * finite.max()))
    right.legend(loc="lower left")
    return fig


def _broken(names):
    """The names on two lines, so that they fit beside each other."""
    return [name.replace("-", "-\n") for name in names]


def bits(single: pd.DataFrame, together: pd.DataFrame) -> plt.Figure:
    """What fewer bits of keys and values add to the loss, by layout, with intervals.

    single, together  rows of `quantloss.of_cache`, fed singly and at once; where the interval holds
    0, the mark is hollow. The axis is linear near 0, so that both signs can be seen, and log beyond
    """
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 3.8), sharey=True)
    for ax, title, rows in zip(
        axes, ("fed singly", "fed at once"), (single, together), strict=True
    ):
        layouts = list(rows.groupby(["keys", "values"], sort=False))
        for i, ((keys, values), (color, marker)) in enumerate(
            told_apart([name for name, _ in layouts], LOOKS)
        ):
            part = layouts[i][1]
            x = part["bits"] + 0.12 * (i - (len(layouts) - 1) / 2)  # so that none hides another
            told = part["verdict"] != "cannot tell"
            ax.plot(x, part["more"], "-", color=color, lw=1)
            for which, face in ((told, color), (~told, "white")):
                ax.plot(x[which], part["more"][which], marker, color=color, mfc=face)
            ax.vlines(x, part["low"], part["high"], color=color, lw=1)
            ax.plot([], [], f"-{marker}", color=color, label=f"keys by {keys}, values by {values}")
        ax.axhline(0, color="#777777", lw=1)
        ax.set_yscale("symlog", linthresh=NEAR, linscale=0.6)
        ax.set(title=title, xlabel="bits a number", xticks=sorted(set(rows["bits"])))
        ax.yaxis.set_major_formatter("{x:g}")
    axes[0].set_ylabel(f"added loss (nats a character,\nlog scale above {NEAR:g})")
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, ncol=2, loc="outside upper center")
    return fig


def channel_sizes(sides: dict) -> plt.Figure:
    """The largest number of each channel, sorted, over the median channel's; a panel a case.

    sides  case -> [n_heads, head_dim], the largest |x| of each channel of each head
    """
    fig, axes = plt.subplots(1, len(sides), figsize=(7.2, 3), sharey=True, squeeze=False)
    for ax, (case, sizes) in zip(axes[0], sides.items(), strict=True):
        relative = np.sort(sizes / np.median(sizes, axis=1, keepdims=True), axis=1)
        for head in relative:
            ax.plot(np.arange(1, head.size + 1), head, color=COLD, alpha=0.5, lw=1)
        ax.set(title=case, xlabel="channel, sorted")
        log_axis(ax, "y")
    axes[0, 0].set_ylabel("largest number,\nover the median's (log scale)")
    return fig


def reach(felt: np.ndarray, position: int, window: int) -> plt.Figure:
    """Which tokens feel a change of the token at `position`, after each layer: a map.

    felt  [n_layers + 1, n_tokens], as `window.felt` gives it; nothing at all is left white. The
          steps drawn are where each layer must end: window - 1 tokens further on
    """
    fig, ax = plt.subplots(figsize=(7.2, 2.6))
    shown = np.ma.masked_equal(felt, 0)
    image = ax.imshow(
        np.ma.log10(shown), aspect="auto", cmap="viridis", origin="lower", interpolation="nearest"
    )
    depths = np.arange(len(felt))
    ends = position + depths * (window - 1) + 0.5
    ax.step([*ends, ends[-1]], [*(depths - 0.5), depths[-1] + 0.5], where="pre", color=WARM, lw=2)
    ax.set(xlabel="position of the token", ylabel="layers passed", yticks=depths)
    ax.set(xlim=(-0.5, felt.shape[1] - 0.5), ylim=(-0.5, len(felt) - 0.5))
    ax.grid(visible=False)
    bar = fig.colorbar(image, ax=ax)
    bar.set_label("largest change\n(log10)")
    return fig


def windows(losses: pd.DataFrame) -> plt.Figure:
    """The held-out loss that a window adds, beside the bytes of the caches; first axis log.

    `losses` is `windowloss.losses` without the rows of no window.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.2))
    x = losses["cache_bytes"] / 1024
    reach = [losses["more"] - losses["least"], losses["most"] - losses["more"]]
    ax.errorbar(x, losses["more"], reach, fmt="-o", color=COLD, capsize=3, lw=1.2)
    for name, kib, more in zip(losses.index, x, losses["most"], strict=True):
        ax.annotate(name, (kib, more), xytext=(0, 5), textcoords="offset points", ha="center")
    log_axis(ax, "x", x)
    ax.set(xlabel="caches of a sequence (KiB, log scale)", ylabel="added loss\n(nats a character)")
    ax.margins(x=0.1, y=0.15)
    return fig


def waste(table: pd.DataFrame) -> plt.Figure:
    """Where the memory of a store goes under each policy, in per cent; a panel a mix.

    table  `reservation.measure`, indexed by mix and policy
    """
    mixes = list(table.index.unique("mix"))
    fig, axes = plt.subplots(1, len(mixes), figsize=(7.2, 3.9), sharey=True, squeeze=False)
    for ax, mix in zip(axes[0], mixes, strict=True):
        part = table.loc[mix]
        left = np.zeros(len(part))
        for kind, (name, color) in KINDS.items():
            ax.barh(part.index, part[kind], left=left, color=color, label=name, height=0.75)
            left += part[kind].to_numpy()
        ax.set(title=mix, xlabel="share of the memory (%)", xlim=(0, 100))
        ax.grid(axis="y", visible=False)
    axes[0, 0].invert_yaxis()
    axes[0, 0].set_ylabel("policy")
    handles, names = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, names, ncol=2, loc="outside upper center")
    return fig
