"""Wrong answers to the exercises of chapter 3, and what each deserves.

WRONG maps an exercise to (what is wrong, source of the solution cell, share of the points in the
hidden tests, words of the check's message); no words where the visible check is content.
"""

from exercise_code import Sheet, changed

SHEET = Sheet("derivation")


def but(name: str, *swaps: tuple[str, str]) -> str:
    """The master's solution with each (old, new) made in it."""
    return changed(SHEET.solution(f"derivation-{name}"), *swaps)


def _rows_fed(without, cached):
    return f"def rows_fed(n_prompt, n_new):\n    return {without}, {cached}"


AGAIN, ONCE = "sum(range(n_prompt, n_prompt + n_new))", "n_prompt + n_new - 1"
ROWS_FED = [
    ("no prompt", _rows_fed("sum(range(1, n_new + 1))", ONCE), 1 / 2, "a prompt left out"),
    ("no prompt, cached", _rows_fed(AGAIN, "n_new"), 1 / 2, "it must be read once"),
    (
        "the last token is fed",
        _rows_fed("sum(range(n_prompt + 1, n_prompt + n_new + 1))", "n_prompt + n_new"),
        0,
        "without a cache, is not right. It looks like the last token being fed",
    ),
    (
        "so with a cache",
        _rows_fed(AGAIN, "n_prompt + n_new"),
        1 / 2,
        "last token being fed, too",
    ),
    (
        "a step too many",
        _rows_fed("sum(range(n_prompt, n_prompt + n_new + 1))", ONCE),
        1 / 2,
        "a step too many",
    ),
    (
        "all at once",
        _rows_fed("n_new * (n_prompt + n_new)", ONCE),
        1 / 2,
        "each step feeding",
    ),
    ("swapped", _rows_fed(ONCE, AGAIN), 0, "in the wrong order"),
    ("one number", f"def rows_fed(n_prompt, n_new):\n    return {ONCE}", 0, "return 2 values"),
    ("three", _rows_fed(AGAIN, f"{ONCE}, 0"), 1, "2 values, not 3"),
    ("printed", f"def rows_fed(n_prompt, n_new):\n    print({ONCE})", 0, "returns nothing"),
    (
        "the visible cases looked up",
        "def rows_fed(n_prompt, n_new):\n"
        "    return {8: (5750, 107), 1: (210, 20), 30: (30, 30)}[n_prompt]",
        0,
        "",
    ),
]

