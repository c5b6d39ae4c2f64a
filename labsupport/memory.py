"""Bytes of a cache, from its shape alone: in closed form, and exact.

    bytes a token and layer = 2 x n_kv_heads x head_dim x bytes of a number

The two stands for keys and values. It has no place in a latent cache, which stores one vector a
token and layer from which both are made (arXiv:2405.04434, section 2.1). The head's width is given
in its own right: n_heads x head_dim need not be d_model. A layer with a window keeps its last
tokens only, so its share stops growing. The token just read is among them: an implementation that
forgets, between steps, what the next step will not see keeps one fewer.

Counted are the numbers that are stored. Storage reserved and not used, the scales of integer
formats and copies that are alive for a moment come on top.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from numbers import Integral, Real

from labsupport import arithmetic
from labsupport.kvcache import whole_number

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1, "int8": 1, "int4": 0.5}


@dataclass(frozen=True)
class CacheShape:
    """What decides how large a cache is.

    n_layers, n_kv_heads, head_dim   of the model; of keys and values as many heads as are stored
    dtype        one of BYTES
    windows      None, or one entry a layer: the most tokens it keeps, None for a layer without
                 such a limit
    latent_dim   numbers a token and layer of a latent cache, in place of 2 x n_kv_heads x head_dim

    Sizes are in bytes, ints; only an odd number of int4 ends in .5. Raises TypeError and ValueError
    for sizes that are no counts, a dtype without an entry, or windows that do not fit the layers.
    """

    n_layers: int
    n_kv_heads: int
    head_dim: int
    dtype: str = "float16"
    windows: tuple | None = None
    latent_dim: int | None = None

    def __post_init__(self):
        for name in ("n_layers", "n_kv_heads", "head_dim"):
            self._set(name, whole_number(name, getattr(self, name), at_least=1))
        _check_dtype(self.dtype)
        if self.latent_dim is not None:
            self._set("latent_dim", whole_number("latent_dim", self.latent_dim, at_least=1))
        if self.windows is not None:
            if isinstance(self.windows, Integral):
                remedy = f"for the same window in all layers give [{self.windows}] * n_layers"
                raise TypeError(f"windows needs an entry a layer, not one int; {remedy}")
            windows = tuple(
                None if window is None else whole_number("a window", window, at_least=1)
                for window in self.windows
            )
            if len(windows) != self.n_layers:
                counts = f"{len(windows)} entries for {self.n_layers} layers"
                raise ValueError(f"windows has {counts}; give one a layer, None for no window")
            self._set("windows", windows)

    @property
    def bytes_per_token(self):
        """What a token adds while no window is full."""
        return self.bytes_per_token_at(0)

    def bytes_per_token_at(self, n_tokens):
        """What the next token adds when `n_tokens` are held: nothing in layers that are full."""
        return _in_bytes(self._growth(whole_number("n_tokens", n_tokens, at_least=0)), self.dtype)

    def bytes_at(self, n_tokens, n_sequences=1):
        """The size with `n_tokens` seen, of `n_sequences` of that length."""
        n_tokens = whole_number("n_tokens", n_tokens, at_least=0)
        n_sequences = whole_number("n_sequences", n_sequences, at_least=0)
        return _in_bytes(n_sequences * self._numbers(n_tokens), self.dtype)

    @property
    def most_bytes(self):
        """The size of one sequence that it cannot exceed; None if a layer keeps all its tokens."""
        if self.windows is None or None in self.windows:
            return None
        return self.bytes_at(max(self.windows))

    def tokens_that_fit(self, budget_bytes):
        """The most tokens of one sequence that fit in a budget; None if any number does."""
        room = _in_numbers("budget_bytes", budget_bytes, self.dtype)
        bends = {0, *(window for window in self.windows or () if window is not None)}
        start = max(bend for bend in bends if self._numbers(bend) <= room)  # from there on straight
        growth = self._growth(start)
        if growth == 0:
            return None
        return start + (room - self._numbers(start)) // growth

    def break_even(self, weight_bytes):
        """The smallest n_tokens whose cache is larger than the weights; None if none is.

        Without windows that is floor(weight_bytes / bytes_per_token) + 1.
        """
        fitting = self.tokens_that_fit(weight_bytes)
        return None if fitting is None else fitting + 1

    def sequences_that_fit(self, budget_bytes, n_tokens):
        """How many sequences of `n_tokens` (at least 1) fit in a budget."""
        n_tokens = whole_number("n_tokens", n_tokens, at_least=1)
        return _in_numbers("budget_bytes", budget_bytes, self.dtype) // self._numbers(n_tokens)

    @property
    def _a_layer(self):
        """Numbers a token and layer."""
        return self.latent_dim or 2 * self.n_kv_heads * self.head_dim

    def _numbers(self, n_tokens):
        if self.windows is None:
            return self._a_layer * self.n_layers * n_tokens
        kept = (n_tokens if window is None else min(n_tokens, window) for window in self.windows)
        return self._a_layer * sum(kept)

    def _growth(self, n_tokens):
        return self._numbers(n_tokens + 1) - self._numbers(n_tokens)

    def _set(self, name, value):
        object.__setattr__(self, name, value)  # a frozen dataclass allows no other way


def source_formula(n_layers, n_tokens, d_model, dtype="float32"):
    """The bytes by the formula that the chapter examines: 2 x blocks x tokens x d x bytes.

    It takes n_kv_heads x head_dim to be d_model in every layer, and every token to be kept.
    """
    n_layers = whole_number("n_layers", n_layers, at_least=1)
    n_tokens = whole_number("n_tokens", n_tokens, at_least=0)
    d_model = whole_number("d_model", d_model, at_least=1)
    return _in_bytes(2 * n_layers * n_tokens * d_model, _check_dtype(dtype))


def weight_bytes(n_parameters, dtype="float16"):
    """The bytes of so many weights, all of one dtype."""
    n_parameters = whole_number("n_parameters", n_parameters, at_least=1)
    return _in_bytes(n_parameters, _check_dtype(dtype))


def shape_of(config, dtype="float32"):
    """The cache's shape of a `CharModel` of this config."""
    return CacheShape(config.n_blocks, config.n_kv_heads, config.head_dim, dtype)


