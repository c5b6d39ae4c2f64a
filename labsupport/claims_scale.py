"""Claims of the memory price on real models: how large their caches are, and what makes them less.

Real models are the cards of `modelcards`; each at the longest text that its makers state, in
float16, where the claim names no length.
"""

import re

from labsupport import memory
from labsupport.claims import Claim, decide, register, unsettled
from labsupport.claims_memory import close, in_units
from labsupport.modelcards import factors

CLAIMS: list[Claim] = []
claim = register(CLAIMS, "memory")

CURRENT = 24  # makers' reports from 2024 on: the first two digits of their arXiv id


def some(names, most=4):
    """Names for a sentence: all, or the first ones and how many more."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def formula_bytes(said):
    """By the source's formula, in float16."""
    return memory.source_formula(said["blocks"], said["n"], said["d"], "float16")


def of_size(said, ev):
    """The cards of this width and number of blocks, by name."""
    return {
        name: card
        for name, card in ev.cards.items()
        if (card.d_model, card.n_layers) == (said["d"], said["blocks"])
    }


# --- how large it is --------------------------------------------------------------------------


@claim(
    "memory-11",
    "At d = {d}, {blocks} blocks and n = {n} in float16 the formula gives {gigabytes} GB.",
    how="derived",
    d=4096,
    blocks=32,
    n=8192,
    gigabytes="4.0",
)
def _(said, ev):
    size = formula_bytes(said)
    gb, gib = (in_units(size, unit, digits=1) for unit in ("GB", "GiB"))
    return decide(
        gb == said["gigabytes"],
        f"It gives {size:,} bytes: {gib} GiB, in powers of 1024, or {in_units(size, 'GB')} GB.",
        in_shape=gib == said["gigabytes"],
    )


@claim(
    "memory-12",
    "At real scale, d = {d} and {blocks} blocks, a text of n = {n} takes so much.",
    how="derived",
    d=4096,
    blocks=32,
    n=8192,
)
def _(said, ev):
    size = formula_bytes(said)
    able = {name: c for name, c in of_size(said, ev).items() if c.context >= said["n"]}
    short = {name: c for name, c in of_size(said, ev).items() if c.context < said["n"]}
    found = (
        f"Read no text so long: {some(f'{name} ({c.context})' for name, c in short.items())}. "
        "Do: " + some(f"{name} ({kept(c, said['n'])} GiB)" for name, c in able.items()) + "."
    )
    if not able:
        return unsettled(found, "a model of that size that reads so much")
    sizes = [card.shape().bytes_at(said["n"]) for card in able.values()]
    return decide(
        all(close(one, size) for one in sizes),
        found,
        in_shape=any(close(one, size) for one in sizes),
    )


def kept(card, n):
    return in_units(card.shape().bytes_at(n), "GiB")


@claim(
    "memory-13",
    "At real scale it is worse: at d = {d}, {blocks} blocks and n = {n} the cache is more than "
    "{ratio} times the weights.",
    how="derived",
    d=4096,
    blocks=32,
    n=8192,
    ratio=1.23,
)
def _(said, ev):
    size = formula_bytes(said)
    weights = {name: card.weight_bytes() for name, card in of_size(said, ev).items()}
    if not weights:
        return unsettled(f"{size:,} bytes of cache.", "the weights of a model of that size")
    name = min(weights, key=weights.get)
    each = size / said["n"]
    full = {one: c.shape().bytes_at(c.context) / c.weight_bytes() for one, c in ev.cards.items()}
    most = max(full, key=full.get)
    return decide(
        size / weights[name] > said["ratio"],
        f"More bytes, but {size / weights[name]:.2f} times the weights of {name}, the lightest "
        f"of that size: it takes {int(weights[name] // each) + 1:,} tokens, or "
        f"{int(weights[name] // size) + 1} such texts at once, to outweigh them. Of "
        f"{len(full)} real models a text of the stated context does in "
        f"{sum(ratio > 1 for ratio in full.values())}; the most is {full[most]:.2f} ({most}).",
        in_shape=size > weights[name],
    )