SCALE = ("q.shape[1] ** 0.5", "1")
ATTENTION_STEP = [
    ("no scale", but("attention_step", SCALE), 1 / 4, "not divided by the root of head_dim"),
    (
        "the scale of d_model",
        but("attention_step", ("q.shape[1] ** 0.5", "q.size ** 0.5")),
        1 / 4,
        "root of d_model",
    ),
    (
        "divided by head_dim",
        but("attention_step", ("q.shape[1] ** 0.5", "q.shape[1]")),
        1 / 4,
        "divided by head_dim, not by its root",
    ),
    (
        "one maximum for all heads",
        but("attention_step", ("scores.max(axis=1, keepdims=True)", "scores.max()")),
        3 / 4,
        "",
    ),
    (
        "softmax over heads",
        but(
            "attention_step",
            ("scores.max(axis=1, keepdims=True)", "scores.max(axis=0)"),
            ("weights.sum(axis=1, keepdims=True)", "weights.sum(axis=0)"),
        ),
        0,
        "a softmax over the heads",
    ),
    (
        "heads dealt out",
        but(
            "attention_step",
            ("np.repeat(keys, shared, axis=0)", "np.tile(keys, (shared, 1, 1))"),
            ("np.repeat(values, shared, axis=0)", "np.tile(values, (shared, 1, 1))"),
        ),
        3 / 4,
        "neighbours share one",
    ),
    (
        "reads keys",
        but("attention_step", ("np.repeat(values,", "np.repeat(keys,")),
        0,
        "the keys being read",
    ),
    (
        "does not see itself",
        but(
            "attention_step",
            ("np.repeat(keys, shared, axis=0)", "np.repeat(keys[:, :-1], shared, axis=0)"),
            ("np.repeat(values, shared, axis=0)", "np.repeat(values[:, :-1], shared, axis=0)"),
        ),
        0,
        "the new token not seeing itself",
    ),
    (
        "an old cache comes back",
        but("attention_step", ("return read[:, 0], keys,", "return read[:, 0], keys[:, :-1],")),
        3 / 4,
        "the keys without the new token's",
    ),
    (
        "in front",
        but(
            "attention_step",
            ("[keys, k[:, None]]", "[k[:, None], keys]"),
            ("[values, v[:, None]]", "[v[:, None], values]"),
        ),
        3 / 4,
        "the new token put in front",
    ),
    (
        "exp overflows",
        but("attention_step", (" - scores.max(axis=1, keepdims=True)", "")),
        3 / 4,
        "exp overflows",
    ),
    (
        "changes the query",
        but("attention_step", SCALE, ("    shared =", "    q *= q.shape[1] ** -0.5\n    shared =")),
        3 / 4,
        "changes an argument",
    ),
    (
        "a maximum of the older scores",
        but(
            "attention_step",
            ("scores.max(axis=1, keepdims=True)", "scores[:, :-1].max(axis=1, keepdims=True)"),
        ),
        3 / 4,
        "ValueError: zero-size array",
    ),
    ("a head_dim of 8", but("attention_step", ("q.shape[1] ** 0.5", "8**0.5")), 1 / 4, ""),
    (
        "nothing but the read",
        but("attention_step", ("return read[:, 0], keys, values", "return read[:, 0]")),
        0,
        "should return 3 values, not one array",
    ),
]

WHOLE = "whole_attention(q, k, v)"
COMPARED = f"np.abs(np.stack(reads, axis=1) - {WHOLE}).max()"
DISAGREEMENT = [
    (
        "the last token only",
        but("disagreement", (COMPARED, f"np.abs(reads[-1] - {WHOLE}[:, -1]).max()")),
        1 / 4,
        "at the first token only",
    ),
    (
        "the first token only",
        but("disagreement", (COMPARED, f"np.abs(reads[0] - {WHOLE}[:, 0]).max()")),
        1 / 4,
        "at the last token only",
    ),
    (
        "a sign",
        but("disagreement", (COMPARED, f"(np.stack(reads, axis=1) - {WHOLE}).max()")),
        0,
        "a difference with its sign, not its absolute value",
    ),
    (
        "the other sign",
        but("disagreement", (COMPARED, f"({WHOLE} - np.stack(reads, axis=1)).max()")),
        0,
        "a difference with its sign; take",
    ),
    (
        "a sign lost in max()",
        but("disagreement", (COMPARED, f"(np.stack(reads, axis=1) - {WHOLE}).max(initial=0)")),
        0,
        "It reads too little everywhere",
    ),
    (
        "the other lost in max()",
        but("disagreement", (COMPARED, f"({WHOLE} - np.stack(reads, axis=1)).max(initial=0)")),
        0,
        "It reads too much everywhere",
    ),
    (
        "a cache of its own",
        but(
            "disagreement",
            ("read, keys, values = step(", "read, *_ = step("),
            (
                "        reads.append(read)",
                "        keys, values = k[:, : t + 1], v[:, : t + 1]\n        reads.append(read)",
            ),
        ),
        3 / 4,
        "The cache that it returns is damaged",
    ),
    (
        "NaN is lost in max()",
        but(
            "disagreement",
            (
                COMPARED,
                "0.0\n    for x in np.abs(np.stack(reads, 1) - whole_attention(q, k, v)).flat:\n"
                "        off = max(off, x)",
            ),
        ),
        3 / 4,
        "max(0.0, nan) is 0.0",
    ),
    (
        "NaN comes back",
        but("disagreement", (' if np.isfinite(off) else float("inf")', "")),
        3 / 4,
        "it makes nan",
    ),
    (
        "the mean",
        but("disagreement", (COMPARED, COMPARED[:-5] + "mean()")),
        0,
        "the mean, not",
    ),
    (
        "the mean of each token",
        but("disagreement", (COMPARED, COMPARED[:-5] + "mean(axis=(0, 2)).max()")),
        2 / 4,
        "the largest of the tokens' means",
    ),
    (
        "one head",
        but("disagreement", (COMPARED, COMPARED.replace(").max()", ")[0].max()"))),
        2 / 4,
        "the first head alone",
    ),
    (
        "errors are swallowed",
        but(
            "disagreement",
            ("    for t in", "    try:\n      for t in"),
            (
                "        reads.append(read)",
                "        reads.append(read)\n    except Exception:\n        return float('inf')",
            ),
        ),
        3 / 4,
        "Let the error through",
    ),
    (
        "its own step",
        but("disagreement", ("= step(", "= attention_step(")),
        0,
        "is `step` called",
    ),
    ("trust", "def disagreement(step, q, k, v):\n    return 0.0", 0, "is `step` called"),
    (
        "no mask",
        but(
            "disagreement",
            (WHOLE, "np.repeat(v, 2, 0).mean(1, keepdims=True)"),
        ),
        0,
        "only rounding is to be left",
    ),
]

