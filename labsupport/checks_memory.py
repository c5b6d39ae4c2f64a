"""Instant checks of chapter 4's exercises: what a cache weighs; those beside it are passed on."""

import math
from bisect import bisect_left, bisect_right
from functools import partial

from labsupport.checks import exercise
from labsupport.checks_cases import judge
from labsupport.checks_memory_arrays import expand, quantize, ring_mask
from labsupport.checks_memory_blocks import mean_empty, merge, sequences

__all__ = ["break_even", "cache_bytes", "expand", "mean_empty", "merge", "quantize"]
__all__ += ["ring_mask", "sequences", "unit"]

SOURCE_WEIGHTS = 637_156 * 4  # bytes, as the examined tutorial prints them


def _unit(
    printed, n_bytes, digits=None, prefix=None, names=("1000", "1024"), both="both", cut=False
):
    text, unit = printed.split()
    power = ["kB", "MB", "GB"].index(prefix or unit) + 1
    digits = len(text.partition(".")[2]) if digits is None else digits
    if cut:
        scales = [10**digits / base**power for base in (1000, 1024)]
        fits = [math.floor(n_bytes * s) == round(float(text) * 10**digits) for s in scales]
        return {(1, 1): both, (1, 0): "1000", (0, 1): "1024"}.get(tuple(fits), "neither")
    fits = [
        name
        for name, base in zip(names, (1000, 1024), strict=True)
        if float(f"{n_bytes / base**power:.{digits}f}") == float(text)
    ]
    return both if len(fits) == 2 else [*fits, "neither"][0]


@exercise("memory", "unit", 2)
def unit(function):
    """The reading of a printed size: "1000", "1024", "both" or "neither"."""
    cases = [
        ("3.00 MB", 3_145_728),
        ("3.15 MB", 3_145_728),
        ("1.23 MB", SOURCE_WEIGHTS),
        ("2.5 MB", SOURCE_WEIGHTS),
        ("3 MB", 3_100_000),
        ("4.0 GB", 4 * 2**30),
        ("61 kB", 61_440),
    ]
    mistakes = {
        "a fixed number of digits: round to as many as were printed": partial(_unit, digits=2),
        "a size that is cut off, not rounded": partial(_unit, cut=True),
        "MB whatever the unit": partial(_unit, prefix="MB"),
        "the two readings interchanged": partial(_unit, names=("1024", "1000")),
        "the first reading that fits, where the other fits too": partial(_unit, both="1000"),
        "the last reading that fits, where the other fits too": partial(_unit, both="1024"),
    }
    whole = (
        (IndexError, ValueError),
        lambda printed, _: "." not in printed,
        "A number may be printed without a point, as in '3 MB': then it has no decimals.",
    )
    judge("unit_of", function, cases, _unit, mistakes, slips=[whole])
    return (
        "With two digits a size usually tells its unit; with one it often fits both. "
        "The tutorial's sizes are in powers of 1024."
    )


NUMBERS = {"float32": 4, "float16": 2, "bfloat16": 2}


