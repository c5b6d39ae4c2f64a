"""Claims of the stall log that a measurement here speaks to.

`ev.searched` holds the rows of the recorded search for a slower warm request, and `ev.damage(kind)`
injects a late write into a plain or a guarded cache.
"""

from labsupport import warmcold
from labsupport.claims import Claim, decide, register

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
    shown = ev.damage("plain") is not None and ev.damage("guarded") is None
    return decide(
        not shown,
        f"Injecting the fault {'shows' if shown else 'does not show'} in one request what a guard "
        "is there for.",
    )


@claim("stall-46", "A warm cache can make a request slower.", how="measured")
def _(said, ev):
    confirmed = warmcold.confirmed(ev.searched)
    slower = confirmed[confirmed["verdict"] == "slower"]
    return decide(
        len(slower) > 0,
        f"{len(slower)} of {len(confirmed)} re-measured configurations are slower warm"
        + (f", the most by a ratio of {slower['ratio'].max():.2f}." if len(slower) else "."),
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
    worst = own["ratio"].max() if len(own) else 1.0
    return decide(
        stalls == 0 and own.empty,
        f"In the log {stalls} waits are left with it. Here {len(own)} of {len(slower)} confirmed "
        f"slower configurations are preallocated, the worst by a ratio of {worst:.2f}.",
        in_shape=stalls == 0,
    )
