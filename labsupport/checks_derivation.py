"""Checks of the exercises of chapter 3. Those about counts and draws have modules of their own."""

import numpy as np

from labsupport import checks_derivation_steps as steps
from labsupport.checks import NotYet, array, call, exercise, number, value
from labsupport.checks_derivation_draws import flip_chances, gaps
from labsupport.checks_derivation_numbers import collected_share, left_out, power_fit, several
from labsupport.checks_plain import ask

__all__ = [
    "attention_step",
    "chunk_mask",
    "collected_share",
    "disagreement",
    "flip_chances",
    "gaps",
    "left_out",
    "power_fit",
    "rows_fed",
    "slots_read",
]
EXACT = 1e-12  # what rounding in float64 stays below here


@exercise("derivation", "rows_fed", 2)
def rows_fed(function):
    """A pair of numbers, for prompts of several lengths."""
    for n_prompt, n_new in ((8, 100), (1, 20), (30, 1)):
        case = f"rows_fed({n_prompt}, {n_new})"
        without, cached = several(case, call(function, n_prompt, n_new), 2)
        again, once = sum(range(n_prompt, n_prompt + n_new)), n_prompt + n_new - 1
        if again != once and [without, cached] == [once, again]:
            raise NotYet(f"{case} has its two numbers in the wrong order.")
        last = "the last token being fed, too: once it is drawn, nothing more is asked"
        mistakes = {
            "a prompt left out: it is fed at every step": sum(range(1, n_new + 1)),
            last: sum(range(n_prompt + 1, n_prompt + n_new + 1)),
            "a step too many: the text with its last token is fed to no one": again + once + 1,
            "each step feeding the text as it is in the end": n_new * (once + 1),
        }
        value(f"{case}, without a cache,", without, again, mistakes)
        mistakes = {
            "a prompt left out: it must be read once, with a cache too": n_new,
            last: once + 1,
        }
        value(f"{case}, with a cache,", cached, once, mistakes)
    ratio = sum(range(8, 108)) / 107
    return (
        f"For 100 tokens after a prompt of 8 that is {ratio:.0f} times fewer rows. A long prompt "
        "makes the promise of the same 100 tokens larger: it is what is computed again."
    )


@exercise("derivation", "attention_step", 3)
def attention_step(step):
    """Against the package's attention: shared heads, none kept, scores too large for exp."""
    for n_heads, n_kv_heads, n_tokens, lifted in ((6, 2, 7, 0), (3, 3, 0, 0), (2, 2, 4, 2000)):
        q, k, v, keys, values = given = steps.inputs(n_heads, n_kv_heads, n_tokens, lifted)
        read, *kept = several("attention_step(...)", call(step, *given), 3)
        want, *grown = steps.step(*given)
        for name, got, full, old, new in zip(
            ("keys", "values"), kept, grown, (keys, values), (k, v), strict=True
        ):
            first = np.concatenate([new[:, None], old], axis=1)
            mistakes = {
                f"the {name} without the new token's": old,
                "the new token put in front of the older ones": first,
            }
            array(f"The array of {name} that is returned", got, full, mistakes, atol=EXACT)
        if lifted and not np.isfinite(np.asarray(read, float)).all():
            raise NotYet(
                "With scores of 2,000, exp overflows and what is read is not finite. Softmax does "
                "not change when one number is subtracted from all scores of a query."
            )
        mistakes = {
            "scores that are not divided by the root of head_dim": steps.read(q, *grown, scale=1),
            "scores divided by head_dim, not by its root": steps.read(q, *grown, scale=q.shape[1]),
            "scores divided by the root of d_model, not of head_dim": steps.read(
                q, *grown, scale=q.size**0.5
            ),
            "a softmax over the heads: it goes over the tokens": steps.read(q, *grown, axis=0),
            "query head h reading key head h % n_kv_heads: neighbours share one": steps.read(
                q, *grown, dealt=True
            ),
            "the keys being read where the values should be": steps.read(q, grown[0], grown[0]),
        }
        if n_tokens:
            mistakes["the new token not seeing itself"] = steps.read(q, keys, values)
        array("What is read", read, want, mistakes, atol=1e-9)
    return (
        "No mask, and one query a head: all that the step kept are keys and values. Concatenating "
        "copies them at every step; the package's other caches have room from the start."
    )


