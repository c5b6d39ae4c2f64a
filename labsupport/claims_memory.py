"""Claims of the memory price: what the cache of the source's own model takes.

Each check takes what the source said (`said`) and the evidence; `ev.trials` weigh real caches. The
source prints MB: MB are powers of 1000 and MiB powers of 1024, and which it means is examined.
"""

from itertools import pairwise

from labsupport import arithmetic, memory
from labsupport.claims import Claim, decide, register
from labsupport.claims_derivation import NEARLY

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "memory")

UNITS = {"MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}


def in_units(n_bytes, unit, digits=2):
    """The bytes as a number of `unit`, with so many digits behind the point, as a text."""
    return f"{n_bytes / UNITS[unit]:.{digits}f}"


def close(a, b):
    """Whether two numbers are called the same."""
    return abs(a / b - 1) <= NEARLY


# --- the formula ------------------------------------------------------------------------------


@claim(
    "memory-01",
    "The cache takes {factor} · blocks · tokens · d · bytes of a number.",
    how="measured",
    factor=2,
)
def _(said, ev):
    c, table = ev.config, ev.trials["stored"]()
    formula = [said["factor"] * c.n_blocks * n * c.d_model * 4 for n in table.index]
    equal = {kind: list(table[kind]) == formula for kind in table}
    lengths = ", ".join(map(str, table.index))
    return decide(
        all(equal.values()),
        f"Of this model, yes: after {lengths} tokens the storage of its caches is "
        f"{', '.join(f'{n:,}' for n in table['preallocated'])} bytes, reserved at the start or "
        "joined anew.",
        in_shape=any(equal.values()),
    )


@claim(
    "memory-02",
    "In float32 that is {sizes} MB at n = {lengths}.",
    sizes="0.38, 1.50, 3.00",
    lengths="128, 512, 1024",
)
def _(said, ev):
    c, lengths = ev.config, [int(n) for n in said["lengths"].split(", ")]
    sizes = [memory.source_formula(c.n_blocks, n, c.d_model, "float32") for n in lengths]
    found = {unit: ", ".join(in_units(n, unit) for n in sizes) for unit in ("MB", "MiB")}
    return decide(
        found["MB"] == said["sizes"],
        f"{found['MiB']} MiB: its MB are powers of 1024. In powers of 1000 it is {found['MB']} MB.",
        in_shape=found["MiB"] == said["sizes"],
    )


@claim("memory-03", "The cache grows in proportion to the tokens.", how="measured")
def _(said, ev):
    grown = ev.trials["stored"]()["concat"]
    each = (grown / grown.index).to_numpy()
    printed = (ev.sizes / ev.sizes.index).to_numpy()
    return decide(
        bool((each == each[0]).all()),
        f"Storage of the caches: {each[0]:,.0f} bytes a token at each of {len(each)} lengths to "
        f"n = {grown.index[-1]}. Its rows, as they round, agree to "
        f"{printed.max() / printed.min() - 1:.0%}.",
        in_shape=max(each) <= min(each) * (1 + NEARLY),
    )


@claim(
    "memory-04",
    "The weights take {megabytes} MB: {parameters} numbers of {each} bytes.",
    how="measured",
    megabytes="2.43",
    parameters="637,156",
    each=4,
)
def _(said, ev):
    weights = ev.trials["full"]()["weights"]
    count = weights == int(said["parameters"].replace(",", "")) * said["each"]
    return decide(
        count and in_units(weights, "MB") == said["megabytes"],
        f"Their storage is {weights:,} bytes: {in_units(weights, 'MiB')} MiB or "
        f"{in_units(weights, 'MB')} MB.",
        in_shape=count and in_units(weights, "MiB") == said["megabytes"],
    )


@claim(
    "memory-05",
    "The loop needs that much for its cache, and no more.",
    how="measured",
)
def _(said, ev):
    peak, blocks = ev.trials["peak"](), ev.config.n_blocks
    times = peak["concat"] / peak["stored"]
    return decide(
        times <= 1 + NEARLY,
        f"Joined anew for each token, as its loop does it, {ev.config.context} tokens have "
        f"{peak['concat']:,} bytes alive at once and end with {peak['stored']:,}: {times:.2f} "
        f"times, since old and new copy of one of {blocks} blocks are there together. Reserved at "
        f"the start, {peak['preallocated'] / peak['stored']:.2f} times.",
        in_shape=times <= 2,
    )


# --- against the weights ----------------------------------------------------------------------


@claim(
    "memory-06",
    "Of its own figures, the cache at n = {n} is {ratio} times the size of the weights.",
    n=1024,
    ratio=1.23,
)
def _(said, ev):
    c, stated = ev.config, ev.stated
    weights = stated["parameters"] * stated["parameter_bytes"]
    ratio = memory.source_formula(c.n_blocks, said["n"], c.d_model, "float32") / weights
    printed = ev.sizes.loc[said["n"]] / stated["weights"]
    return decide(
        round(ratio, 2) == said["ratio"] == round(printed, 2),
        f"{ratio:.4f} in bytes, {printed:.4f} from the megabytes it prints.",
        in_shape=close(ratio, said["ratio"]),
    )


@claim(
    "memory-07",
    "A model that reads n = {n} tokens has a cache {ratio} times the size of its weights.",
    how="measured",
    n=1024,
    ratio=1.23,
)
def _(said, ev):
    longer = ev.trials["longer"]()
    ratio = longer["cache"] / longer["weights"]
    rows = said["n"] - ev.config.context
    return decide(
        close(ratio, said["ratio"]),
        f"{ratio:.3f} times. The weights it counts have {ev.config.context} positions; "
        f"{rows} more rows of {ev.config.d_model} numbers make {longer['weights'] // 4:,} "
        f"parameters, {longer['weights']:,} bytes beside {longer['cache']:,}.",
        in_shape=ratio > 1,
    )


@claim(
    "memory-08",
    "To run the model of {parameters} parameters takes a cache larger than the model.",
    how="measured",
    parameters="637k",
)
def _(said, ev):
    full = ev.trials["full"]()
    needed = outgrown(ev.config)
    counted = f"{full['weights'] // 4 // 1000}k" == said["parameters"]
    return decide(
        full["cache"] > full["weights"] and counted,
        f"It has {full['n_tokens']} positions and refuses another token, so its cache ends at "
        f"{full['cache']:,} bytes, {full['cache'] / full['weights']:.0%} of its weights. Given "
        f"a table as long as the text, the cache outgrows the model at {needed} tokens.",
        in_shape=full["n_tokens"] >= needed,
    )


# --- what changes it --------------------------------------------------------------------------


@claim("memory-09", "The cache is the price of splitting heads.", how="measured")
def _(said, ev):
    sizes = ev.trials["splitting"]()
    steps = list(sizes.values())
    return decide(
        all(a < b for a, b in pairwise(steps)),
        f"With {', '.join(map(str, sizes))} heads of d = {ev.config.d_model} the caches store "
        f"{', '.join(f'{n:,}' for n in steps)} bytes: a split moves numbers between heads and adds "
        "none. The price is of keeping keys and values at all; splitting is what lets them be "
        "shared.",
        in_shape=steps[0] < steps[-1],
    )


@claim(
    "memory-10",
    "Weights in {after} instead of {before} attack that memory.",
    how="measured",
    before="float32",
    after="int8",
)
def _(said, ev):
    found, n = ev.trials["int8"](), int(ev.sizes.index.max())
    w, coded, kept = (found[name] for name in ("weights", "weights, int8", "cache, int8"))
    return decide(
        close(found["cache"] / kept, w / coded),
        f"They shrink {w / coded:.2f}-fold, the cache from {found['cache']:,} bytes to {kept:,}. "
        f"So at n = {n} it goes from {found['cache'] / w:.2f} to {kept / coded:.1f} times the "
        f"weights, and outgrows them at {outgrown(ev.config, coded / w)} tokens instead of "
        f"{outgrown(ev.config)}. Both together shrink by "
        f"{1 - (coded + kept) / (w + found['cache']):.0%}.",
        in_shape=kept < found["cache"],
    )


def outgrown(config, share=1.0):
    """The length at which a float32 cache outgrows a model of `share` of its float32 bytes.

    Its position table is as long as the text: n tokens take `a_token` n numbers in the cache, and
    share (others + d_model n) in the weights.
    """
    a_token = memory.shape_of(config, "int8").bytes_per_token  # numbers
    others = arithmetic.n_parameters(config) - config.context * config.d_model
    return int(share * others // (a_token - share * config.d_model)) + 1
