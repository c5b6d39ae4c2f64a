"""From the source's cached loop to the fastest cached step, one change at a time.

`RUNGS` maps the name of each rung to what makes it: make(config, weights) gives an object with
`.step(token)` -> logits [vocab_size] and `.reset()`. Weights as `charweights.flat` gives them. All
rungs give the same logits to rounding; `work` counts what a step of each asks for.
"""

import math
import sys

import numpy as np
import torch
from torch.nn import functional as F

from labsupport import arithmetic, charcache, charweights, decoder, folding, kvcache, libcalls
from labsupport.compiled import CompiledEngine
from labsupport.engine import NumpyEngine


def attention_written_out(q, k, v):
    """What one new token reads: q [1, n_heads, 1, head_dim], k, v [1, n_kv_heads, n_tokens, ...]"""
    grouped = q.reshape(1, k.shape[1], -1, q.shape[3])  # [1, n_kv_heads, shared, head_dim]
    weights = torch.softmax(grouped @ k.transpose(2, 3) / math.sqrt(q.shape[3]), dim=3)
    return (weights @ v).reshape(q.shape)  # [1, n_heads, 1, head_dim]


def attention_fused(q, k, v):
    """The same in one operation of torch."""
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=k.shape[1] < q.shape[1])


class TorchRung:
    """A cached step of a `charmodel`, with this attention and these caches, one a block."""

    def __init__(self, config, weights, attention, kind, **options):
        self.model = charweights.model(config, weights)
        self.caches = charcache.new_caches(self.model, kind, **options)
        self.attention = attention

    def reset(self):
        for cache in self.caches:
            cache.truncate(0)

    @torch.inference_mode()
    def step(self, token):
        model, c = self.model, self.model.config
        d_kv = c.n_kv_heads * c.head_dim
        x = model.embed(torch.tensor([[token]]), len(self.caches[0]))  # [1, 1, d_model]
        for block, cache in zip(model.blocks, self.caches, strict=True):
            q, k, v = block.qkv(block.norm_1(x)).split([c.d_model, d_kv, d_kv], dim=2)
            q, k, v = (t.view(*x.shape[:2], -1, c.head_dim).transpose(1, 2) for t in (q, k, v))
            k, v = cache.append(k, v)  # [1, n_kv_heads, n_tokens, head_dim]
            read = self.attention(q, k, v)  # [1, n_heads, 1, head_dim]
            x = x + block.o(read.transpose(1, 2).flatten(2))
            x = x + block.down(F.gelu(block.up(block.norm_2(x)), approximate="tanh"))
        return model.head(model.norm(x))[0, 0].numpy()  # [vocab_size]


class FunctionsRung(TorchRung):
    """The same operations as functions of tensors: no modules to call, fewer views."""

    def __init__(self, config, weights, attention, kind, **options):
        super().__init__(config, weights, attention, kind, **options)
        self.blocks = [[p.detach() for p in b.parameters()] for b in self.model.blocks]
        m = self.model
        self.tables = m.tokens.weight.detach(), m.positions.weight.detach()
        self.ends = [p.detach() for part in (m.norm, m.head) for p in part.parameters()]

    @torch.inference_mode()
    def step(self, token):
        c, (tokens, positions) = self.model.config, self.tables
        d, heads = c.d_model, (1, -1, 1, c.head_dim)
        x = tokens[token] + positions[len(self.caches[0])]  # [d_model]
        for (g_1, b_1, w_qkv, b_qkv, w_o, b_o, g_2, b_2, *network), cache in zip(
            self.blocks, self.caches, strict=True
        ):
            w_up, b_up, w_down, b_down = network
            qkv = F.linear(F.layer_norm(x, (d,), g_1, b_1), w_qkv, b_qkv).view(heads)
            q, k, v = qkv.split([c.n_heads, c.n_kv_heads, c.n_kv_heads], dim=1)
            k, v = cache.append(k, v)  # [1, n_kv_heads, n_tokens, head_dim]
            read = self.attention(q, k, v).view(d)
            x = x + F.linear(read, w_o, b_o)
            up = F.linear(F.layer_norm(x, (d,), g_2, b_2), w_up, b_up)
            x = x + F.linear(F.gelu(up, approximate="tanh"), w_down, b_down)
        gain, bias, w_head, b_head = self.ends
        return F.linear(F.layer_norm(x, (d,), gain, bias), w_head, b_head).numpy()


class DecoderRung:
    """The plain `decoder` of chapter 1: one-row matrices, a mask, checks at every append."""

    def __init__(self, config, weights):
        self.decoder = charweights.numpy_decoder(config, weights)
        self.caches = self.decoder.new_caches(kvcache.PreallocatedCache, capacity=config.context)

    def reset(self):
        for cache in self.caches:
            cache.reset()

    def step(self, token):
        return self.decoder.forward([token], self.caches)[0]  # [vocab_size]


