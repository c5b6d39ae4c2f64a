"""Well-known programs that generate with the very weights of a `charmodel`, each as it is used.

Hugging Face transformers (its GPT-2 is the same architecture) and CTranslate2 (its decoder is one
in C++). Both are optional, nothing else in the course needs them: `missing()` says what to install.
Each way to use a program is a `Path`, which generates and tells its logits:

    no cache         a forward pass over the whole sequence at every step
    dynamic cache    `generate`, the usual call; and its forward pass in a bare loop
    static cache     the bare loop with a cache of fixed size, the step compiled by torch.compile
    CTranslate2      one call that stays in C++
"""

import importlib.util
import tempfile

import numpy as np
import torch

from labsupport.enginepaths import Path, refeeding, stepping

PINS = {"transformers": "5.24.0", "ctranslate2": "4.8.5"}  # what the recorded run was made with
NO_CACHE = "transformers, no cache"
USUAL = "transformers, dynamic cache"  # what a user of the best-known library calls
COMPILED = "transformers, static cache, compiled"


def missing():
    """The packages that are not installed, as pip takes them: ["ctranslate2==4.8.5"]."""
    return [f"{name}=={pin}" for name, pin in PINS.items() if not importlib.util.find_spec(name)]


def advice(absent):
    """What to do about the packages that `missing` found."""
    said = f"python -m pip install {' '.join(absent)}"
    return f"{' and '.join(absent)} must be installed to be compared with: {said}"


def paths(config, weights, compiler=torch.compile):
    """All of them with these flat float32 weights: ({name: Path}, {name left out: the reason}).

    The attention is the faster one for each: torch's fused function, but where torch.compile fuses,
    the one written out. Left out is a compiled step that cannot be compiled, for want of a C++
    compiler. Raises ModuleNotFoundError, with what to install, when a program is missing.
    """
    if absent := missing():
        raise ModuleNotFoundError(advice(absent))
    fused, written_out = (gpt2(config, weights, kind) for kind in ("sdpa", "eager"))
    made = {
        NO_CACHE: no_cache(fused),
        USUAL: generate(fused),
        f"{USUAL}, bare loop": dynamic(fused),
        COMPILED: static(written_out, compiler),
        "CTranslate2": ctranslate2(config, weights),
    }
    try:
        made[COMPILED].run(0, 2)  # compiles
    except RuntimeError as error:
        del made[COMPILED]
        return made, {COMPILED: f"torch.compile failed: {str(error).splitlines()[0]}"}
    return made, {}


def gpt2(config, weights, attention="sdpa"):
    """A float32 GPT-2 of transformers with these flat weights; its head gets the bias it lacks.

    Raises ValueError for a config with shared key/value heads, which GPT-2 does not have.
    """
    _no_shared_heads(config)
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.context,
            n_embd=config.d_model,
            n_layer=config.n_blocks,
            n_head=config.n_heads,
            activation_function="gelu_new",
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation=attention,
        )
    )
    model.lm_head = torch.nn.Linear(config.d_model, config.vocab_size)
    named = {
        "transformer.wte.weight": weights["tokens"],
        "transformer.wpe.weight": weights["positions"],
        "lm_head.weight": weights["head.w"].T,
        "lm_head.bias": weights["head.b"],
    }
    layers = {"ln_f": (weights["norm.g"], weights["norm.b"])}
    for i in range(config.n_blocks):
        layers |= {f"h.{i}.{name}": pair for name, pair in block_weights(weights, i).items()}
    for name, (weight, bias) in layers.items():
        named[f"transformer.{name}.weight"], named[f"transformer.{name}.bias"] = weight, bias
    model.load_state_dict({name: torch.from_numpy(w.copy()) for name, w in named.items()})
    return model.eval()


def block_weights(weights, i):
    """{GPT-2's name of a layer in block i: (matrix [n_in, n_out] or gain, bias)}."""

    def pair(name, first):
        return weights[f"{i}.{name}.{first}"], weights[f"{i}.{name}.b"]

    q, k, v = (pair(name, "w") for name in "qkv")
    return {
        "ln_1": pair("norm_1", "g"),
        "attn.c_attn": (np.hstack([q[0], k[0], v[0]]), np.hstack([q[1], k[1], v[1]])),
        "attn.c_proj": pair("o", "w"),
        "ln_2": pair("norm_2", "g"),
        "mlp.c_fc": pair("up", "w"),
        "mlp.c_proj": pair("down", "w"),
    }


