"""Claims of the stall log that a measurement here speaks to.

`ev.searched` holds the rows of the recorded search for a slower warm request, and `ev.damage(kind)`
injects a late write into a plain or a guarded cache.
"""

from labsupport import warmcold
from labsupport.claims import Claim, decide, register, unsettled

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "stall")


@claim("stall-41", "Without the checks, the next request inherits a damaged cache.", how="measured")
def _(said, ev):
    plain, guarded = (ev.damage(kind) for kind in ("plain", "guarded"))
    return decide(
        False,
        f"With a late write injected here, the plain cache "
        f"{'raises an error' if plain is None else f'answers with logits off by {plain:.2f}'}, the "
        f"guarded one {'raises an error' if guarded is None else 'answers'}.",
        in_shape=plain is not None and plain > 0.01 and guarded is None,
    )


@claim(
    "stall-53",
    "The missing guard can only be found by running until something breaks.",
    how="measured",
)
def _(said, ev):
    plain, guarded = ev.damage("plain"), ev.damage("guarded")
    if plain is None or plain == 0:
        return unsettled("The injected write did no damage.", "a fault that does")
    return decide(
        guarded is not None,
        "A fault injected on purpose shows in one request what a guard is there for."
        if guarded is None
        else "The injected fault passed the guard.",
    )


@claim("stall-46", "A warm cache can make a request slower.", how="measured")
def _(said, ev):
    confirmed = warmcold.confirmed(ev.searched)
    slower = confirmed[confirmed["verdict"] == "slower"]
    if slower.empty:
        return unsettled("None of the configurations searched is.", "a wider search")
    return decide(
        True,
        f"{len(slower)} of {len(confirmed)} re-measured configurations are slower warm, the most "
        f"by a ratio of {slower['ratio'].max():.2f}.",
    )


@claim("stall-47", "A warm cache saves recomputation, so a request gets faster.", how="measured")
def _(said, ev):
    grid = warmcold.searched(ev.searched)
    counts = grid["verdict"].value_counts()
    return decide(
        bool((grid["verdict"] == "faster").all()),
        f"Over {len(grid)} configurations: "
        + ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
        + ".",
        in_shape=counts.get("faster", 0) > len(grid) / 2,
    )


@claim("stall-48", "Preallocation is the cure.", how="measured")
def _(said, ev):
    stalls = sum(run.count("STALL") for run in ev.log.runs["preallocated"])
    confirmed = warmcold.confirmed(ev.searched)
    slower = confirmed[confirmed["verdict"] == "slower"]
    own = slower[slower["cache"] == "preallocated"]
    found = f"In the log {stalls} waits are left with it. "
    if slower.empty:
        return unsettled(f"{found}Here nothing needed one.", "a slower configuration")
    worst = f", the worst by a ratio of {own['ratio'].max():.2f}" if len(own) else ""
    return decide(
        stalls == 0 and own.empty,
        f"{found}Here {len(own)} of {len(slower)} confirmed slower configurations are "
        f"preallocated{worst}.",
        in_shape=stalls == 0,
    )