def _cache_bytes(config, n_tokens, row=None, windows="listed", spare=0, number=None, sides=2):
    n_heads, hidden = config["num_attention_heads"], config["hidden_size"]
    n_kv_heads = config.get("num_key_value_heads") or n_heads
    head_dim = config.get("head_dim") or hidden // n_heads
    rows = {"d_model": hidden, "query": n_heads * head_dim, "split": n_kv_heads * hidden // n_heads}
    window, n_layers = config.get("sliding_window"), config["num_hidden_layers"]
    kinds = config.get("layer_types") or ["sliding_attention"] * n_layers
    if window is None or windows == "none":
        kinds = ["full_attention"] * n_layers
    elif windows == "all":
        kinds = ["sliding_attention"] * n_layers
    kept = sum(n_tokens if kind[0] == "f" else min(n_tokens, window - spare) for kind in kinds)
    a_token = sides * rows.get(row, n_kv_heads * head_dim)
    return a_token * kept * (number or NUMBERS[config["torch_dtype"]])


def _sizes(config, n_tokens):
    """A configuration in short."""
    sizes = [f"{key}={value}" for key, value in config.items() if key != "layer_types"]
    return f"{n_tokens} tokens, {', '.join(sizes)}"


@exercise("memory", "cache-bytes", 4)
def cache_bytes(function):
    """Bytes of a cache, from a model's configuration."""
    plain = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    plain |= {"torch_dtype": "float32"}
    shared = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32}
    shared |= {"num_key_value_heads": 8, "torch_dtype": "bfloat16"}
    own = {"hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8}
    own |= {"num_key_value_heads": 4, "head_dim": 256, "torch_dtype": "float16"}
    alternating = ["sliding_attention", "full_attention"] * 13
    mixed = own | {"sliding_window": 4096, "layer_types": alternating}
    ring = shared | {"head_dim": None, "sliding_window": 1024}
    off = shared | {"sliding_window": None, "torch_dtype": "float16"}
    cases = [(plain, 1000), (shared, 1000), (own, 1000), (off, 5000)]
    cases += [(mixed, 1000), (mixed, 4096), (mixed, 9000), (ring, 1023), (ring, 5000)]
    mistakes = {
        "d_model numbers in a row: keys have heads of a number and width of their own": partial(
            _cache_bytes, row="d_model"
        ),
        "four bytes a number whatever the dtype": partial(_cache_bytes, number=4),
        "query heads counted where key/value heads are stored": partial(_cache_bytes, row="query"),
        "d_model / n_heads, though the configuration names a head_dim": partial(
            _cache_bytes, row="split"
        ),
        "no window at all": partial(_cache_bytes, windows="none"),
        "a window in every layer: some keep all": partial(_cache_bytes, windows="all"),
        "a window that keeps one token fewer": partial(_cache_bytes, spare=1),
        "two bytes a number whatever the dtype": partial(_cache_bytes, number=2),
        "keys without values": partial(_cache_bytes, sides=1),
    }
    left_out = (KeyError, lambda *_: True, "A configuration may leave this out: see what holds.")
    nothing = (
        TypeError,
        lambda config, _: None in config.values(),
        "A configuration may hold None for head_dim or sliding_window: as if it were left out.",
    )
    slips = [left_out, nothing]
    judge("cache_bytes", function, cases, _cache_bytes, mistakes, slips=slips, shown=_sizes)
    return (
        "These few fields are all that decides. A vocabulary, the network's width and the number "
        "of query heads change what the model weighs, not its cache."
    )


def _break_even(weight_bytes, layer_bytes, windows, find=bisect_right, keep=None):
    """The first length whose cache is above the weights (bisect_left: or the same)."""
    pairs = list(zip(layer_bytes, windows, strict=True))
    if keep == "full":
        pairs = [(size, window) for size, window in pairs if window is None]
    if keep == "all":
        pairs = [(size, None) for size, _ in pairs]

    def held(n):
        return sum(size * (n if window is None else min(n, window)) for size, window in pairs)

    flat = max((window for _, window in pairs if window), default=0)
    if all(window for _, window in pairs) and held(flat) <= weight_bytes:
        return math.inf
    return find(range(weight_bytes + flat + 2), weight_bytes, key=held)


def _windows_full(weight_bytes, layer_bytes, windows):
    held = sum(b * w for b, w in zip(layer_bytes, windows, strict=True) if w)
    growth = sum(b for b, w in zip(layer_bytes, windows, strict=True) if not w)
    return (weight_bytes - held) // growth + 1 if growth else math.inf


def _never_with_windows(weight_bytes, layer_bytes, windows):
    return math.inf if any(windows) else _break_even(weight_bytes, layer_bytes, windows)


@exercise("memory", "break-even", 3)
def break_even(function):
    """The length at which a cache with windows in some layers outweighs its model."""
    cases = [
        (100_000, [64, 64], [None, None]),
        (128_000, [64, 64], [None, None]),
        (6_000_000, [4096] * 4, [512, None] * 2),
        (3_000_000_000, [2048, 4096, 2048], [1024, None, 4096]),
        (1_000_000, [512] * 4, [256, 256, 256, 512]),
        (600_000, [512] * 4, [256, 256, 256, 512]),
    ]
    mistakes = {
        "the last length that fits, not the first that does not": lambda *case: (
            _break_even(*case) - 1
        ),
        "a cache that counts as larger when it is as large": partial(_break_even, find=bisect_left),
        "windows left out": partial(_break_even, keep="all"),
        "layers with windows left out: they stop growing, and keep what they hold": partial(
            _break_even, keep="full"
        ),
        "windows taken to be full from the first token on": _windows_full,
        "a cache that stops growing when some of its layers do": _never_with_windows,
    }
    flat = (
        ZeroDivisionError,
        lambda _, __, windows: None not in windows,
        "With a window in every layer there is a length from which nothing grows.",
    )
    judge("break_even", function, cases, _break_even, mistakes, slips=[flat])
    return (
        "With windows the cache's size is a broken line: it can only bend down, so there is one "
        "such length or none."
    )
