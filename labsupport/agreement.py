"""Is it the same answer? Generation with a cache beside generation without, step by step.

Both paths are given the same tokens, those the uncached path drew, so that each step compares one
pair of logits; where the paths would draw differently, that is a flip. Tokens are drawn by the
Gumbel-max trick (Gumbel 1954; arXiv:1611.01144, section 2): argmax of logits plus noise is a draw
from their softmax, and the same noise for both paths leaves only the logits to differ.
"""

import numpy as np
import pandas as pd
import torch
from scipy import stats
from tqdm import tqdm

from labsupport import charweights
from labsupport.charcache import new_caches
from labsupport.kvcache import whole_number

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
LONGEST = 48  # tokens of a prompt; the time of the uncached path grows with them
NEAR = 0.05  # the share of the gaps, from the smallest, that tells their density at 0


def prompts_from(ids, n_prompts, longest=LONGEST, seed=0):
    """`n_prompts` pieces of a text's ids, of random place and of 1 to `longest` tokens.

    Raises ValueError for a text shorter than that.
    """
    if len(ids) < longest:
        raise ValueError(f"the text has {len(ids)} tokens, prompts of up to {longest} need more")
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest, size=n_prompts, endpoint=True).tolist()
    starts = [int(rng.integers(len(ids) - length, endpoint=True)) for length in lengths]
    return [list(ids[i : i + length]) for i, length in zip(starts, lengths, strict=True)]


def noise(seed, n_new, vocab_size):
    """Gumbel noise to add to the logits of `n_new` steps, [n_new, vocab_size]; zeros for None."""
    if seed is None:
        return torch.zeros(n_new, vocab_size, dtype=torch.float64)
    return torch.from_numpy(np.random.default_rng(seed).gumbel(size=(n_new, vocab_size)))


@torch.inference_mode()
def measure(model, prompts, n_new, seeds=None):
    """Compare both paths over `n_new` steps after each prompt: a DataFrame, one row a step.

    seeds   of the noise, one a prompt; None draws the largest logit

        prompt, step
        difference   largest |cached - uncached| of the logits
        gap          by how much the drawn token led the second, on the uncached path
        error        by how much more (or, below 0, less) the same two differ on the cached path
        same         whether both paths draw the same token

    Raises ValueError for prompts that do not fit the model and for seeds that do not fit them, and
    FloatingPointError for logits that are not finite, of which no comparison says anything.
    """
    whole_number("n_new", n_new, at_least=1)
    seeds = [None] * len(prompts) if seeds is None else list(seeds)
    if len(seeds) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts need as many seeds, not {len(seeds)}")
    rows = []
    for i, prompt in enumerate(tqdm(prompts, desc=f"prompts, {model.dtype}", disable=None)):
        added = noise(seeds[i], n_new, model.config.vocab_size)
        caches, sequence, fresh = new_caches(model), list(prompt), list(prompt)
        for step in range(n_new):
            whole = model([sequence])[0, -1].double()  # [vocab_size]
            cached = model([fresh], caches)[0, -1].double()
            if not (whole.isfinite().all() and cached.isfinite().all()):
                said = f"prompt {i}, step {step}: logits are not finite; check the weights"
                raise FloatingPointError(said)
            drawn = int((whole + added[step]).argmax())  # the first of equals
            rows.append({"prompt": i, "step": step, **_compare(whole, cached, added[step], drawn)})
            sequence, fresh = [*sequence, drawn], [drawn]
    return pd.DataFrame(rows)


def _compare(whole, cached, added, drawn):
    """The measured columns of one step, from the logits of both paths, [vocab_size] each."""
    scores, excess = (whole + added).numpy(), (cached - whole).numpy()
    others = scores.copy()
    others[drawn] = -np.inf
    second = int(others.argmax())
    return {
        "difference": float(np.abs(excess).max()),
        "gap": float(scores[drawn] - scores[second]),
        "error": float(excess[drawn] - excess[second]),
        "same": drawn == int((cached + added).argmax()),
    }


def across(config, weights, prompts, n_new, seeds=None, dtypes=tuple(DTYPES)):
    """`measure` with the same weights in each dtype, named in the first column, `dtype`."""
    tables = {
        name: measure(
            charweights.model(config, weights).to(getattr(torch, name)), prompts, n_new, seeds
        )
        for name in dtypes
    }
    return pd.concat(tables, names=["dtype"]).reset_index("dtype").reset_index(drop=True)


def expected_flips(rows):
    """How often both paths should draw differently, from gaps and errors, beside how often they do.

    A step flips when an error against the leader exceeds its gap. Its chance is taken from the
    errors of all other steps of these rows, each as likely for as against: the step's own error,
    which decides whether it flips, has no say. One that equals the gap makes the cached path tie,
    and counts half. A third token that overtakes both is neglected.

    Returns a dict: `steps`, `difference` (the largest), `observed` flips with the exact 95 %
    interval of a Poisson count, `low` and `high`; `expected`; `a_million`, flips expected in a
    million steps from the mean error and the density of gaps at 0, which tells a rate also where
    no error reaches any gap; and `ties`, steps whose gap is 0, which count in none of these but
    `difference`, and `tied_flips` among them. ValueError for fewer than two steps without a tie.
    """
    tied = rows["gap"] == 0
    gaps, errors = rows.loc[~tied, "gap"].to_numpy(), rows.loc[~tied, "error"].abs().to_numpy()
    n, observed = len(gaps), int((~rows.loc[~tied, "same"].astype(bool)).sum())
    if n < 2:
        raise ValueError("the errors of other steps are needed: give two steps or more")
    above = sum(n - np.searchsorted(np.sort(errors), gaps, side) for side in ("left", "right"))
    own = (errors >= gaps).astype(int) + (errors > gaps)  # as `above`, whose equals count half
    expected = (above - own).sum() / 4 / (n - 1)
    density = NEAR / np.quantile(gaps, NEAR)  # gaps a nat, near 0
    return {
        "steps": n,
        "difference": rows["difference"].max(),
        "observed": observed,
        "low": stats.chi2.ppf(0.025, 2 * observed) / 2 if observed else 0.0,
        "high": stats.chi2.ppf(0.975, 2 * observed + 2) / 2,
        "expected": float(expected),
        "a_million": 1e6 * density * errors.mean() / 2,
        "ties": int(tied.sum()),
        "tied_flips": int((~rows.loc[tied, "same"].astype(bool)).sum()),
    }


def summary(rows):
    """`expected_flips` of the rows of `across`, one row a dtype."""
    told = {name: expected_flips(part) for name, part in rows.groupby("dtype", sort=False)}
    return pd.DataFrame.from_dict(told, orient="index").rename_axis("dtype")


def generate_twice(model, prompt, n_new, seed=None):
    """The source's experiment: (uncached ids, cached ids, difference), each path left to itself.

    difference is the largest between the logits from which the last token was drawn; where the ids
    differ it compares logits of different texts. ValueError for fewer than one new token.
    """
    whole_number("n_new", n_new, at_least=1)
    added, last, ids = noise(seed, n_new, model.config.vocab_size), [], []
    for caches in (None, new_caches(model)):
        steps = iter(added)

        def choose(logits, steps=steps, last=last):
            last.append(logits.double())
            return (last[-1] + next(steps)).argmax()

        ids.append(model.generate(prompt, n_new, caches, choose))
    return *ids, float((last[-1] - last[n_new - 1]).abs().max())
