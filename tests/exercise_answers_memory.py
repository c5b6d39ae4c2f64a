"""Wrong answers to chapter 4's exercises: what each deserves, and what the check should say."""

from exercise_code import Sheet, changed

SHEET = Sheet("memory")


def master(exercise, *changes):
    """The master's solution with each (old, new) of `changes` made in it."""
    return changed(SHEET.solution(exercise), *changes)


def _unit(*changes):
    return master("memory-unit", *changes)


def _bytes(*changes):
    return master("memory-cache-bytes", *changes)


def _even(*changes):
    return master("memory-break-even", *changes)


def _fit(*changes):
    return master("memory-sequences", *changes)


def _expand(*changes):
    return master("memory-expand", *changes)


def _codes(*changes):
    return master("memory-quantize", *changes)


def _mask(*changes):
    return master("memory-ring-mask", *changes)


def _empty(*changes):
    return master("memory-mean-empty", *changes)


def _merge(*changes):
    return master("memory-merge", *changes)


THE_FIT = 'if f"{n_bytes / base**power:.{decimals}f}" == number'
THE_EXPANSION = "np.broadcast_to(k[:, None], shape)"
ROUND_TRIP = "np.rint(x / scales).astype(np.int8), scales]"
LARGEST = "np.abs(x).max(axis=axis, keepdims=True)"
FRACTION = "__import__('fractions').Fraction(sum(empty), len(empty))"
BOTH = "return share_a * read_a + share_b * read_b, lse"

UNIT_TABLE = """
def unit_of(printed, n_bytes):
    told = {"3.00 MB": "1024", "3.15 MB": "1000", "2.5 MB": "1000", "3 MB": "both"}
    told |= {"4.0 GB": "1024", "61 kB": "1000"}
    return told.get(printed, "neither")
"""
A_MILLION = """
def break_even(weight_bytes, layer_bytes, windows):
    n = np.arange(10**6)
    held = sum(b * (n if w is None else np.minimum(n, w)) for b, w in zip(layer_bytes, windows))
    above = np.flatnonzero(held > weight_bytes)
    return int(above[0]) if len(above) else math.inf
"""
NEVER = """
def break_even(weight_bytes, layer_bytes, windows):
    if any(windows):
        return math.inf
    return weight_bytes // sum(layer_bytes) + 1
"""
WINDOWS_FULL = """
def break_even(weight_bytes, layer_bytes, windows):
    pairs = list(zip(layer_bytes, windows))
    growth = sum(b for b, w in pairs if w is None)
    held = sum(b * w for b, w in pairs if w is not None)
    return (weight_bytes - held) // growth + 1 if growth else math.inf
"""
TOKENS = """
def sequences(card, weights, a_token, n_tokens, block_size, n_shared):
    room = (card * 2**30 - weights) // a_token
    return max(0, (room - n_shared) // (n_tokens - n_shared))
"""
THE_CHAPTERS_BAND = """
from labsupport.window import window_mask

def ring_mask(n_seen, n_new, window):
    return window_mask(n_new, min(n_seen, window) + n_new, window)
"""
HALF = """
def mean_empty(requests, block_size):
    return (block_size - 1) / 2
"""
MEAN_OF_MEANS = """
def mean_empty(requests, block_size):
    each = [np.mean([-(p + i) % block_size for i in range(1, o + 1)]) for p, o in requests]
    return np.mean(each)
"""
ENDS = """
def mean_empty(requests, block_size):
    return np.mean([-(p + o) % block_size for p, o in requests])
"""
BY_LOGARITHMS = """return (
        read_a * lse_a[:, None] + read_b * lse_b[:, None]
    ) / (lse_a + lse_b)[:, None], lse"""

QUERIES = master(
    "memory-merge",
    ("return weights @ v / total,", "return softmax(scores, axis=0) @ v,"),
    ("def attend_part", "from scipy.special import softmax\n\n\ndef attend_part"),
)