class FusedRung:
    """One vector instead of one-row matrices; q, k and v from one product; no mask, no checks."""

    def __init__(self, config, weights):
        charweights.numpy_decoder(config, weights)  # they fit, or this raises
        self.config, self.weights = config, dict(weights)
        for i in range(config.n_blocks):
            for leaf in "wb":
                parts = [weights[f"{i}.{part}.{leaf}"] for part in "qkv"]
                self.weights[f"{i}.qkv.{leaf}"] = np.concatenate(parts, axis=-1)
        self.allocate(config, weights["head.w"].dtype)

    def allocate(self, config, dtype):
        c = config
        rows = (c.n_blocks, c.n_kv_heads, c.context, c.head_dim)
        self.keys, self.values, self.n_tokens = np.empty(rows, dtype), np.empty(rows, dtype), 0

    def reset(self):
        self.n_tokens = 0

    def step(self, token):
        c, w, t = self.config, self.weights, self.n_tokens
        d, d_kv, n_tokens = c.d_model, c.n_kv_heads * c.head_dim, t + 1
        x = w["tokens"][token] + w["positions"][t]  # [d_model]
        for i in range(c.n_blocks):
            qkv = self.linear(self.norm(x, f"{i}.norm_1"), f"{i}.qkv")  # [d_model + 2 * d_kv]
            self.keys[i, :, t] = qkv[d : d + d_kv].reshape(c.n_kv_heads, c.head_dim)
            self.values[i, :, t] = qkv[d + d_kv :].reshape(c.n_kv_heads, c.head_dim)
            k, v = self.keys[i, :, :n_tokens], self.values[i, :, :n_tokens]

            q = qkv[:d].reshape(c.n_kv_heads, -1, c.head_dim)  # [n_kv_heads, shared, head_dim]
            read = decoder.softmax(self.scores(q, k)) @ v  # [n_kv_heads, shared, head_dim]
            x = x + self.linear(read.reshape(d), f"{i}.o")
            up = self.linear(self.norm(x, f"{i}.norm_2"), f"{i}.up")  # [4 * d_model]
            x = x + self.linear(self.gelu(up), f"{i}.down")
        self.n_tokens = n_tokens
        return self.linear(self.norm(x, "norm"), "head")  # [vocab_size]

    def linear(self, x, name):
        return x @ self.weights[f"{name}.w"] + self.weights[f"{name}.b"]

    def norm(self, x, name):
        return decoder.layer_norm(x, self.weights[f"{name}.g"], self.weights[f"{name}.b"])

    def scores(self, q, k):
        return q @ k.swapaxes(1, 2) / math.sqrt(self.config.head_dim)

    def gelu(self, x):
        return decoder.gelu(x)


class FoldedRung(FusedRung):
    """The same step with the weights of `folding`: a norm, the scores and gelu have less to do."""

    def __init__(self, config, weights):
        self.config, self.weights = config, folding.fold(config, weights)
        self.allocate(config, self.weights["head.w"].dtype)

    def norm(self, x, name):
        return x * (1 / math.sqrt(float(x.dot(x)) / len(x) + folding.EPS))

    def scores(self, q, k):
        return q @ k.swapaxes(1, 2)

    def gelu(self, x):
        return x * (1 + np.tanh(x * (x * x + folding.SLOPE)))


def _concatenated(config, weights):
    return TorchRung(config, weights, attention_written_out, charcache.ConcatCache)


def _preallocated(config, weights, attention=attention_written_out, rung=TorchRung):
    room = {"kind": charcache.PreallocatedCache, "capacity": config.context}
    return rung(config, weights, attention, **room)


def _fused_attention(config, weights):
    return _preallocated(config, weights, attention_fused)


def _functions(config, weights):
    return _preallocated(config, weights, attention_fused, FunctionsRung)


RUNGS = {
    "torch, concatenated": _concatenated,
    "torch, preallocated": _preallocated,
    "torch, fused attention": _fused_attention,
    "torch, plain functions": _functions,
    "NumPy, plain": DecoderRung,
    "NumPy, fused projections": FusedRung,
    "NumPy, folded constants": FoldedRung,
    "NumPy, no allocation": NumpyEngine,
    "compiled": CompiledEngine,
}


def work(name, config, weights, n_tokens):
    """What the step of a rung that ends with `n_tokens` held asks for, counted while it runs.

        operations   calls of torch or NumPy that compute or move numbers; the compiled step is one
        views        those that only look at the same numbers in another shape
        bytes        weights and cache that are read, and what joins old and new tensors moves

    In torch either kind of call costs about the same; in NumPy a view costs far less. Raises
    ValueError below one token and past the context.
    """
    if kvcache.whole_number("n_tokens", n_tokens, at_least=1) > config.context:
        raise ValueError(f"n_tokens must be at most the context, {config.context}, not {n_tokens}")
    rung = RUNGS[name](config, weights)
    for _ in range(n_tokens - 1):
        rung.step(0)
    read = weights["head.w"].itemsize * arithmetic.numbers_read(config, n_tokens)

    if isinstance(rung, TorchRung):
        with libcalls.TorchCalls() as calls:
            rung.step(0)
        counts = {"operations": calls.operations, "views": calls.views}
        return counts | {"bytes": read + calls.joined_bytes}
    if isinstance(rung, CompiledEngine):
        return {"operations": 1, "views": 0, "bytes": read}
    counts = libcalls.numpy_calls(rung, lambda: rung.step(0), sys.modules[__name__])
    return counts | {"bytes": read}
