"""Claims of the cost study recomputed from the figures it printed, or derived from its sizes.

Each check takes what the study said (`said`) and the evidence; `ev.source` is its table of medians
in microseconds, `ev.config` the configuration of the run recorded here.
"""

import pandas as pd

from labsupport.claims import Claim, Finding, decide, register, unsettled

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "decomposition")

NEARLY = 0.05  # two figures as far apart as this, relatively, are called the same
MOST = 0.8  # a part that explains most of a whole
PARTS = ["signature", "lookup", "copy", "compute"]
BLAS_THREADS_ABOVE = 4 * 65536  # multiplications; OpenBLAS, interface/gemm.c: no more, one thread


def explains(part: float, whole: float, found: str) -> Finding:
    """Holds when the part is the whole but for NEARLY, in shape when it is MOST of it."""
    share = part / whole
    said = f"{found}: {part:.1f} of {whole:.1f} µs, {share:.0%}"
    return decide(abs(share - 1) <= NEARLY, said + ".", in_shape=MOST <= share <= 2 - MOST)


def listed(values: pd.Series, form: str) -> str:
    """`compute 33.3, copy 3.0`, in the order given."""
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


# --- the protocol and the table ---------------------------------------------------------------


@claim(
    "decomposition-01",
    "{seeds} seeds and {rounds} rounds a seed measure {queries} queries.",
    seeds=3,
    rounds=101,
    queries=909,
)
def _(said, ev):
    n_paths = len(ev.source)
    expected = said["seeds"] * said["rounds"] * n_paths
    found = f"{n_paths} paths once a round make {expected}; {len(ev.rows)} are recorded here."
    return decide(expected == said["queries"] == len(ev.rows), found)


@claim(
    "decomposition-02",
    "Frozen reuse exceeds fresh computation by {excess_us} µs at the median.",
    excess_us=20.9,
)
def _(said, ev):
    full, frozen = ev.source.loc["full", "total"], ev.source.loc["frozen", "total"]
    return decide(
        round(frozen - full, 1) == said["excess_us"],
        f"{frozen} - {full} = {frozen - full:.1f} µs, {frozen / full - 1:.1%}; it is a difference "
        "of two medians, not the median of a difference.",
    )


def columns_left(ev) -> pd.Series:
    """What the columns of each path leave of its total, in microseconds: [n_paths]."""
    return ev.source["total"] - ev.source[PARTS].sum(axis=1)


@claim("decomposition-03", "The sum of the columns is not the median total.")
def _(said, ev):
    left = columns_left(ev)
    apart = left.abs().round(1) > 0
    return decide(
        bool(apart.all()),
        f"The columns leave, in µs: {listed(left, '{:.1f}')}.",
        in_shape=bool(apart.any()),
    )


@claim("decomposition-04", "What the columns leave of the total is bookkeeping between segments.")
def _(said, ev):
    left = columns_left(ev)
    found = f"The columns leave, in µs: {listed(left, '{:.1f}')}"
    if "residual" not in ev.source:
        would = "the residual of each row, or its median"
        return unsettled(f"{found}; but medians need not add up, whatever the residual.", would)
    rest = (left - ev.source["residual"]).abs()
    return decide(bool((rest <= 0.1).all()), f"{found}, the residuals but for {rest.max():.1f}.")


# --- where the totals differ, column by column --------------------------------------------------


@claim("decomposition-05", "Re-hashing reuse exceeds fresh computation by its signature.")
def _(said, ev):
    excess = ev.source.loc["rehash"] - ev.source.loc["full"].fillna(0)
    others = excess[["compute", "copy", "lookup"]]
    rest = excess["total"] - excess[PARTS].sum()
    found = f"The rest is {listed(others, '{:.1f}')}, in no column {rest:.1f}; the signature"
    return explains(excess["signature"], excess["total"], found)


@claim("decomposition-06", "Removing the hashing saves what the hashing took.")
def _(said, ev):
    saved = ev.source.loc["rehash"] - ev.source.loc["frozen"]
    others = saved[["compute", "copy", "lookup"]]
    rest = saved["total"] - saved[PARTS].sum()
    found = f"It also saves {listed(others, '{:.1f}')}, in no column {rest:.1f}; the signature"
    return explains(saved["signature"], saved["total"], found)


@claim(
    "decomposition-07",
    "Both cached paths do the same lookup, copy and continuation, so these cost the same.",
)
def _(said, ev):
    same = ["lookup", "copy", "compute"]
    more = ev.source.loc["rehash", same] / ev.source.loc["frozen", same] - 1
    return decide(
        bool((more.abs() <= NEARLY).all()),
        f"After hashing the same code took longer: {listed(more, '{:+.0%}')}. What runs before a "
        "part changes what it costs.",
    )


