"""Attention as its definition has it, against which every faster way can be held."""

import math


def attention_in_a_loop(q, k, v, window=None):
    """One head, one number at a time, of lists: q [n_new][head_dim], k and v [n_tokens][head_dim].

    Each new token sees itself and all before it, or with a window the last so many of these.
    """
    out = []
    for i, query in enumerate(q, start=len(k) - len(q)):
        seen = range(0 if window is None else max(0, i - window + 1), i + 1)
        scores = [math.fsum(a * b for a, b in zip(query, k[j], strict=True)) for j in seen]
        exps = [math.exp(s / math.sqrt(len(query))) for s in scores]
        total, channels = math.fsum(exps), range(len(query))
        out.append(
            [
                math.fsum(e * v[j][d] for e, j in zip(exps, seen, strict=True)) / total
                for d in channels
            ]
        )
    return out