VISIBLE = "np.arange(capacity) <= at[:, :, None]"
CHUNK_MASK = [
    ("the opposite", but("chunk_mask", ("<=", ">")), 0, "the opposite"),
    ("from the top left", but("chunk_mask", ("held[:, None]", "0 * held[:, None]")), 0, "top left"),
    ("not itself", but("chunk_mask", ("<=", "<")), 0, "not seeing itself"),
    ("the next one", but("chunk_mask", (VISIBLE, VISIBLE + " + 1")), 0, "seeing the one after it"),
    (
        "all of the chunk",
        but("chunk_mask", ("np.arange(n_new)  #", "0 * np.arange(n_new) + n_new - 1  #")),
        1 / 4,
        "no mask among the new tokens",
    ),
    (
        "the buffer's end",
        but("chunk_mask", ("held[:, None]", "0 * held[:, None] + capacity - n_new")),
        0,
        "ends in the buffer's last slot",
    ),
    (
        "the first one's length",
        but("chunk_mask", ("held[:, None]", "0 * held[:, None] + held[0]")),
        2 / 4,
        "as many tokens as the first",
    ),
    (
        "the kept tokens hidden",
        but(
            "chunk_mask",
            (VISIBLE, f"({VISIBLE}) & (np.arange(capacity) >= held[:, None, None])"),
        ),
        0,
        "the kept tokens hidden",
    ),
    (
        "the chunk hidden",
        but("chunk_mask", (VISIBLE, f"({VISIBLE}) & (np.arange(capacity) < held[:, None, None])")),
        0,
        "the chunk hidden",
    ),
    ("itself alone", but("chunk_mask", ("<=", "==")), 0, "each token seeing itself alone"),
    ("numbers", but("chunk_mask", (VISIBLE, f"({VISIBLE}).astype(int)")), 0, "not bool"),
    (
        "the last slot never used",
        but(
            "chunk_mask", (VISIBLE, "np.arange(capacity) <= at.clip(max=capacity - 2)[:, :, None]")
        ),
        1 / 4,
        "1 of 100 elements are wrong",
    ),
    ("no batch", but("chunk_mask", (VISIBLE, f"({VISIBLE})[0]")), 0, "has the shape"),
    ("transposed", but("chunk_mask", (VISIBLE, f"({VISIBLE}).swapaxes(1, 2)")), 0, "transposed"),
    (
        "a batch of three at most",
        "def chunk_mask(held, n_new, capacity):\n"
        "    mask = np.zeros((len(held), n_new, capacity), bool)\n"
        "    for b, n in enumerate(held):\n"
        "        for i in range(min(n_new, 3) if len(held) == 1 else n_new):\n"
        "            mask[b, i, : n + i + 1] = True\n"
        "    return mask",
        2 / 4,
        "",
    ),
]

