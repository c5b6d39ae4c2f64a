"""Claims of the cost study about the safeguards of reuse, each tried here, and other workloads.

`ev.trials` tries the safeguards; `ev.rows` is the recorded run in nanoseconds, `ev.breakeven` the
map of larger inputs, one row a cell.
"""

from labsupport import hitrate
from labsupport.claims import Claim, decide, register, unsettled
from labsupport.claims_reuse import MARGIN, MORE

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "decomposition")


# --- the safeguards -----------------------------------------------------------------------------


@claim("decomposition-27", "Frozen arrays are read-only.", how="measured")
def _(said, ev):
    refused, n = ev.trials["writes_refused"]()
    return decide(refused == n, f"{refused} of {n} writes, one into each weight, were refused.")


@claim(
    "decomposition-28",
    "Changed weights need a new instance and get a new identity.",
    how="measured",
)
def _(said, ev):
    got = ev.trials["changed_weight"]()
    return decide(
        not any(got.values()),
        "The last bit of one weight was changed: the new instance has "
        f"{'the same' if got['same_identity'] else 'another'} identity and finds "
        f"{'the old' if got['found'] else 'no'} prefix; the old one's outputs "
        f"{'changed' if got['old_moved'] else 'stayed'}.",
    )


@claim(
    "decomposition-29",
    "Freezing is a contract within trusted code, not a security boundary.",
    how="measured",
)
def _(said, ev):
    same, off = ev.trials["forced_write"]()
    return decide(
        same and off > 0,
        f"A weight overwritten by its address shifts the outputs by {off:.2f}, under "
        f"{'the same' if same else 'another'} identity.",
    )


@claim("decomposition-30", "A cache hit must be copied before it is continued.", how="measured")
def _(said, ev):
    bare, copied = (ev.trials["reused"](copied=c) for c in (False, True))
    damage = bare["then_tokens"] != bare["kept_tokens"] or bare["right"] < copied["right"]
    sound = copied["then_tokens"] == copied["kept_tokens"]
    return decide(
        damage and sound,
        f"Without the copy one query makes the kept prefix of {bare['kept_tokens']} tokens "
        f"{bare['then_tokens']} long, and {bare['right']} of the queries are answered rightly; "
        f"with it, {copied['then_tokens']} tokens and {copied['right']}.",
    )


@claim("decomposition-31", "A key holds scope, identity and the prefix's tokens.", how="measured")
def _(said, ev):
    found = ev.trials["other_keys"]()
    blind = [name for name, was_found in found.items() if was_found]
    return decide(
        not blind,
        f"{len(found) - len(blind)} of {len(found)} keys that differ in one of them find nothing: "
        f"{', '.join(found)}.",
    )


# --- other workloads ----------------------------------------------------------------------------


@claim(
    "decomposition-32",
    "Results of different workloads, such as the {requests} requests of an earlier experiment, "
    "do not combine into one speed-up.",
    how="derived",
    requests="4,860",
)
def _(said, ev):
    means = ev.rows.groupby("path")[["total_ns", "lookup_ns", "copy_ns"]].mean()
    fresh, hit = means.loc["full", "total_ns"], means.loc["frozen", "total_ns"]
    miss = fresh + means.loc["frozen", ["lookup_ns", "copy_ns"]].sum()
    ratios = [hitrate.expected(rate, hit, miss) / fresh for rate in (1, 0.5, 0)]
    return decide(
        max(ratios) / min(ratios) > 1 + MARGIN,
        "By its own parts reuse takes "
        + ", ".join(f"{r:.3f}" for r in ratios)
        + " of fresh computation's time at hit rates 1, 0.5 and 0: one figure is no other's.",
    )


@claim(
    "decomposition-33",
    "A larger input may go either way: it need not favour caching.",
    how="measured",
)
def _(said, ev):
    tokens, width, prefix = (ev.config[name] for name in ("tokens", "width", "prefix"))
    cells = ev.breakeven
    larger = cells[(cells["tokens"] > tokens) | (cells["width"] > width)]
    alike = larger["prefix"] * tokens == prefix * larger["tokens"]  # the same share is reused
    n = {
        verdict: int((larger["frozen_verdict"][alike] == verdict).sum())
        for verdict in ("faster", "slower", "cannot tell")
    }
    less = larger[~alike & (larger["frozen_verdict"] == "slower")]
    found = (
        f"Of {alike.sum()} larger cells of the map that reuse the same share {n['faster']} are "
        f"faster with reuse, {n['slower']} slower, {n['cannot tell']} undecided; where "
        f"another share is reused, {len(less)} of {(~alike).sum()} are slower."
    )
    if not n["faster"] + n["slower"]:
        return unsettled(found, MORE)
    return decide(bool(n["faster"] and n["slower"]), found, in_shape=len(less) > 0)