@claim(
    "memory-14",
    "Whatever the model, its cache takes {factor} · blocks · tokens · d · bytes of a number.",
    how="derived",
    factor=2,
)
def _(said, ev):
    off, reasons = {}, {}
    for name, card in ev.cards.items():
        true = card.shape().bytes_at(card.context)
        formula = memory.source_formula(card.n_layers, card.context, card.d_model, "float16")
        off[name] = said["factor"] / 2 * formula / true
        for reason, times in factors(card, card.context).items():
            reasons[reason] = reasons.get(reason, 0) + (times != 1)
    right = [name for name, times in off.items() if times == 1]
    worst = max(off, key=off.get)
    why = ", ".join(f"{reason} ({count})" for reason, count in reasons.items() if count)
    return decide(
        len(right) == len(off),
        f"Of {len(off)} real models it is right for {len(right)}: {some(right)}. For {worst} it "
        f"gives {off[worst]:.3g} times too much. Why: {why or 'nothing that it leaves out'}.",
        in_shape=all(0.5 <= times <= 2 for times in off.values()),
    )


# --- what makes it less -----------------------------------------------------------------------


@claim(
    "memory-15",
    "Every block has to hold keys and values of every token.",
    how="derived",
)
def _(said, ev):
    windowed = [name for name, card in ev.cards.items() if drops_tokens(card)]
    latent = [name for name, card in ev.cards.items() if card.latent_dim is not None]
    free = {*windowed, *latent}
    return decide(
        not free,
        f"{len(free)} of {len(ev.cards)} real models do without: blocks drop tokens past a window "
        f"in {some(windowed)}; one vector is kept in place of both in {some(latent)}.",
    )


def drops_tokens(card):
    """Whether a token adds less at the end of a text of the model's context than at its start."""
    shape = card.shape()
    return shape.bytes_per_token_at(card.context) < shape.bytes_per_token


@claim(
    "memory-16",
    "Heads that share one K and V make the cache as many times smaller.",
    how="measured",
)
def _(said, ev):
    found, n_heads = ev.trials["sharing"](), ev.config.n_heads
    times = {n: found[n_heads]["held"] / sizes["held"] for n, sizes in found.items()}
    table = ", ".join(f"{n_heads} on {n}: {ratio:g}" for n, ratio in times.items())
    return decide(
        all(ratio == n_heads / n for n, ratio in times.items()),
        f"Storage of the caches of this model, query heads on K and V: {table} times smaller.",
        in_shape=all(ratio > 1 for n, ratio in times.items() if n < n_heads),
    )


@claim(
    "memory-17",
    "Current models let several heads share one K and V.",
    how="derived",
)
def _(said, ev):
    recent = {name: c for name, c in ev.cards.items() if year(c) >= CURRENT}
    share = [n for n, c in recent.items() if c.n_kv_heads < c.n_heads and c.latent_dim is None]
    others = [name for name in recent if name not in share]
    return decide(
        len(share) == len(recent) > 0,
        f"Of the models here reported since 20{CURRENT} {len(share)} of {len(recent)} do; not: "
        f"{some(others)}. A latent is no sharing: each head makes its own K and V of it.",
        in_shape=len(share) > len(recent) / 2,
    )


def year(card):
    """Two digits, of the arXiv id of its makers' report; 0 if they did not report there."""
    found = re.search(r"arXiv:(\d\d)", card.paper)
    return int(found[1]) if found else 0


@claim("memory-18", "The memory that a cache takes is why they share.", how="derived")
def _(said, ev):
    found = ev.trials["sharing"]()
    most, least = found[max(found)], found[min(found)]
    held, read = (most[what] / least[what] for what in ("held", "read"))
    sentence = (
        f"With all heads on one K and V a cache takes {held:g} times less memory, and a step "
        f"reads {read:g} times less of it."
    )
    if close(held, read):
        return unsettled(
            f"{sentence} Both pay, and in the same coin. The paper that proposed it names the "
            "reading (arXiv:1911.02150), a report of models that took it up the memory "
            "(arXiv:2307.09288, A.2.1).",
            "what makers choose where only one of the two is short",
        )
    return decide(held > read, sentence)
