"""Real models as data: the sizes that decide what a cache and the weights take.

Each card names where its figures stand. Numbers of parameters follow from the makers' sizes; the
tests add them up matrix by matrix. A mixture of experts counts all its experts: a token uses a few,
but any may be next, so all are held.
"""

from dataclasses import dataclass

import pandas as pd

from labsupport import memory
from labsupport.kvcache import whole_number
from labsupport.memory import CacheShape


@dataclass(frozen=True)
class Card:
    """One model.

    n_parameters   numbers in the weights, a matrix that is used twice counted once
    context        the longest sequence, in tokens, that the makers state
    config_url     the makers' configuration, which gives all sizes and the window
    paper          the makers' report, which states the context too if `note` does not say else
    window         the most tokens that a windowed layer sees, the new one among them, or None
    window_every   1: all layers are windowed; 2: every other one, starting with the first
    latent_dim     numbers a token and layer of a latent cache, or None
    n_positions    rows of a learned position table, within n_parameters: no sequence can be longer;
                   None for a model without such a table
    note           what a reader should know of these figures
    """

    name: str
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_parameters: int
    context: int
    config_url: str
    paper: str
    window: int | None = None
    window_every: int = 1
    latent_dim: int | None = None
    n_positions: int | None = None
    note: str = ""

    @property
    def windows(self):
        """An entry a layer, as `CacheShape` takes them; None without windows."""
        if self.window is None:
            return None
        return tuple(
            None if layer % self.window_every else self.window for layer in range(self.n_layers)
        )

    @property
    def citation(self):
        """Where the figures stand, in one line."""
        return f"{self.paper}; sizes: {self.config_url}"

    def shape(self, dtype="float16"):
        """The shape of its cache."""
        return CacheShape(
            self.n_layers, self.n_kv_heads, self.head_dim, dtype, self.windows, self.latent_dim
        )

    def weight_bytes(self, dtype="float16"):
        """The bytes of all weights, all of one dtype."""
        return memory.weight_bytes(self.n_parameters, dtype)


def _config(repository):
    return f"https://huggingface.co/{repository}/blob/main/config.json"


_GPT2 = (
    "Radford et al., Language Models are Unsupervised Multitask Learners (2019), table 2, "
    "section 2.3"
)
_LLAMA3 = (
    "The context is the configuration's; the report is of Llama 3.1, which has more. The "
    "vocabulary is the configuration's 128,256; the report rounds it."
)
_DEEPSEEK = (
    "latent of 512 numbers and a rotary key of 64; head_dim is the report's d_h. The context is "
    "the report's 128K; the configuration has 163,840 positions."
)

