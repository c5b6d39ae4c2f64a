"""Multiplications of a `charmodel`: of one pass, and of the loop that generates, in closed form.

Counted are the multiplications of the matrix products, as written: a score for every pair of a
query and a key, also where the causal mask throws it away. Everything else in a step (norms, GELU,
softmax, embedding) multiplies too, but in proportion to d_model and not to its square.

A loop of n makes n steps; at step t, from 1 to n, the sequence is t tokens long. Without a cache
the step computes all t of them, with one it computes the last. So the sums are
1 + 2 + ... + n = n (n + 1) / 2 and 1 + 4 + ... + n² = n (n + 1) (2 n + 1) / 6.
"""

import numpy as np

from labsupport.charmodel import CharConfig
from labsupport.kvcache import whole_number

HEADS = ("every", "last", "none")  # positions whose logits are computed


def multiplications(config, n_new, n_tokens, head_rows=None):
    """Multiplications of one pass over the last `n_new` of `n_tokens`, by kind: {kind: int}.

    qkv, o, up, down   the linear layers of all blocks
    scores, values     q·k, and reading the values: every query with every key
    head               the logits of `head_rows` positions (default: of all that are new)

    Raises ValueError or TypeError unless 1 <= n_new <= n_tokens and 0 <= head_rows <= n_new.
    """
    n_new = whole_number("n_new", n_new, at_least=1)
    n_tokens = whole_number("n_tokens", n_tokens, at_least=n_new)
    rows = n_new if head_rows is None else whole_number("head_rows", head_rows, at_least=0)
    if rows > n_new:
        raise ValueError(f"head_rows must be at most the {n_new} new tokens, not {rows}")
    d, d_kv = config.d_model, config.n_kv_heads * config.head_dim
    in_a_block = {
        "qkv": n_new * d * (d + 2 * d_kv),
        "o": n_new * d * d,
        "up": n_new * d * 4 * d,
        "down": n_new * 4 * d * d,
        "scores": n_new * n_tokens * d,
        "values": n_new * n_tokens * d,
    }
    by_kind = {kind: config.n_blocks * count for kind, count in in_a_block.items()}
    return by_kind | {"head": rows * d * config.vocab_size}


def loop(config, n, cached, head="every"):
    """Multiplications of a loop of `n` steps, in closed form.

    head   "every": the logits of each position that a step computes, as a plain call of the model
           does; "last": of the one position that is used; "none": not counted. With a cache
           "every" and "last" are the same.
    """
    n = whole_number("n", n, at_least=1)
    if head not in HEADS:
        raise ValueError(f"head must be one of {', '.join(HEADS)}, not {head!r}")
    once = multiplications(config, 1, 1)  # of one token among one: what the sums multiply
    per_pair = once["scores"] + once["values"]
    linear = once["qkv"] + once["o"] + once["up"] + once["down"]
    tokens = n * (n + 1) // 2  # 1 + 2 + ... + n
    squares = tokens * (2 * n + 1) // 3  # 1 + 4 + ... + n²
    rows = {"every": n if cached else tokens, "last": n, "none": 0}[head]
    if cached:
        return n * linear + tokens * per_pair + rows * once["head"]
    return tokens * linear + squares * per_pair + rows * once["head"]


def ratio(config, n, head="every"):
    """How many times fewer multiplications a loop of `n` makes with a cache."""
    return loop(config, n, False, head) / loop(config, n, True, head)


def printed(d, n):
    """The ratio as the source's formula gives it: 12 t d² + 2 t² d against 12 d² + 2 t d, summed.

    The number of blocks cancels, and the head is not in it.
    """
    return with_head(d, n, vocab_size=1, n_blocks=1, head="none")


def with_head(d, n, vocab_size, n_blocks=3, head="every"):
    """The ratio with the output head counted; any `vocab_size` from 0."""
    config = CharConfig(vocab_size=max(vocab_size, 1), d_model=d, n_blocks=n_blocks, n_heads=1)
    return ratio(config, n, head if vocab_size else "none")


def summed(d, n, vocab_size, n_blocks=3, head="every", first=1, triangle=False, context=None):
    """The same ratio by adding up the steps, which also allows other ways of counting.

    first      tokens at the first step, those of a prompt among them
    triangle   only scores that the causal mask lets through: t (t + 1) / 2 of t²
    context    the loop feeds at most so many tokens; only the side without a cache crops
    """
    t = np.arange(first, first + n)
    fed = t if context is None else np.minimum(t, context)
    pairs = fed * (fed + 1) // 2 if triangle else fed * fed
    rows = {"every": fed, "last": np.ones_like(t), "none": np.zeros_like(t)}[head]
    linear, pair, logits = 12 * d * d * n_blocks, 2 * d * n_blocks, d * vocab_size
    without = int((linear * fed + pair * pairs + logits * rows).sum())
    cached = int((linear + pair * t + logits * (head != "none")).sum())
    return without / cached


def vocabularies_that_fit(table, most=1000, **counting):
    """The vocabularies, from 0 to `most`, whose ratios round to all those of a table: a list.

    table      rows (d, n, ratio printed with one decimal)
    counting   n_blocks, head, first, triangle, context of `summed`
    """
    return [
        v
        for v in range(most + 1)
        if all(round(summed(d, n, v, **counting), 1) == printed for d, n, printed in table)
    ]


def n_parameters(config):
    """Numbers in all weights of a `CharModel` of this config."""
    d, d_kv, v = config.d_model, config.n_kv_heads * config.head_dim, config.vocab_size
    linear = d * (d + 2 * d_kv) + d * d + 8 * d * d
    biases = d + 2 * d_kv + d + 4 * d + d
    norms = 2 * 2 * d
    ends = v * d + config.context * d + 2 * d + d * v + v  # embeddings, last norm, head
    return config.n_blocks * (linear + biases + norms) + ends


def numbers_read(config, n_tokens):
    """Numbers that a step for the last of `n_tokens` has to read: weights, keys and values.

    Of the two tables, of tokens and of positions, it reads a row each.
    """
    c, d_kv = config, config.n_kv_heads * config.head_dim
    other_rows = (c.vocab_size + c.context - 2) * c.d_model
    return n_parameters(c) - other_rows + 2 * c.n_blocks * d_kv * n_tokens


def vocabulary_of(n_numbers, config):
    """The vocabulary with which a model otherwise like `config` has so many numbers in its weights.

    Raises ValueError when none gives just that number.
    """
    d = config.d_model
    in_a_symbol = 2 * d + 1  # its embedding, its column of the head, its bias
    left = n_numbers - n_parameters(config) + config.vocab_size * in_a_symbol
    if left <= 0 or left % in_a_symbol:
        raise ValueError(f"no vocabulary gives {n_numbers:,} numbers with {config}")
    return left // in_a_symbol
