"""Trials of timing tools: each is put the same questions, under the same noise, many times.

A row is one answer of one tool: `trials` asks, `summary` counts how often it was right, and
`answers_on_reuse` what it said where nobody knows the truth.
"""

import math
import random
from time import perf_counter

import pandas as pd
from scipy.stats import binomtest
from tqdm import tqdm

from labsupport import rivals, timing
from labsupport.noise import NOISES, neighbours
from labsupport.pairs import CONFIDENCE
from labsupport.questions import QUESTIONS, Asked

OURS = "compare"
TOOLS = [OURS, *rivals.TOOLS]
NOT_ASKED = "not asked"
COLUMNS = ["noise", "question", "tool", "repeat", "ratio", "low", "high", "true_ratio", "verdict"]
COLUMNS += ["span_s"]


def our_answer(asked, budget_s):
    """{tool: (ratio, low, high, verdict)} of `timing.compare` with its usual floor and margin."""
    found = timing.compare(*asked.paths(), budget_s=budget_s, seed=asked.trial)
    ends = (end if 0 < end < math.inf else math.nan for end in (found.low, found.high))
    return {OURS: (found.ratio, *ends, found.verdict)}


def plan(noises, n_ours, n_rivals, seed):
    """Every (asker, question) of a run in random order, each tool's trials among the others'."""
    asked = [
        (asker, Asked(question, noise, trial))
        for asker in (our_answer, *rivals.RIVALS)
        for noise in noises
        for question in QUESTIONS
        for trial in range(n_ours if asker is our_answer else n_rivals)
    ]
    random.Random(seed).shuffle(asked)
    return asked


def trials(noises, n_ours, n_rivals, budget_s, seed=0):
    """One row an answer, in the order given: COLUMNS.

    The rivals are asked less often, since they take longer: the rows of their other trials hold
    the verdict NOT_ASKED and no number. `low` and `high` are empty for a tool without interval,
    `true_ratio` where it is unknown; `span_s` is what the answer took, start-up included.
    """
    rows = []
    for asker, asked in tqdm(plan(noises, n_ours, n_rivals, seed), desc="trials", disable=None):
        with neighbours(asked.noise, asked.trial, budget_s):
            start_s = perf_counter()
            answers = asker(asked, budget_s)
            span_s = perf_counter() - start_s
        for tool, (ratio, *ends, verdict) in answers.items():
            low, high = ends or (math.nan, math.nan)
            row = (asked.noise, asked.question, tool, asked.trial)
            rows.append((*row, ratio, low, high, asked.true_ratio, verdict, span_s))
    nothing = [math.nan] * 4 + [NOT_ASKED, math.nan]
    rows += [
        (noise, question, tool, trial, *nothing)
        for noise in noises
        for question in QUESTIONS
        for tool in rivals.TOOLS
        for trial in range(n_rivals, n_ours)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def summary(rows):
    """How often each tool was wrong and right: a row for each noise, tool and measure.

    false alarm  a verdict on identical code
    power        the right verdict on a true effect
    wrong way    the opposite one
    coverage     intervals that hold the true ratio, in both questions; only tools that give one

    Columns noise, tool, measure, k of n, share, and low and high: the 95 % interval of Clopper and
    Pearson (Biometrika 26, 1934), which is exact.
    """
    known = rows[(rows.verdict != NOT_ASKED) & rows.true_ratio.notna()]
    right = known.true_ratio.map(lambda ratio: timing.verdict(ratio, ratio, 0.0))
    said = known.verdict != "cannot tell"
    identical, effect = (known.question == question for question in ("identical", "effect"))
    measures = {  # measure: (which rows count, which of them hold)
        "false alarm": (identical, said),
        "power": (effect, known.verdict == right),
        "wrong way": (effect, said & (known.verdict != right)),
        "coverage": (known.low.notna(), known.true_ratio.between(known.low, known.high)),
    }
    table = []
    for (noise, tool), group in known.groupby(["noise", "tool"]):
        for measure, (counted, holds) in measures.items():
            if n := int(counted[group.index].sum()):
                k = int((counted & holds)[group.index].sum())
                ends = binomtest(k, n).proportion_ci(CONFIDENCE, method="exact")
                table.append((noise, tool, measure, k, n, k / n, ends.low, ends.high))
    columns = ["noise", "tool", "measure", "k", "n", "share", "low", "high"]
    return _ordered(pd.DataFrame(table, columns=columns))


def answers_on_reuse(rows):
    """What each tool said of reuse: a row for each noise and tool.

    Columns noise, tool, n, the shares 'slower', 'cannot tell' and 'faster', and the median, lowest
    and highest ratio of reuse to full computation.
    """
    asked = rows[(rows.verdict != NOT_ASKED) & (rows.question == "reuse")]
    table = []
    for (noise, tool), group in asked.groupby(["noise", "tool"]):
        shares = {v: (group.verdict == v).mean() for v in ("slower", "cannot tell", "faster")}
        ratios = {
            "median": group.ratio.median(),
            "min": group.ratio.min(),
            "max": group.ratio.max(),
        }
        table.append({"noise": noise, "tool": tool, "n": len(group), **shares, **ratios})
    return _ordered(pd.DataFrame(table))


def _ordered(table):
    """Sorted as NOISES and TOOLS are; the sort is stable, so measures keep their order."""
    places = {name: i for i, name in enumerate([*NOISES, *TOOLS])}
    return table.sort_values(
        ["noise", "tool"], key=lambda names: names.map(places), ignore_index=True, kind="stable"
    )