def no_cache(model):
    """The whole sequence through a transformers model at every step."""
    return refeeding(lambda tokens: model(torch.tensor([tokens]), use_cache=False).logits[0, -1])


def generate(model):
    """transformers' own `generate`, greedy, with its default, dynamic cache."""
    from transformers import GenerationConfig

    def call(tokens, n_new, **more):
        greedy = GenerationConfig(
            do_sample=False, max_new_tokens=n_new, use_cache=True, pad_token_id=0, **more
        )
        fed = torch.tensor([tokens])
        return model.generate(fed, attention_mask=torch.ones_like(fed), generation_config=greedy)

    def run(token, n_new):
        return call([token], n_new)[0, 1:].tolist()

    def logits(tokens):
        """By one call a prefix: the logits from which `generate` draws the token that follows."""
        asked = {"output_logits": True, "return_dict_in_generate": True}
        found = [call(tokens[: i + 1], 1, **asked).logits[0] for i in range(len(tokens))]
        return torch.cat(found).numpy()  # [n_tokens, vocab_size]

    return Path(run, logits)


class BareLoop:
    """A forward pass of transformers, one token at a time, without what `generate` does around it.

    forward    the model, or the model compiled
    new_cache  () -> an empty cache
    """

    def __init__(self, forward, new_cache):
        self.forward, self.new_cache = forward, new_cache

    def reset(self):
        """Begin with an empty cache."""
        self.cache = self.new_cache()

    def step(self, token):
        """The logits after one more token, [vocab_size]."""
        fed = torch.tensor([[token]])
        return self.forward(fed, cache=self.cache, use_cache=True).logits[0, -1]


def dynamic(model):
    """The bare loop with the cache that `generate` uses."""
    from transformers import DynamicCache

    return stepping(BareLoop(model, lambda: DynamicCache(config=model.config)))


def static(model, compiler):
    """The bare loop with a cache of the model's whole context, its step through `compiler`."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=model.config.n_positions)

    def emptied():
        cache.reset()  # not a new one: a compiled step is compiled for its tensors
        return cache

    return stepping(BareLoop(compiler(model), emptied))


def ctranslate2(config, weights):
    """CTranslate2's decoder with these flat weights, on one thread.

    Raises ValueError for a config with shared key/value heads, which this conversion leaves out.
    """
    _no_shared_heads(config)
    import ctranslate2 as ct2

    words = [f"t{i}" for i in range(config.vocab_size)]
    spec = _ct2_spec(config, weights, words)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        model = ct2.Generator(
            folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=1
        )

    def run(token, n_new):
        found = model.generate_batch(
            [[words[token]]], beam_size=1, max_length=n_new, end_token=[],
            include_prompt_in_result=False,
        )  # fmt: skip
        return found[0].sequences_ids[0]

    def logits(tokens):
        return np.array(model.forward_batch([list(tokens)]))[0]  # [n_tokens, vocab_size]

    return Path(run, logits)


def _ct2_spec(config, weights, words):
    """The weights as CTranslate2 names them: its matrices are [n_out, n_in]."""
    from ctranslate2.specs import TransformerDecoderModelSpec
    from ctranslate2.specs.common_spec import Activation

    spec = TransformerDecoderModelSpec.from_config(
        config.n_blocks, config.n_heads, pre_norm=True, activation=Activation.GELUTanh
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = weights["tokens"]
    decoder.position_encodings.encodings = weights["positions"]

    def fill(layer, weight, bias):
        if weight.ndim == 2:
            layer.weight, layer.bias = np.ascontiguousarray(weight.T), bias
        else:
            layer.gamma, layer.beta = weight, bias

    for i, block in enumerate(decoder.layer):
        read, ffn = block.self_attention, block.ffn
        theirs = [read.layer_norm, *read.linear, ffn.layer_norm, ffn.linear_0, ffn.linear_1]
        for layer, pair in zip(theirs, block_weights(weights, i).values(), strict=True):
            fill(layer, *pair)
    fill(decoder.layer_norm, weights["norm.g"], weights["norm.b"])
    fill(decoder.projection, weights["head.w"], weights["head.b"])
    spec.register_vocabulary(words)
    spec.validate()
    spec.optimize()
    return spec


def _no_shared_heads(config):
    if config.n_kv_heads != config.n_heads:
        said = f"{config.n_kv_heads} key/value heads for {config.n_heads}"
        raise ValueError(f"the rivals are made for one key/value head a query head, not {said}")