def own_break_even(config):
    """The length at which the cache of a `CharModel` outgrows it, its position table as long.

    A learned table needs a row a token, so the model grows with the length too: n tokens take
    2 n_blocks d_kv n numbers in the cache, and d_model n in the table. The context of `config`
    does not matter, nor does the dtype if both have the same. With 12 d² numbers a block and
    d_kv = d_model the blocks alone give 6 d_model tokens. None if the table grows as fast.
    """
    a_token = config.d_model
    others = arithmetic.n_parameters(config) - config.context * a_token
    gain = shape_of(config, "int8").bytes_per_token - a_token  # a byte a number: numbers
    return others // gain + 1 if gain > 0 else None


def _check_dtype(dtype):
    if dtype not in BYTES:
        raise ValueError(f"dtype must be one of {', '.join(BYTES)}, not {dtype!r}")
    return dtype


def _in_bytes(n_numbers, dtype):
    halves = n_numbers * int(2 * BYTES[dtype])  # of bytes
    return halves / 2 if halves % 2 else halves // 2


def _in_numbers(name, n_bytes, dtype):
    """How many whole numbers fit in so many bytes."""
    if isinstance(n_bytes, bool) or not isinstance(n_bytes, Real):
        raise TypeError(f"{name} must be a number of bytes, not {n_bytes!r}")
    n_bytes = int(n_bytes) if isinstance(n_bytes, Integral) else float(n_bytes)
    if not isfinite(n_bytes) or n_bytes < 0:
        raise ValueError(f"{name} must be finite and at least 0, not {n_bytes}")
    return 2 * Fraction(n_bytes) // int(2 * BYTES[dtype])  # exact, and no float is too large