SLOTS_READ = [
    (
        "an index",
        but("slots_read", ("np.argmin(misses)) + 1", "np.argmin(misses))")),
        0,
        "an index",
    ),
    (
        "the filled ones",
        "def slots_read(q, keys, values, read):\n    return int(keys.any(axis=1).sum())",
        0,
        "the slots that are filled",
    ),
    ("no scale", but("slots_read", ("len(q) ** 0.5", "1")), 0, "not divided by the root"),
    (
        "equality",
        but("slots_read", ("return int(np.argmin(misses)) + 1", "return misses.index(0.0) + 1")),
        0,
        "ValueError",
    ),
    (
        "near equality",
        but(
            "slots_read",
            (
                "return int(np.argmin(misses)) + 1",
                "return next((i + 1 for i, x in enumerate(misses) if x < 1e-12), None)",
            ),
        ),
        2 / 3,
        "computed in float32",
    ),
    (
        "a way through without a return",
        but("slots_read", ("    return int", "    if np.argmin(misses) < 9:\n        return int")),
        1 / 3,
        "on every way through",
    ),
    (
        "the whole buffer",
        "def slots_read(q, keys, values, read):\n    return len(keys)",
        0,
        "the whole buffer",
    ),
    (
        "a constant",
        "def slots_read(q, keys, values, read):\n    return 10",
        0,
        "number of slots",
    ),
]

FORMULA = "n_blocks * (12 * new * d_model**2 + 2 * pairs * d_model)"
LEFT_OUT = [
    ("one block", but("left_out", ("n_blocks * (12", "1 * (12")), 0, "the formula of one block"),
    ("all of it", but("left_out", (FORMULA, "0 * new")), 0, "with nothing taken off it"),
    (
        "squares",
        but("left_out", ("2 * pairs * d_model)", '2 * table["n_tokens"] ** 2 * d_model)')),
        0,
        "n_tokens² pairs",
    ),
    (
        "every token's layers",
        but("left_out", ("12 * new *", '12 * table["n_tokens"] *')),
        0,
        "12 d² for each token",
    ),
    (
        "not rounded",
        but("left_out", ("tuple(int(number) for number in found.round())", "found")),
        0,
        "Round before you return it",
    ),
    (
        "the reverse order",
        but("left_out", ("found.round())", "found.round()[::-1])")),
        1 / 3,
        "in the reverse order",
    ),
    (
        "a number a block",
        but("left_out", ("found.round())", "(found / n_blocks).round())")),
        0,
        "a number a block",
    ),
    ("cut off", but("left_out", ("found.round())", "found * (1 - 1e-12))")), 0, "int() cuts off"),
    (
        "only what grows with the new tokens",
        but(
            "left_out",
            ("tuple(int(number) for number in found.round())", "(0, int((rest / new).mean()), 0)"),
        ),
        1 / 3,
        "What is left for a pass",
    ),
    (
        "hers",
        "def left_out(table, d_model, n_blocks):\n    return 0, 5856, 0",
        0,
        "(d_model 32)",
    ),
]