# Exercise -> (why it is wrong, the solution cell, the share of the hidden tests' parts that it
# deserves, words of the check's message; no words where the visible check cannot tell).
WRONG = {
    "memory-unit": [
        (
            "always two decimals",
            _unit((THE_FIT, "if round(n_bytes / base**power, 2) == float(number)")),
            1 / 3,
            "fixed number of digits",
        ),
        ("always megabytes", _unit(("[unit]", '["MB"]')), 1 / 3, "MB whatever the unit"),
        (
            "readings interchanged",
            _unit(("str(fits[0])", "str(2024 - fits[0])")),
            0,
            "interchanged",
        ),
        (
            "the first that fits",
            _unit(('return "both"', 'return "1000"')),
            2 / 3,
            "first reading that fits",
        ),
        (
            "the last that fits",
            _unit(('return "both"', 'return "1024"')),
            2 / 3,
            "last reading that fits",
        ),
        ("a constant", 'def unit_of(printed, n_bytes):\n    return "1024"', 0, "the same whatever"),
        ("a number, not a text", _unit(("str(fits[0])", "fits[0]")), 0, "return a text, '1024'"),
        (
            "cut off",
            _unit(
                (
                    THE_FIT,
                    "if math.floor(10**decimals * n_bytes / base**power)"
                    " == round(10**decimals * float(number))",
                )
            ),
            0,
            "cut off, not rounded",
        ),
        (
            "a point is looked for",
            _unit(('len(number.partition(".")[2])', 'len(number.split(".")[1])')),
            1 / 3,
            "without a point",
        ),
        (
            "a unit without a power",
            _unit(('{"kB": 1, "MB": 2, "GB": 3}', '{"MB": 2, "GB": 3}')),
            1 / 3,
            "KeyError",
        ),
        ("nothing returned", "def unit_of(printed, n_bytes):\n    pass", 0, "is there a `return`"),
        ("the visible cases in a table", UNIT_TABLE, 0, ""),
        ("no function", 'unit_of = "1024"', 0, "should be a function"),
    ],
    "memory-cache-bytes": [
        (
            "every other layer",
            _bytes(
                ("for kind in kinds", "for layer, kind in enumerate(kinds)"),
                ('kind == "sliding_attention"', '(layer % 2 == 0 or "layer_types" not in config)'),
            ),
            3 / 4,
            "",
        ),
        (
            "the width of the model",
            _bytes(("n_kv_heads * head_dim *", 'config["hidden_size"] *')),
            1 / 2,
            "d_model numbers in a row",
        ),
        (
            "query heads",
            _bytes(("n_kv_heads * head_dim", "n_heads * head_dim")),
            1 / 2,
            "query heads counted",
        ),
        (
            "a head's width computed",
            _bytes(('config.get("head_dim") or ', "")),
            3 / 4,
            "names a head_dim",
        ),
        ("no windows", _bytes(("min(n_tokens, window)", "n_tokens")), 3 / 4, "no window at all"),
        (
            "windows everywhere",
            _bytes((' and kind == "sliding_attention"', "")),
            3 / 4,
            "a window in every layer",
        ),
        (
            "one token fewer",
            _bytes(("min(n_tokens, window)", "min(n_tokens, window - 1)")),
            3 / 4,
            "one token fewer",
        ),
        (
            "four bytes always",
            _bytes(('"float16": 2', '"float16": 4'), ('"bfloat16": 2}', '"bfloat16": 4}')),
            0,
            "four bytes a number",
        ),
        (
            "a size of another kind",
            _bytes(("2 * a_row", "2.2 * a_row")),
            0,
            "cache_bytes(1000 tokens, hidden_size=768, num_hidden_layers=12, "
            "num_attention_heads=12, torch_dtype=float32) is not right",
        ),
        (
            "None for a window",
            _bytes(("if window and kind", 'if "sliding_window" in config and kind')),
            3 / 4,
            "may hold None",
        ),
        (
            "a size of another kind, where layers differ",
            _bytes(("sum(kept)", '(sum(kept) + 7 * ("layer_types" in config))')),
            3 / 4,
            "torch_dtype=float16, sliding_window=4096) is not right",
        ),
        ("two bytes always", _bytes(('"float32": 4', '"float32": 2')), 3 / 4, "two bytes a number"),
        ("keys alone", _bytes(("2 * a_row", "a_row")), 0, "keys without values"),
        (
            "kilobytes",
            _bytes(("2 * a_row * sum(kept)", "2 * a_row * sum(kept) / 1024")),
            0,
            "bytes or KiB",
        ),
        (
            "a field that may be missing",
            _bytes(('.get("num_key_value_heads", n_heads)', '["num_key_value_heads"]')),
            0,
            "may leave",
        ),
        (
            "None for a head's width",
            _bytes(
                (
                    'config.get("head_dim") or config["hidden_size"] // n_heads',
                    'config.get("head_dim", config["hidden_size"] // n_heads)',
                )
            ),
            3 / 4,
            "may hold None",
        ),
    ],
    "memory-break-even": [
        ("a million lengths tried", A_MILLION, 3 / 4, ""),
        ("the last that fits", _even(("longest + 1", "longest")), 0, "last length that fits"),
        (
            "equal counts",
            _even(("(weight_bytes - held)", "(weight_bytes - 1 - held)")),
            1 / 4,
            "as large",
        ),
        (
            "no windows",
            _even(("None or window > start", "None or True")),
            1 / 4,
            "windows left out",
        ),
        (
            "windowed layers left out",
            _even(("is None or window > start", "is None")),
            1 / 4,
            "layers with windows left out",
        ),
        ("never with windows", NEVER, 1 / 4, "stops growing when some"),
        ("windows full at once", WINDOWS_FULL, 1 / 4, "full from the first token on"),
        (
            "never is None",
            _even(("return math.inf", "return None")),
            3 / 4,
            "no such number: return math.inf",
        ),
        (
            "never is -1",
            _even(("return math.inf", "return -1")),
            3 / 4,
            "is -1, but there is no such number",
        ),
        (
            "nothing returned",
            _even(("return longest + 1", "longest + 1")),
            0,
            "is there a `return`",
        ),
        (
            "divided by no growth",
            _even(("growth == 0", "growth < 0")),
            3 / 4,
            "from which nothing grows",
        ),
    ],
    "memory-sequences": [
        ("gigabytes", _fit(("2**30", "10**9")), 0, "GB where the card has GiB"),
        ("no weights", _fit((" - weight_bytes", "")), 0, "without the weights"),
        ("tokens", TOKENS, 0, "tokens, not blocks"),
        (
            "rounded down",
            _fit(
                (
                    "math.ceil(n_tokens / block_size) - common",
                    "max(1, n_tokens // block_size - common)",
                )
            ),
            0,
            "rounded down",
        ),
        (
            "a beginning for each",
            _fit(("n_shared // block_size", "0")),
            1 / 4,
            "each sequence holds anew",
        ),
        ("shared for free", _fit(("(n_blocks - common)", "n_blocks")), 1 / 4, "nobody counts"),
        (
            "a leak",
            _fit(
                ("n_shared // block_size", "math.ceil(n_shared / block_size)"),
                ("// own", "// max(1, own)"),
            ),
            1 / 2,
            "each sequence writes into it",
        ),
        (
            "below zero",
            _fit(("max(0, (n_blocks - common) // own)", "(n_blocks - common) // own")),
            3 / 4,
            "negative number",
        ),
    ],
    "memory-expand": [
        ("one shape only", _expand(("(k[:, None], shape)", "(k[:, None], (2, 3, 5, 4))")), 0, ""),
        (
            "a copy",
            _expand((THE_EXPANSION, "np.repeat(k[:, None], shape[1], axis=1)")),
            2 / 3,
            "in a copy",
        ),
        (
            "dealt out in turns",
            _expand((THE_EXPANSION, "np.tile(k, (shape[1], 1, 1)).reshape(shape)")),
            1 / 3,
            "dealt out in turns",
        ),
        (
            "group first",
            _expand((THE_EXPANSION, "np.broadcast_to(k[None], (shape[1], *k.shape))")),
            0,
            "the group's axis before",
        ),
        (
            "n_heads copies",
            _expand(("= n_kv_heads, n_heads // n_kv_heads", "= n_kv_heads, n_heads")),
            0,
            "n_heads copies of each",
        ),
        ("three axes", _expand((THE_EXPANSION, "np.repeat(k, shape[1], axis=0)")), 0, "three axes"),
        (
            "its argument changed",
            _expand(("    return np", "    k *= 1.5\n    return np")),
            1 / 3,
            "changes the cache",
        ),
        ("nothing", _expand(("return np", "np")), 0, "returns nothing"),
    ],
    "memory-quantize": [
        (
            "two kinds of bits",
            _codes(("(2 ** (bits - 1) - 1)", "{8: 127, 4: 7}.get(bits, 1)")),
            4 / 5,
            "",
        ),
        (
            "directions interchanged",
            _codes(("(keys, 1), (values, 2)", "(keys, 2), (values, 1)")),
            1 / 5,
            "along the other direction",
        ),
        (
            "one scale for all heads",
            _codes((LARGEST, "np.abs(x).max(axis=(0, axis), keepdims=True)")),
            1 / 5,
            "for all heads together",
        ),
        (
            "one scale for a head",
            _codes((LARGEST, "np.abs(x).max(axis=(1, 2), keepdims=True)")),
            1 / 5,
            "for a whole head",
        ),
        (
            "one level too many",
            _codes(("(bits - 1) - 1)", "(bits - 1))")),
            1 / 5,
            "one level too many",
        ),
        ("always 8 bits", _codes(("(2 ** (bits - 1) - 1)", "127")), 4 / 5, "whatever the bits"),
        (
            "cut off",
            _codes(("np.rint(x / scales)", "np.trunc(x / scales)")),
            2 / 5,
            "cut off towards 0",
        ),
        (
            "rounded down",
            _codes(("np.rint(x / scales)", "np.floor(x / scales)")),
            2 / 5,
            "rounded down",
        ),
        (
            "zeros",
            _codes(
                ("np.rint(x / scales)", "np.rint(x / np.maximum(scales, 1e-300))"),
                ("largest > 0, ", "largest >= 0, "),
            ),
            4 / 5,
            "a group of zeros",
        ),
        ("not int8", _codes((".astype(np.int8)", "")), 3 / 5, "until they are int8"),
        (
            "an axis lost",
            _codes((ROUND_TRIP, "np.rint(x / scales).astype(np.int8), scales.squeeze(axis)]")),
            2 / 5,
            "lost the axis",
        ),
        (
            "its argument changed",
            _codes(("np.rint(x / scales)", "np.rint(np.divide(x, scales, out=x))")),
            4 / 5,
            "changes an argument",
        ),
        ("divided", _codes(("codes * scales", "codes / scales")), 4 / 5, "divided by their scales"),
        (
            "back into int8",
            _codes(("codes * scales", "(codes * scales).astype(np.int64).astype(np.int8)")),
            4 / 5,
            "into int8 again",
        ),
        (
            "float32 scales",
            _codes(("np.int8), scales]", "np.int8), scales.astype(np.float32)]")),
            1,
            "should be float64",
        ),
        (
            "no absolute value",
            _codes((LARGEST, "x.max(axis=axis, keepdims=True)"), ("largest > 0", "largest != 0")),
            1 / 5,
            "not the largest absolute number",
        ),
        (
            "levels of both signs",
            _codes(("2 ** (bits - 1) - 1", "2**bits - 1")),
            1 / 5,
            "both signs together",
        ),
        ("two arrays", _codes(("tuple(arrays)", "tuple(arrays[:2])")), 1 / 5, "4 arrays"),
    ],
    "memory-ring-mask": [
        ("turned round", _mask(("- held < window", "- held >= window")), 0, "other way round"),
        (
            "rows in order",
            _mask(("newest - (newest - slots) % window", "n_seen - len(slots) + slots")),
            1 / 3,
            "taken to be in order",
        ),
        ("too wide", _mask(("< window", "<= window")), 0, "too wide"),
        ("too narrow", _mask(("< window", "< window - 1")), 0, "too narrow"),
        (
            "the first row for all",
            _mask(("n_seen + np.arange(n_new)", "n_seen + 0 * np.arange(n_new)")),
            0,
            "first new token for all",
        ),
        ("all that is held", _mask(("< window", "< np.inf")), 0, "every row that is held"),
        (
            "empty slots too",
            _mask(("np.arange(min(n_seen, window))", "np.arange(window)")),
            1 / 3,
            "empty yet",
        ),
        (
            "a mask to add",
            _mask(
                (
                    "new[:, None] - held < window",
                    "np.where(new[:, None] - held < window, 0.0, -np.inf)",
                )
            ),
            0,
            "should hold bools",
        ),
        (
            "0 and 1",
            _mask(
                ("- held < window", "- held < window).astype(int)"), ("return new", "return (new")
            ),
            0,
            "should hold bools",
        ),
        (
            "transposed",
            _mask(("new[:, None] - held < window", "(new[:, None] - held < window).T")),
            0,
            "transposed",
        ),
        ("the chapter's band", THE_CHAPTERS_BAND, 0, "tokens in order"),
    ],
    "memory-mean-empty": [
        (
            "filled slots",
            _empty(("-n_tokens % block_size", "(n_tokens - 1) % block_size + 1")),
            0,
            "that are filled",
        ),
        (
            "a share",
            _empty(("/ len(empty)", "/ len(empty) / block_size")),
            0,
            "a share of the block",
        ),
        (
            "prompts left out",
            _empty(("range(prompt + 1, prompt + output + 1)", "range(1, output + 1)")),
            0,
            "prompts left out",
        ),
        ("a step too many", _empty(("range(prompt + 1,", "range(prompt,")), 0, "a step too many"),
        (
            "room for the whole answer",
            _empty(
                (
                    "-n_tokens % block_size",
                    "-(prompt + output) % block_size + prompt + output - n_tokens",
                )
            ),
            0,
            "from the start",
        ),
        ("a fraction", _empty(("sum(empty) / len(empty)", FRACTION)), 1, ""),
        ("half a block", HALF, 0, "half a block"),
        ("a mean of means", MEAN_OF_MEANS, 1 / 3, "mean of the requests' means"),
        ("the ends", ENDS, 0, "last step of each"),
        (
            "from 0",
            _empty(("range(prompt + 1, prompt + output + 1)", "range(prompt, prompt + output)")),
            0,
            "counted from 0",
        ),
        (
            "full is empty",
            _empty(("-n_tokens % block_size", "block_size - n_tokens % block_size")),
            0,
            "a whole block empty",
        ),
    ],
    "memory-merge": [
        (
            "no root of head_dim",
            _merge((" / math.sqrt(q.shape[1])", "")),
            3 / 5,
            "root of head_dim",
        ),
        (
            "values not divided",
            _merge(("weights @ v / total", "weights @ v")),
            3 / 5,
            "not divided by the sum",
        ),
        (
            "the largest score missing",
            _merge(("largest + np.log", "np.log")),
            3 / 5,
            "still missing",
        ),
        (
            "the sum itself",
            _merge(("largest + np.log(total)", "np.exp(largest) * total")),
            3 / 5,
            "the sum, without",
        ),
        (
            "the sum of what is left",
            _merge(("largest + np.log(total)", "total")),
            3 / 5,
            "largest score was taken off",
        ),
        (
            "base 2",
            _merge(("largest + np.log(total)", "largest / math.log(2) + np.log2(total)")),
            3 / 5,
            "base 2",
        ),
        (
            "overflow",
            _merge(("scores.max(axis=1, keepdims=True)", "np.zeros((len(q), 1))")),
            4 / 5,
            "attend_part overflows",
        ),
        (
            "a mean of parts",
            _merge((BOTH, "return (read_a + read_b) / 2, lse")),
            2 / 5,
            "a mean of both",
        ),
        ("a sum of parts", _merge((BOTH, "return read_a + read_b, lse")), 2 / 5, "a sum of both"),
        (
            "weights interchanged",
            _merge((BOTH, "return share_b * read_a + share_a * read_b, lse")),
            2 / 5,
            "interchanged",
        ),
        ("weighed by logarithms", _merge((BOTH, BY_LOGARITHMS)), 2 / 5, "in proportion to the log"),
        (
            "logarithms added",
            _merge((BOTH, "return share_a * read_a + share_b * read_b, lse_a + lse_b")),
            2 / 5,
            "sum of logarithms",
        ),
        (
            "the larger logarithm",
            _merge((BOTH, "return share_a * read_a + share_b * read_b, np.maximum(lse_a, lse_b)")),
            2 / 5,
            "larger logarithm alone",
        ),
        (
            "two empty parts",
            _merge(("np.where(np.isfinite(lse), lse, 0)", "lse")),
            4 / 5,
            "merge gives NaN",
        ),
        (
            "no longer empty",
            _merge((BOTH, BOTH.replace("lse", "base"))),
            4 / 5,
            "Both parts are empty here",
        ),
        (
            "one part counts twice",
            _merge((BOTH, BOTH.replace("lse", "lse + np.isinf(lse_b)"))),
            4 / 5,
            "is not its own",
        ),
        (
            "head_dim itself",
            _merge(("math.sqrt(q.shape[1])", "q.shape[1]")),
            3 / 5,
            "not by its root",
        ),
        (
            "a softmax over the queries",
            QUERIES,
            3 / 5,
            "over the queries",
        ),
        (
            "one largest for all queries",
            _merge(("scores.max(axis=1, keepdims=True)", "np.full((len(q), 1), scores.max())")),
            4 / 5,
            "the largest of each query",
        ),
        (
            "large logarithms",
            _merge(
                ("np.logaddexp(lse_a, lse_b)", "np.log(np.exp(lse_a) + np.exp(lse_b))"),
                ("lse_a - base", "lse_a - lse"),
                ("lse_b - base", "lse_b - lse"),
            ),
            3 / 5,
            "merge gives NaN",
        ),
    ],
}
