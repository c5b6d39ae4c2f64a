"""One memory budget, many sequences: how much of it holds tokens, and where the rest goes.

A mix of requests (`mixes`) is served under each policy of `admission`. The published figures are
those of arXiv:2309.06180. There the shape of the mix is a picture; here it is log-normal, and its
spread fits one published figure (mixes.SPREAD). All others are predicted, and can be wrong.
"""

import numpy as np
import pandas as pd

from labsupport.admission import N_SLOTS, SPARE, memory, serve
from labsupport.blockpool import BlockPool
from labsupport.mixes import MAX_TOKENS, MEANS, SPREAD, requests
from labsupport.paged import PagedCache

POLICIES = ["max", "pow2", "pow2 buddy", "exact", "exact buddy", "1", "8", "16", "32", "64", "128"]

# Per cent of the memory, figure 2; sequences at once, figure 13. vLLM's waste is not split there,
# and "external" is that figure's "External frag. & Others".
PUBLISHED = pd.DataFrame(
    {
        "max": [20.4, 13.3, 57.3, 8.9, 7.00, 7.00],
        "pow2 buddy": [26.8, 17.9, 13.6, 41.6, 9.81, 43.24],
        "exact buddy": [38.2, 25.2, 0.0, 36.6, 13.62, 72.75],
        "16": [96.3, np.nan, np.nan, np.nan, 30.42, 132.44],
    },
    index=["tokens", "reserved", "internal", "external", "n_running ShareGPT", "n_running Alpaca"],
).T


def summary(rows):
    """One row for the rows of `serve`: means over the steps in which a request had to wait.

    tokens, reserved, internal, external, waste   per cent of the memory; waste is all but tokens
    empty_each   slots given and empty, a sequence running
    n_running    sequences at once
    scattered    per cent of the steps
    n_steps      to serve all, the last without any waiting included
    recomputed   tokens computed again, for 100 tokens of output
    """
    kinds = ["tokens", "reserved", "internal", "external"]
    busy = rows[rows["n_waiting"] > 0]
    if busy.empty:
        raise ValueError("no request had to wait: no memory was short; ask for more requests")
    means, n_slots = busy.mean(), rows.loc[0, kinds].sum()
    shares = 100 * means[kinds] / n_slots
    return pd.Series(
        {
            **shares,
            "waste": 100 - shares["tokens"],
            "empty_each": (means["reserved"] + means["internal"]) / means["n_running"],
            "n_running": means["n_running"],
            "scattered": 100 * means["scattered"],
            "n_steps": len(rows),
            "recomputed": 100 * rows["recomputed"].sum() / rows["n_running"].sum(),
        }
    )


def measure(
    mixes=MEANS,
    policies=POLICIES,
    spread=SPREAD,
    n_slots=N_SLOTS,
    max_tokens=MAX_TOKENS,
    spare=SPARE,
    n_outputs=200_000,
    seed=0,
):
    """`summary` of a server for each of `mixes` (name -> mean prompt, mean output) and policies.

    Each mix has as many requests as make about `n_outputs` tokens; all policies serve the same.
    """
    table = {}
    for mix, (prompt, output) in mixes.items():
        lengths = requests(prompt, output, round(n_outputs / output), spread, max_tokens, seed)
        for policy in policies:
            rows = serve(lengths, memory(policy, n_slots, max_tokens, spare))
            table[mix, policy] = summary(rows)
    return pd.DataFrame(table).T.rename_axis(["mix", "policy"])


def sampling(lengths, n_samples, block_size=16):
    """Per cent of the blocks saved because `n_samples` outputs of one prompt share its blocks.

    For each request of `lengths` a real pool is filled, step by step, with forks of one prompt and
    with sequences of their own; all outputs of a request are equally long. Blocks are summed over
    all steps. The paper's figure 15 counts the same way (arXiv:2309.06180, section 6.3).
    """
    blocks = {"shared": 0, "alone": 0}
    for prompt, output in np.asarray(lengths).tolist():
        n_blocks = n_samples * -(-(prompt + output) // block_size)
        for how in blocks:
            pool = BlockPool(n_blocks, block_size, n_kv_heads=1, head_dim=1, dtype=np.int8)
            first, *others = _samples(pool, prompt, n_samples, how == "shared")
            token = np.zeros((1, 1, 1), np.int8)
            for _ in range(output):
                for cache in (first, *others):
                    cache.append(token, token)
                blocks[how] += pool.n_used
    return 100 * (1 - blocks["shared"] / blocks["alone"])


def _samples(pool, prompt, n_samples, shared):
    """`n_samples` sequences of one prompt, in blocks that they share or in blocks of their own."""
    rows = np.zeros((1, prompt, 1), np.int8)
    caches = [PagedCache(1, 1, np.int8, pool=pool)]
    caches[0].append(rows, rows)
    while len(caches) < n_samples:
        if shared:
            caches.append(caches[0].fork())
        else:
            caches.append(PagedCache(1, 1, np.int8, pool=pool))
            caches[-1].append(rows, rows)
    return caches