POWER_FIT = [
    (
        "half logarithmic",
        but("power_fit", ("np.polyfit(np.log(n),", "np.polyfit(n,")),
        0,
        "take the logarithm of both",
    ),
    (
        "no logarithms",
        but("power_fit", ("np.polyfit(np.log(n), np.log(times), 1)", "np.polyfit(n, times, 1)")),
        0,
        "take logarithms first",
    ),
    (
        "axes swapped",
        but(
            "power_fit",
            ("np.polyfit(np.log(n), np.log(times), 1)", "np.polyfit(np.log(times), np.log(n), 1)"),
        ),
        0,
        "log(n) over log(time)",
    ),
    (
        "the ends",
        but(
            "power_fit",
            ("float(exponent),", "np.log(times[-1] / times[0]) / np.log(n[-1] / n[0]),"),
        ),
        1 / 2,
        "a fit uses all",
    ),
    (
        "measured over fitted",
        but("power_fit", ("fitted / times - 1", "times / fitted - 1")),
        1 / 2,
        "measured over fitted",
    ),
    (
        "logarithms",
        but("power_fit", ("fitted / times - 1", "np.log(fitted / times)")),
        1 / 2,
        "a difference of logarithms",
    ),
    (
        "no absolute value",
        but("power_fit", ("np.abs(fitted / times - 1)", "(fitted / times - 1)")),
        1 / 2,
        "without the absolute value",
    ),
    (
        "the largest below",
        but("power_fit", ("np.abs(fitted / times - 1)", "(1 - fitted / times)")),
        1 / 2,
        "The largest miss",
    ),
    ("the mean", but("power_fit", (".max())", ".mean())")), 1 / 2, "the mean of the misses"),
    ("ms", but("power_fit", ("fitted / times - 1", "fitted - times")), 1 / 2, "milliseconds"),
    ("per cent", but("power_fit", (".max())", ".max() * 100)")), 1 / 2, "a share, or per cent"),
    (
        "the printed numbers",
        "def power_fit(n, times):\n    return (1.80, 0.234) if times[0] > 50 else (1.15, 0.104)",
        0,
        "The exponent (uncached_ms)",
    ),
]

COLLECTED_SHARE = [
    (
        "multiplications",
        but("collected_share", ("flops = 2 *", "flops = 1 *")),
        0,
        "rated in FLOPs",
    ),
    (
        "keys only",
        but("collected_share", ('m["n_kv_heads"] * per_head', 'm["n_kv_heads"] / 2 * per_head')),
        0,
        "keys without values",
    ),
    (
        "kept for every query head",
        but("collected_share", ('n_bytes += m["n_kv_heads"]', 'n_bytes += m["n_heads"]')),
        2 / 4,
        "kept once for each key/value head",
    ),
    (
        "few heads multiply",
        but("collected_share", ('m["n_heads"] * per_head', 'm["n_kv_heads"] * per_head')),
        2 / 4,
        "every query head does",
    ),
    (
        "one width for all",
        but("collected_share", ('per_head * m["kv_bytes"]', 'per_head * m["weight_bytes"]')),
        0,
        "of weight_bytes bytes",
    ),
    (
        "weights only",
        but("collected_share", ("per_head = 2", "per_head = 0")),
        0,
        "left out: in long",
    ),
    ("a layer", but("collected_share", ('m["n_layers"] * ', "")), 0, "one layer"),
    ("not capped", but("collected_share", ("min(1.0,", "max(0.0,")), 3 / 4, "more than all"),
    (
        "upside down",
        but("collected_share", ("flops / n_bytes / ridge", "n_bytes * ridge / flops")),
        0,
        "the quotient upside down",
    ),
    (
        "0.5 of everything",
        "def collected_share(model, n_tokens, machine):\n    return 0.5",
        0,
        "too large",
    ),
]

GAPS = [
    (
        "no noise",
        but("gaps", ("np.sort(logits + noise, axis=1)", "np.sort(logits, axis=1)")),
        0,
        "what is drawn has noise added",
    ),
    (
        "probabilities",
        but(
            "gaps",
            (
                "    scores = np.sort(logits + noise, axis=1)",
                "    scores = np.exp(logits + noise)\n"
                "    scores = np.sort(scores / scores.sum(1, keepdims=True), axis=1)",
            ),
        ),
        0,
        "gaps of probabilities",
    ),
    ("the smallest", but("gaps", ("scores[:, -2]", "scores[:, 0]")), 0, "largest and the smallest"),
    (
        "negative",
        but("gaps", ("scores[:, -1] - scores[:, -2]", "scores[:, -2] - scores[:, -1]")),
        0,
        "second and the first, below 0",
    ),
    ("the wrong axis", but("gaps", ("noise, axis=1)", "noise, axis=0)")), 0, "elements are wrong"),
    ("one moves", but("gaps", ("> 2 * off", "> off")), 1 / 3, "one logit moving"),
    ("the others", but("gaps", ("> 2 * off", "<= 2 * off")), 1 / 3, "the steps that may flip"),
    (
        "a share",
        but(
            "gaps",
            (
                "int((gaps(logits, noise) > 2 * off).sum())",
                "(gaps(logits, noise) > 2 * off).mean()",
            ),
        ),
        1 / 3,
        "a share, where a number of steps",
    ),
    (
        "counted without noise",
        but("gaps", ("gaps(logits, noise) > 2", "gaps(logits, 0 * noise) > 2")),
        1 / 3,
        "gaps of the logits alone",
    ),
    (
        "the visible counts",
        but("gaps", ("int((gaps(logits, noise) > 2 * off).sum())", "{0.3: 128, 0.05: 181}[off]")),
        1 / 3,
        "",
    ),
]