CARDS = {
    card.name: card
    for card in (
        Card(
            *("GPT-2", 12, 768, 12, 12, 64, 124_439_808, 1024),
            *(_config("openai-community/gpt2"), _GPT2),
            n_positions=1024,
            note="The report's table says 117M; the released weights hold 124M.",
        ),
        Card(
            *("GPT-2 XL", 48, 1600, 25, 25, 64, 1_557_611_200, 1024),
            *(_config("openai-community/gpt2-xl"), _GPT2),
            n_positions=1024,
            note="The report's table says 1542M; the released weights hold 1558M.",
        ),
        Card(
            *("Llama 2 7B", 32, 4096, 32, 32, 128, 6_738_415_616, 4096),
            *(_config("meta-llama/Llama-2-7b-hf"), "arXiv:2307.09288, table 1"),
        ),
        Card(
            *("Llama 2 70B", 80, 8192, 64, 8, 128, 68_976_648_192, 4096),
            *(_config("meta-llama/Llama-2-70b-hf"), "arXiv:2307.09288, table 1"),
        ),
        Card(
            *("Llama 3 8B", 32, 4096, 32, 8, 128, 8_030_261_248, 8192),
            *(_config("meta-llama/Meta-Llama-3-8B"), "arXiv:2407.21783, table 3"),
            note=_LLAMA3,
        ),
        Card(
            *("Llama 3 70B", 80, 8192, 64, 8, 128, 70_553_706_496, 8192),
            *(_config("meta-llama/Meta-Llama-3-70B"), "arXiv:2407.21783, table 3"),
            note=_LLAMA3,
        ),
        Card(
            *("Mistral 7B v0.1", 32, 4096, 32, 8, 128, 7_241_732_096, 32768),
            *(_config("mistralai/Mistral-7B-v0.1"), "arXiv:2310.06825, table 1"),
            window=4096,
            note="The context is the configuration's; the report's table says 8192.",
        ),
        Card(
            *("Qwen2.5 7B", 28, 3584, 28, 4, 128, 7_615_616_512, 131072),
            *(_config("Qwen/Qwen2.5-7B"), "arXiv:2412.15115, table 1"),
            note="Trained on 32,768 tokens; the context is what the report reaches by stretching "
            "positions. The configuration names a window and switches it off.",
        ),
        Card(
            *("Gemma 2 9B", 42, 3584, 16, 8, 256, 9_241_705_984, 8192),
            *(_config("google/gemma-2-9b"), "arXiv:2408.00118, tables 1 and 2"),
            window=4096,
            window_every=2,
            note="The vocabulary is the configuration's 256,000; the report counts 128 rows more.",
        ),
        Card(
            *("Phi-3-mini 4k", 32, 3072, 32, 32, 96, 3_821_079_552, 4096),
            *(_config("microsoft/Phi-3-mini-4k-instruct"), "arXiv:2404.14219, section 2"),
            window=2047,
            note="The window is the configuration's, of all layers; some software counts 2048, and "
            "software that leaves it out keeps every token.",
        ),
        Card(
            *("Falcon 7B", 32, 4544, 71, 1, 64, 6_921_720_704, 2048),
            *(_config("tiiuae/falcon-7b"), "arXiv:2311.16867"),
            note="The context is the model card's. Embedding and head are one matrix; a file that "
            "stores both is larger.",
        ),
        Card(
            *("MPT 7B", 32, 4096, 32, 32, 128, 6_649_286_656, 2048),
            *(_config("mosaicml/mpt-7b"), "MosaicML, Introducing MPT-7B (2023)"),
            note="The context is the configuration's; its positions (ALiBi) allow more.",
        ),
        Card(
            *("DeepSeek-V2", 60, 5120, 128, 128, 128, 235_741_434_880, 131072),
            *(_config("deepseek-ai/DeepSeek-V2"), "arXiv:2405.04434, sections 3.1.2 and 3.1.4"),
            latent_dim=512 + 64,
            note=f"All experts, of which a token uses 21B numbers; {_DEEPSEEK}",
        ),
        Card(
            *("DeepSeek-V3", 61, 7168, 128, 128, 128, 671_026_419_200, 131072),
            *(_config("deepseek-ai/DeepSeek-V3"), "arXiv:2412.19437, sections 4.2 and 4.3"),
            latent_dim=512 + 64,
            note="All experts, of which a token uses 37B numbers, without the module that predicts "
            f"a second token; {_DEEPSEEK}",
        ),
    )
}


def factors(card, n_tokens):
    """How many times too much the source's formula counts, by reason: {reason: factor}.

    Their product is the formula's bytes over the true ones, whatever the dtype. A factor of 1 says
    that the reason does not apply; one below 1 that the formula counts too little.
    """
    n_tokens = whole_number("n_tokens", n_tokens, at_least=1)
    width, latent = card.n_heads * card.head_dim, card.latent_dim is not None
    windows = card.windows or (None,)  # without windows one layer stands for all
    kept = sum(min(n_tokens, window or n_tokens) for window in windows)
    return {
        "shared heads": 1.0 if latent else card.n_heads / card.n_kv_heads,
        "head_dim x n_heads is not d_model": card.d_model / width,
        "window": n_tokens * len(windows) / kept,
        "latent": 2 * width / card.latent_dim if latent else 1.0,
    }


def formula_misses(n_tokens=None, dtype="float16"):
    """The source's formula beside the truth, a row a model: where it fails, and why.

    n_tokens   the same for all, also beyond what a model can read; None: each one's own context

    Columns n_tokens, formula_bytes, true_bytes, ratio (formula over truth), why: the factors that
    are not 1, computed from the card; "" where the formula is right.
    """
    rows = {}
    for name, card in CARDS.items():
        n = card.context if n_tokens is None else n_tokens
        true_bytes = card.shape(dtype).bytes_at(n)
        formula_bytes = memory.source_formula(card.n_layers, n, card.d_model, dtype)
        reasons = {reason: times for reason, times in factors(card, n).items() if times != 1}
        rows[name] = {
            "n_tokens": n,
            "formula_bytes": formula_bytes,
            "true_bytes": true_bytes,
            "ratio": formula_bytes / true_bytes,
            "why": ", ".join(f"{reason} (x {times:.3g})" for reason, times in reasons.items()),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def break_evens(dtype="float16"):
    """When each cache outgrows its model, both of one dtype: a row a model.

    Columns bytes_per_token (before a window is full), weight_bytes, break_even (tokens; missing if
    a window keeps the cache smaller) and context.
    """
    rows = {}
    for name, card in CARDS.items():
        shape, weight_bytes = card.shape(dtype), card.weight_bytes(dtype)
        rows[name] = {
            "bytes_per_token": shape.bytes_per_token,
            "weight_bytes": weight_bytes,
            "break_even": shape.break_even(weight_bytes),
            "context": card.context,
        }
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")
    return table.astype({"break_even": "Int64"})