@claim(
    "decomposition-08",
    "Signature, lookup and copy ({signature_us} + {lookup_us} + {copy_us} µs) are what makes "
    "frozen reuse slower than fresh computation.",
    signature_us=0.6,
    lookup_us=2.2,
    copy_us=9.0,
)
def _(said, ev):
    excess = ev.source.loc["frozen"] - ev.source.loc["full"].fillna(0)
    known = sum(said.values())
    rest = excess["total"] - known - excess["compute"]
    found = f"Compute adds {excess['compute']:.1f}, {rest:.1f} are in no column; these three make"
    return explains(known, excess["total"], found)


@claim(
    "decomposition-09",
    "Computing {rest} rows took as long as computing {tokens}.",
    rest=4,
    tokens=12,
)
def _(said, ev):
    ratio = ev.source.loc["frozen", "compute"] / ev.source.loc["full", "compute"]
    share = said["rest"] / said["tokens"]
    return decide(
        abs(ratio - 1) <= NEARLY,
        f"Compute: {ratio:.3f} of fresh, for {share:.2f} of the rows.",
        in_shape=ratio >= 2 * share,
    )


# --- derived from the sizes ---------------------------------------------------------------------


@claim(
    "decomposition-10",
    "A prefix of {prefix} of {tokens} tokens saves two thirds of the projected rows.",
    how="derived",
    prefix=8,
    tokens=12,
)
def _(said, ev):
    rows = ev.trials["projected_rows"]()
    saved = 1 - rows["frozen"] / rows["full"]
    found = f"Counted: {rows['full']} tokens are projected afresh, {rows['frozen']} after a hit"
    as_said = rows == {"full": said["tokens"], "frozen": said["tokens"] - said["prefix"]}
    return decide(as_said and abs(saved - 2 / 3) < 1e-9, f"{found}: {saved:.1%} saved.")


def multiplications(config: dict, n_new: int, n_tokens: int) -> dict[str, int]:
    """Multiplications in the matrix products of a pass over the last `n_new` of `n_tokens`.

    `written` counts every score, `needed` only those that the causal mask lets through. `config`
    gives width, layers and vocab_size; the network between is four times as wide.
    """
    d, n_layers = config["width"], config["layers"]
    projected = n_new * (n_layers * 12 * d * d + d * config["vocab_size"])  # q, k, v, o, up, down
    seen = n_new * n_tokens - n_new * (n_new - 1) // 2  # keys before each token and its own
    per_key = n_layers * 2 * d  # a score, and reading a value
    return {
        "written": projected + n_new * n_tokens * per_key,
        "needed": projected + seen * per_key,
    }


@claim(
    "decomposition-11",
    "Saving two thirds of the rows saves two thirds of the multiplications.",
    how="derived",
)
def _(said, ev):
    tokens, prefix = ev.config["tokens"], ev.config["prefix"]
    afresh = multiplications(ev.config, tokens, tokens)
    after = multiplications(ev.config, tokens - prefix, tokens)
    saved = pd.Series({kind: 1 - after[kind] / afresh[kind] for kind in afresh})
    off = (saved - prefix / tokens).abs().max()
    return decide(
        off < 0.001,
        f"Of the products as written {saved['written']:.1%}, since masked scores are computed and "
        f"thrown away; of those the mask lets through {saved['needed']:.1%}: the last tokens look "
        f"at more keys. {after['written']:,} of {afresh['written']:,} are left.",
        in_shape=off < NEARLY,
    )


@claim(
    "decomposition-12",
    "The number of BLAS threads can be why such timings differ.",
    how="derived",
)
def _(said, ev):
    c = ev.config
    largest = c["tokens"] * c["width"] * max(4 * c["width"], c["vocab_size"])
    mapped = int((4 * ev.breakeven["tokens"] * ev.breakeven["width"] ** 2).max())
    here, larger = (size > BLAS_THREADS_ABOVE for size in (largest, mapped))
    answer = "here already" if here else "at larger sizes only" if larger else "nowhere"
    return decide(
        here,
        f"The largest product has {largest:,} multiplications, that of the map's largest cell "
        f"{mapped:,}; OpenBLAS uses more than one thread only above {BLAS_THREADS_ABOVE:,}. So the "
        f"number can matter {answer}. One thread is the safe setting.",
        in_shape=larger,
    )