FLIP_CHANCES = [
    (
        "edges",
        but("flip_chances", ("float(1 - both.sum())", "np.abs(p_ends - r_ends).sum()")),
        2 / 4,
        "how far the edges move",
    ),
    (
        "the least for the first",
        but("flip_chances", ("float(1 - both.sum())", "float(least)")),
        2 / 4,
        "the order of the alphabet counts",
    ),
    (
        "independent numbers",
        but("flip_chances", ("float(1 - both.sum())", "1 - (p * r).sum()")),
        2 / 4,
        "two numbers drawn independently",
    ),
    (
        "agreement",
        but("flip_chances", ("float(1 - both.sum())", "both.sum()")),
        2 / 4,
        "the chance that the draws agree",
    ),
    (
        "the least for Gumbel noise",
        but("flip_chances", ("float(1 - wins.sum())", "float(least)")),
        2 / 4,
        "Gumbel noise needs a little more",
    ),
    (
        "independent noise",
        but("flip_chances", ("float(1 - wins.sum())", "1 - (p * r).sum()")),
        2 / 4,
        "noise drawn independently",
    ),
    (
        "agreement with noise",
        but("flip_chances", ("float(1 - wins.sum())", "wins.sum()")),
        2 / 4,
        "with Gumbel noise is not right. It looks like the chance that the draws agree",
    ),
    (
        "not halved",
        but("flip_chances", (".sum() / 2", ".sum()")),
        2 / 4,
        "one symbol loses",
    ),
    (
        "the largest",
        but("flip_chances", ("np.abs(p - r).sum() / 2", "np.abs(p - r).max()")),
        2 / 4,
        "the largest difference",
    ),
    (
        "agreement at best",
        but("flip_chances", ("float(least)", "float(1 - least)")),
        2 / 4,
        "The least chance is not right. It looks like the chance that the draws agree",
    ),
    (
        "exp overflows",
        but("flip_chances", ("np.exp(x - x.max())", "np.exp(x)")),
        3 / 4,
        "overflows",
    ),
    (
        "quotients of probabilities, 0 / 0 among them",
        but(
            "flip_chances",
            (
                "np.maximum(*(x - x[:, None] for x in (logits, other)))",
                "np.maximum(p / p[:, None], r / r[:, None])",
            ),
            ("np.exp(np.minimum(logs, 700))", "logs"),
        ),
        3 / 4,
        "0 / 0 is nan",
    ),
    (
        "a simulation",
        but(
            "flip_chances",
            (
                "float(1 - both.sum())",
                "np.mean([np.searchsorted(p_ends, u) != np.searchsorted(r_ends, u)"
                " for u in np.linspace(0, 1, 999)])",
            ),
        ),
        2 / 4,
        "The chance with a running sum",
    ),
]

WRONG = {
    "derivation-rows_fed": ROWS_FED,
    "derivation-attention_step": ATTENTION_STEP,
    "derivation-disagreement": DISAGREEMENT,
    "derivation-chunk_mask": CHUNK_MASK,
    "derivation-slots_read": SLOTS_READ,
    "derivation-left_out": LEFT_OUT,
    "derivation-power_fit": POWER_FIT,
    "derivation-collected_share": COLLECTED_SHARE,
    "derivation-gaps": GAPS,
    "derivation-flip_chances": FLIP_CHANCES,
}