@exercise("derivation", "disagreement", 3)
def disagreement(prove):
    """A proof is worth what it finds: a step that is right, and steps with known faults."""
    inputs = steps.tokens(seed=20)

    def told(step):
        return number("disagreement(...)", call(prove, step, *inputs))

    if abs(got := told(steps.step)) > EXACT:
        raise NotYet(f"Of a step that is right it gives {got:.2g}; only rounding is to be left.")
    for words, fault in steps.FAULTS.items():
        got = call(prove, steps.faulty(fault), *inputs)
        off = steps.differences(steps.faulty(fault), *inputs)
        if not np.isfinite(off).all():
            if got != np.inf:
                raise NotYet(f"Of a step that gives NaN at one token it makes {got}. {words}")
            continue
        if abs(number("disagreement(...)", got)) <= EXACT:
            raise NotYet(f"It finds nothing in a step that is wrong. {words}")
        mistakes = {
            "the mean, not the largest": np.abs(off).mean(),
            "the largest of the tokens' means": np.abs(off).mean(axis=(1, 2)).max(),
            "the first head alone": np.abs(off[:, 0]).max(),
            "a difference with its sign, not its absolute value": off.max(),
            "a difference with its sign; take its absolute value": (-off).max(),
        }
        value("disagreement(...)", got, np.abs(off).max(), mistakes)
    try:
        got = call(prove, steps.stopping, *inputs)
    except steps.Stopped:
        pass
    else:
        raise NotYet(f"Of a step that raises an error it makes {got}. Let the error through.")
    return (
        "A test is tested by what it finds. This one has found a wrong first token, a cache that "
        "comes back damaged and a NaN, which a comparison in a loop's max() lets through."
    )


@exercise("derivation", "chunk_mask", 3)
def chunk_mask(function):
    """Sequences of one batch that hold different numbers of tokens, in buffers with room left."""
    for held, n_new, capacity in (([7, 2, 0], 3, 12), ([4], 1, 6), ([0, 5], 5, 10)):
        held = np.array(held)
        got = call(function, held, n_new, capacity)
        kept, new = held[:, None, None], np.arange(n_new)[:, None]
        slots = np.arange(capacity)
        right = slots <= kept + new  # [batch, n_new, capacity]
        mistakes = {
            "the opposite: True is where a token may look": ~right,
            "a triangle from the top left: it forgets the tokens that are held": slots <= new,
            "a token not seeing itself": slots < kept + new,
            "each token seeing the one after it": slots <= kept + new + 1,
            "no mask among the new tokens: each sees all of the chunk": slots < kept + n_new,
            "a staircase that ends in the buffer's last slot, not at the last token": (
                slots <= capacity - n_new + new
            ),
            "all sequences holding as many tokens as the first": slots <= held[0] + new,
            "the chunk hidden: only the kept tokens may be seen": right & (slots < kept),
            "each token seeing itself alone": slots == kept + new,
            "the kept tokens hidden: only those of the chunk may be seen": right & (slots >= kept),
        }
        mistakes = {words: np.broadcast_to(m, right.shape) for words, m in mistakes.items()}
        array(f"chunk_mask({held.tolist()}, {n_new}, {capacity})", got, right, mistakes)
        if (dtype := np.asarray(got).dtype).kind != "b":
            raise NotYet(
                f"chunk_mask has the right places, but its dtype is {dtype}, not bool. As an "
                "index, and behind ~, numbers do other things."
            )
    return (
        "It hides two things at once, the tokens that come later and the slots that nobody has "
        "written. With one new token, the second still needs hiding where lengths differ."
    )


@exercise("derivation", "slots_read", 3)
def slots_read(function):
    """As many slots as are filled, more and fewer, with zeros or old tokens behind them."""
    for used, old, dtype in ((11, 0, float), (9, 1, float), (8, 0, float), (10, 1, "float32")):
        given = steps.slots(used, held=9, old=old, dtype=dtype)
        mistakes = {
            "an index, which starts at 0, where a number of slots is asked": used - 1,
            "a count of the slots that are filled; a slot of zeros that was read counts, too": 9,
            "the whole buffer, or scores not divided by the root of head_dim": steps.nearest(
                *given, scale=1
            ),
        }
        got = ask(function, *given)
        try:
            if got is None:
                raise NotYet("slots_read returns None: is there a `return` on every way through?")
            value("The number of slots", got, used, mistakes)
        except NotYet:
            if dtype != "float32":
                raise
            raise NotYet(
                "It works in float64, but not for a read that was computed in float32. No number "
                "of slots gives that to the last bit: which one comes nearest?"
            ) from None
    return (
        "An empty slot is not harmless: a key of zeros has the score 0, and exp(0) is 1. It takes "
        "its share of the softmax, and gives zeros for it."
    )
