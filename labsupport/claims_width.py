"""Claims of the cache's derivation on what a wider model collects."""

from labsupport import arithmetic, roofline
from labsupport.charmodel import CharConfig
from labsupport.claims import Claim, decide, register
from labsupport.claims_clock import N, ceiling, speedup
from labsupport.claims_derivation import NEARLY
from labsupport.loops import CACHED
from labsupport.rates import bandwidth

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "derivation")

HALF_PRECISION = 2  # bytes a number
PUBLISHED = {"7B": (4096, 32), "13B": (5120, 40), "33B": (6656, 60), "65B": (8192, 80)}
# d_model and blocks of LLaMA: arXiv:2302.13971, table 2


def percents(shares):
    return ", ".join(f"{share:.1%}" for share in shares)


@claim(
    "derivation-39",
    "Over the width the collected share goes from {first} % to {last} %.",
    first=2.2,
    last=8.1,
)
def _(said, ev):
    shares = 100 * ev.width["measured"] / ev.width["arithmetic"]
    right = shares.round(1) == ev.width["collected_percent"]
    return decide(
        bool(right.all())
        and [*shares.round(1)][:: len(shares) - 1] == [said["first"], said["last"]],
        f"Its measured over its arithmetic column gives {percents(shares / 100)}; {right.sum()} of "
        f"{len(right)} as printed.",
        in_shape=bool(shares.is_monotonic_increasing),
    )


@claim(
    "derivation-40",
    "The ratio of multiplications barely moves from {ratio} over the width.",
    how="derived",
    ratio=130,
)
def _(said, ev):
    ratios = {
        d: arithmetic.with_head(d, N, ev.config.vocab_size, ev.config.n_blocks)
        for d in ev.width.index
    }
    printed = ", ".join(f"{ratio:.1f}" for ratio in ratios.values())
    return decide(
        all(abs(ratio / said["ratio"] - 1) <= NEARLY for ratio in ratios.values()),
        f"{printed}: towards (n + 1) / 2 = {(N + 1) / 2:g}, that of the linear layers alone.",
    )


@claim(
    "derivation-41",
    "The wider the model, the larger the gain: {first} at d = {narrow} to {last} at d = {wide}.",
    how="measured",
    first=2.99,
    narrow=128,
    last=10.42,
    wide=1024,
)
def _(said, ev):
    cells = ev.over_width()
    narrow, wide = cells.loc[said["narrow"]], cells.loc[said["wide"]]
    as_said = all(
        abs(cell["concat"] / said[name] - 1) <= NEARLY
        for name, cell in (("first", narrow), ("last", wide))
    )
    return decide(
        as_said,
        f"Here the same loop gains {speedup(narrow, 'concat')} and {speedup(wide, 'concat')}.",
        in_shape=wide["concat_low"] > narrow["concat_high"],
    )


@claim(
    "derivation-42",
    "The bigger the products, the more of what is saved comes back as time.",
    how="measured",
)
def _(said, ev):
    cells = ev.over_width()
    rises, falls = ([path for path in CACHED if moves(cells, path)[i]] for i in range(2))
    return decide(
        rises == CACHED and not falls,
        f"Over d = {', '.join(map(str, cells.index))} the source's loop collects "
        f"{percents(cells['concat_share'])}, the compiled step {percents(cells['compiled_share'])}."
        f" Beyond the intervals it rises from end to end for {', '.join(rises) or 'none'} and falls"
        f" on the way for {', '.join(falls) or 'none'}: a step that is bound by reading collects "
        "what bandwidth leaves.",
        in_shape="concat" in rises and "concat" not in falls,
    )


def moves(cells, path):
    """Whether the last share is above the first, and whether some share is below that of a narrower
    model, both beyond the intervals: (rises, falls)."""
    low, high = (cells[f"{path}_{end}"] / cells["arithmetic"] for end in ("low", "high"))
    return bool(low.iloc[-1] > high.iloc[0]), bool((high < low.cummax()).any())


@claim(
    "derivation-43",
    "Real models have d around {d} in dozens of blocks.",
    how="derived",
    d=4096,
)
def _(said, ev):
    sizes = ", ".join(f"{name} {d} in {blocks}" for name, (d, blocks) in PUBLISHED.items())
    d, blocks = min(PUBLISHED.values())
    return decide(
        abs(d / said["d"] - 1) <= NEARLY and blocks >= 24,
        f"LLaMA as published: {sizes} blocks.",
        in_shape=any(said["d"] / 2 <= d <= said["d"] * 2 for d, _ in PUBLISHED.values()),
    )


def real(said):
    """A model of the width said, with the published number of blocks, without its vocabulary."""
    blocks = dict(PUBLISHED.values()).get(said["d"], 32)
    return CharConfig(vocab_size=1, context=N, d_model=said["d"], n_blocks=blocks)


@claim(
    "derivation-44",
    "At d = {d} overhead is a negligible share.",
    how="derived",
    d=4096,
)
def _(said, ev):
    config, counts = real(said), ev.trials["kernels"]()
    price_ns = roofline.call_ns(ev.rates, "concat")
    calls = config.n_blocks * counts["cached, all"]
    overhead_ns = calls * price_ns
    read = HALF_PRECISION * sum(arithmetic.multiplications(config, 1, N).values())
    reading_ns = read / bandwidth(ev.rates, read) * 1e9
    there = roofline.ACCELERATORS[0]
    there_ns = read / there.bytes_per_s * 1e9
    share = overhead_ns / (overhead_ns + reading_ns)
    return decide(
        share <= NEARLY,
        f"Of a cached step {share:.2%} on this machine: {calls:,} calls of "
        f"{price_ns / 1000:.2f} µs beside {reading_ns / 1e6:,.0f} ms of reading. On an "
        f"{there.name} reading takes {there_ns / 1e6:.1f} ms, and the same calls would be "
        f"{overhead_ns / (overhead_ns + there_ns):.0%}.",
        in_shape=share <= 0.5,
    )


@claim(
    "derivation-45",
    "At d = {d} the cache's benefit attaches to the arithmetic.",
    how="derived",
    d=4096,
)
def _(said, ev):
    here = ceiling(real(said), N, ev.rates)
    published = {
        one.name: roofline.bound(1, one.flops_per_s, one.bytes_per_s)
        for one in roofline.ACCELERATORS
    }
    named = ", ".join(f"{share:.2%} on an {name}" for name, share in published.items())
    return decide(
        min(here, *published.values()) >= 0.5,
        f"A cached step moves every weight for one token, 1 operation a byte in half precision "
        f"however wide the model. So of the ratio at most {here:.1%} comes back on this machine in "
        f"float32, {named}.",
        in_shape=here >= 0.5,
    )


@claim(
    "derivation-46",
    "A speed-up of a small model does not transfer to a large one.",
    how="measured",
)
def _(said, ev):
    cells = ev.over_width()
    apart = {
        path: cells[f"{path}_low"].max() > cells[f"{path}_high"].min() * (1 + NEARLY)
        for path in CACHED
    }
    ends = ", ".join(
        f"{path} {cells[path].iloc[0]:.1f} and {cells[path].iloc[-1]:.1f}" for path in CACHED
    )
    return decide(
        all(apart.values()),
        f"Speed-ups at d = {cells.index[0]} and {cells.index[-1]}: {ends}.",
        in_shape=any(apart.values()),
    )
