"""Wrong solutions of chapter 1's exercises: why, source, share of the points, the check's words.

Words "" mean that the visible check is content. `changed` changes a right solution in one place.
"""

from exercise_code import changed

SLOWDOWN = """
def slowdown(cold_ms, warm_ms):
    grows, falls = 100 * (warm_ms / cold_ms - 1), 100 * (1 - cold_ms / warm_ms)
    return grows, falls
"""
RUNS = r"""
def read_runs(text):
    in_ms = {"s": 1000.0, "ms": 1.0, "us": 0.001}
    runs = []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("[TIMER_START]"):
            runs.append({"elapsed_ms": None, "tokens_ms": []})
        elif m := re.match(r"\[CACHE_QUERY\] .*entries=(\d+)", line):
            runs[-1]["entries"] = int(m[1])
        elif m := re.search(r"\[OUTPUT\] token_\d+ emitted: ([\d.]+)(s|ms|us)", line):
            stamp = float(m[1]) * in_ms[m[2]]
            runs[-1]["tokens_ms"].append(stamp)
        elif m := re.match(r"\[TIMER_STOP\] elapsed=([\d.]+)(s|ms|us)", line):
            runs[-1]["elapsed_ms"] = float(m[1]) * in_ms[m[2]]
    return [run for run in runs if run["elapsed_ms"] is not None]
"""
REFERENCE = """
def reference(times_ms, printed_ms, step):
    rows = np.asarray(times_ms, float) - np.asarray(printed_ms, float)
    low, high = (rows - step / 2).max(), (rows + step / 2).min()
    return (low, high) if low <= high else None
"""
LAYERS = """
def layer_loss(cold, warm, cold_end_ms, warm_end_ms):
    excess = warm - cold
    penalty_ms = np.diff(excess).mean()
    share = len(excess) * penalty_ms / (warm_end_ms - cold_end_ms)
    return penalty_ms, share
"""
AUDIT = """
def audit(report):
    cold, warm = np.array(report["cold_ms"]), np.array(report["warm_ms"])
    late = np.subtract(report["last_token_ms"], report["elapsed_ms"])
    states = {"cold": cold, "warm": warm}
    holds = {
        "A": all(round(float(t.mean())) == report[f"mean_{s}_ms"] for s, t in states.items()),
        "B": all(
            report[f"sd_{s}_ms"] in {round(float(t.std(ddof=d)), 1) for d in (0, 1)}
            for s, t in states.items()
        ),
        "C": len(set(warm - cold)) == 1,
        "D": warm.min() > cold.max(),
        "E": late.max() <= 0,
        "F": len(set(late)) == 1,
    }
    return [letter for letter in holds if not holds[letter]]
"""
B_OF_EACH = """all(
            report[f"sd_{s}_ms"] in {round(float(t.std(ddof=d)), 1) for d in (0, 1)}
            for s, t in states.items()
        ),
"""
B_OF_BOTH = """any(
            all(report[f"sd_{s}_ms"] == round(float(t.std(ddof=d)), 1) for s, t in states.items())
            for d in (0, 1)
        ),
"""
ORDER = """
def two_effects(pairs):
    steps = {"cold": [], "warm": []}
    for first_state, first_ms, second_ms in pairs:
        steps[first_state].append(second_ms - first_ms)
    if not (steps["cold"] and steps["warm"]):
        return None
    cold_first, warm_first = np.mean(steps["cold"]), np.mean(steps["warm"])
    return (cold_first - warm_first) / 2, (cold_first + warm_first) / 2
"""
POOLED = """
    all_steps = steps["cold"] + steps["warm"]
    warm = (sum(steps["cold"]) - sum(steps["warm"])) / len(all_steps)
    pooled = warm, np.mean(all_steps)
"""
RIVALS = """
def alive(predictions, observed):
    return [
        rival
        for rival in predictions
        if all(predictions.loc[run, rival] == stalls for run, stalls in observed.items())
    ]


def next_run(predictions, observed):
    names = alive(predictions, observed)
    best, fewest = None, len(names)
    for run in predictions.index:
        if run not in observed:
            n_stall = int(predictions.loc[run, names].sum())
            n_left = max(n_stall, len(names) - n_stall)
            if n_left < fewest:
                best, fewest = run, n_left
    return best
"""
HASHES = """
def still_possible(n_clean, seen, confidence):
    return min(1.0, (1 - (1 - confidence) ** (1 / n_clean)) / seen)


def runs_needed(rate, seen, confidence):
    if rate * seen == 1:
        return 1
    return int(np.floor(np.log(1 - confidence) / np.log(1 - rate * seen) + 1e-9)) + 1
"""
CLOCKS = """
def rescue(runs):
    earliest = min(first for first, _, _ in runs)
    rate = min(elapsed / (last - earliest) for first, last, elapsed in runs)
    return rate, -rate * earliest
"""

WRONG = {
    "stall-slowdown": [
        (
            "the two in the other order",
            changed(SLOWDOWN, ("return grows, falls", "return falls, grows")),
            0,
            "other order",
        ),
        (
            "one percentage for both, of the cold time",
            changed(SLOWDOWN, ("return grows, falls", "return grows, grows")),
            1 / 2,
            "growth of the time, twice",
        ),
        (
            "one percentage for both, of the warm time",
            changed(SLOWDOWN, ("return grows, falls", "return falls, falls")),
            1 / 2,
            "fall of the rate, twice",
        ),
        (
            "warm in per cent of cold",
            changed(SLOWDOWN, ("grows, falls\n", "100 + grows, 100 - falls\n")),
            0,
            "what is left, in per cent",
        ),
        (
            "rates rounded first, as in the log",
            "def slowdown(cold_ms, warm_ms):\n"
            "    cold, warm = round(12e3 / cold_ms, 1), round(12e3 / warm_ms, 1)\n"
            "    return 100 * (warm_ms / cold_ms - 1), 100 * (1 - warm / cold)",
            1 / 2,
            "rates that were rounded",
        ),
        (
            "shares, not per cent",
            changed(SLOWDOWN, ("grows, falls\n", "grows / 100, falls / 100\n")),
            0,
            "a share, or per cent?",
        ),
        (
            "whole per cent",
            changed(SLOWDOWN, ("return grows, falls", "return round(grows), round(falls)")),
            0,
            "is it rounded, or cut off?",
        ),
        ("no return", "def slowdown(cold_ms, warm_ms):\n    pass", 0, "returns nothing"),
        ("no function", "slowdown = (42.1, 29.7)", 0, "should be a function"),
        (
            "one number",
            "def slowdown(cold_ms, warm_ms):\n    return 100 * (warm_ms / cold_ms - 1)",
            0,
            "a list or a tuple",
        ),
        (
            "what the visible check asks for, typed in",
            "def slowdown(cold_ms, warm_ms):\n"
            "    if cold_ms == 847:\n"
            "        return 100 * (1204 / 847 - 1), 100 * (1 - 847 / 1204)\n"
            "    return -20.0, -25.0",
            0,
            "",
        ),
    ],
    "stall-runs": [
        (
            "units passed over",
            changed(RUNS, ('"s": 1000.0', '"s": 1.0'), ("0.001", "1.0")),
            0,
            "the unit in which each was printed",
        ),
        (
            "all read as seconds",
            changed(RUNS, ('"ms": 1.0', '"ms": 1000.0'), ("0.001", "1000.0")),
            3 / 4,
            "every number read as seconds",
        ),
        ("µs times 1000", changed(RUNS, ("0.001", "1000.0")), 3 / 4, "µs multiplied"),
        ("a note counts", changed(RUNS, (r"\[OUTPUT\] token", "token")), 3 / 4, "another tag"),
        (
            "a run without its end counts",
            changed(RUNS, (' if run["elapsed_ms"] is not None', "")),
            3 / 4,
            "a run that was cut off",
        ),
        (
            "a run ends with its timer",
            changed(
                RUNS,
                (
                    '            runs[-1]["tokens_ms"].append(stamp)',
                    '            if runs[-1]["elapsed_ms"] is None:\n'
                    '                runs[-1]["tokens_ms"].append(stamp)',
                ),
            ),
            3 / 4,
            "ends with its timer",
        ),
        (
            "whole milliseconds",
            changed(
                RUNS,
                (
                    "float(m[1]) * in_ms[m[2]]\n            runs",
                    "round(float(m[1]) * in_ms[m[2]])\n            runs",
                ),
            ),
            3 / 4,
            "without their decimals",
        ),
        ("entries as text", changed(RUNS, ("int(m[1])", "m[1]")), 0, "should be one number"),
        (
            "other keys",
            changed(RUNS, ('runs[-1]["entries"]', 'runs[-1]["n_entries"]')),
            0,
            "has the keys",
        ),
        (
            "what the visible check asks for, typed in",
            "def read_runs(text):\n"
            '    cold = {"entries": 0, "elapsed_ms": 431.0, "tokens_ms": [412.0, 421.0, 429.5]}\n'
            '    warm = {"entries": 9, "elapsed_ms": 570.0, "tokens_ms": [533.25, 561.0, 588.0]}\n'
            "    return [cold, warm]",
            0,
            "",
        ),
    ],
    "stall-reference": [
        (
            "the mean of the times",
            "def reference(times_ms, printed_ms, step):\n"
            "    return np.mean(times_ms) - step / 2, np.mean(times_ms) + step / 2",
            0,
            "the mean of the times",
        ),
        (
            "the wrong sign",
            changed(REFERENCE, ("float) - np", "float) + np")),
            0,
            "added where it should be taken off",
        ),
        (
            "bounds of a whole step",
            changed(
                REFERENCE, ("rows - step / 2", "rows - step"), ("rows + step / 2", "rows + step")
            ),
            1 / 3,
            "a whole step",
        ),
        (
            "any row, not all",
            changed(
                REFERENCE,
                (
                    "(rows - step / 2).max(), (rows + step / 2).min()",
                    "(rows - step / 2).min(), (rows + step / 2).max()",
                ),
            ),
            1 / 3,
            "what any row allows",
        ),
        (
            "an average of the rows",
            changed(REFERENCE, (".max()", ".mean()"), (".min()", ".mean()")),
            1 / 3,
            "the average of what the rows say",
        ),
        (
            "never None",
            changed(REFERENCE, (" if low <= high else None", "")),
            2 / 3,
            "the lower one is above the upper",
        ),
        (
            "no reference where one alone is left",
            changed(REFERENCE, ("low <= high", "low < high")),
            2 / 3,
            "",
        ),
        (
            "one number",
            changed(REFERENCE, ("return (low, high) if low <= high else None", "return rows[0]")),
            0,
            "a list or a tuple",
        ),
        ("no function", "reference = (843.5, 844.5)", 0, "should be a function"),
        (
            "always None",
            "def reference(times_ms, printed_ms, step):\n    return None",
            0,
            "has an answer",
        ),
        (
            "what the visible check asks for, typed in",
            "def reference(times_ms, printed_ms, step):\n"
            "    known = {50.6: (49.4, 50.1), 841: (843.5, 844.5), 52.3: (51.3, 51.4)}\n"
            "    known[1198] = (1203.5, 1204.5)\n"
            "    return known.get(times_ms[0])",
            0,
            "",
        ),
    ],
    "stall-layers": [
        ("the warm column alone", changed(LAYERS, ("warm - cold", "warm")), 0, "the warm column"),
        (
            "the whole excess over the layers",
            changed(LAYERS, ("np.diff(excess).mean()", "excess[-1] / len(excess)")),
            0,
            "before layer 0",
        ),
        (
            "n steps between n stamps",
            changed(LAYERS, ("np.diff(excess).mean()", "np.ptp(excess) / len(excess)")),
            0,
            "count the steps between them",
        ),
        (
            "the last layer for nothing",
            changed(LAYERS, ("len(excess) *", "(len(excess) - 1) *")),
            1 / 2,
            "a layer too few",
        ),
        (
            "median for mean",
            changed(LAYERS, ("np.diff(excess).mean()", "np.median(np.diff(excess))")),
            0,
            "a median of the steps",
        ),
        (
            "the mean excess",
            changed(LAYERS, ("np.diff(excess).mean()", "excess.mean()")),
            0,
            "the mean excess",
        ),
        (
            "a share of the warm time",
            changed(LAYERS, ("(warm_end_ms - cold_end_ms)", "warm_end_ms")),
            1 / 2,
            "a share of the warm time",
        ),
        (
            "a fitted slope",
            changed(
                LAYERS,
                ("np.diff(excess).mean()", "np.polyfit(np.arange(len(excess)), excess, 1)[0]"),
            ),
            0,
            "the slope of a fitted line",
        ),
        ("ten layers always", changed(LAYERS, ("len(excess) *", "10 *")), 1 / 2, "ten layers"),
        (
            "per cent for a share",
            changed(LAYERS, ("len(excess) *", "100 * len(excess) *")),
            1 / 2,
            "a share, or per cent?",
        ),
        (
            "seconds",
            changed(LAYERS, ("return penalty_ms", "return penalty_ms / 1000")),
            1 / 2,
            "are the units right",
        ),
        (
            "an argument that is changed",
            changed(LAYERS, ("excess = warm - cold", "warm -= cold\n    excess = warm")),
            1 / 2,
            "changes an argument",
        ),
        (
            "what the visible check asks for, typed in",
            "def layer_loss(cold, warm, cold_end_ms, warm_end_ms):\n"
            "    return (18.0, 180 / 423) if len(cold) == 10 else (3.25, 16.25 / 31)",
            0,
            "",
        ),
    ],
    "stall-audit": [
        (why, changed(AUDIT, change), 5 / 6, words)
        for why, change, words in [
            ("a mean cut off", ("round(float(t.mean()))", "int(t.mean())"), "cut off"),
            ("an exact mean", ("round(float(t.mean()))", "t.mean()"), "not rounded"),
            ("over n alone", ("(0, 1)", "(0,)"), "denominator n alone"),
            ("over n - 1 alone", ("(0, 1)", "(1,)"), "denominator n - 1 alone"),
            (
                "one denominator for both states",
                (B_OF_EACH, B_OF_BOTH),
                "one denominator for both states",
            ),
            (
                "about fixed",
                ("len(set(warm - cold)) == 1", "np.ptp(warm - cold) < 0.09 * (warm - cold).mean()"),
                "with a tolerance",
            ),
            (
                "means, not ranges",
                ("warm.min() > cold.max()", "warm.mean() > cold.mean()"),
                "means, which",
            ),
            (
                "pair by pair",
                ("warm.min() > cold.max()", "(warm > cold).all()"),
                "each pair by itself",
            ),
            ("all late", ("late.max()", "late.min()"), "for 'no token is late'"),
            ("at the stop is late", ("late.max() <= 0", "late.max() < 0"), ""),
            ("no sign", ("set(late)", "set(abs(late))"), "without their sign"),
        ]
    ]
    + [
        ("all are accused", "def audit(report):\n    return list('ABCDEF')", 0, "Statement A"),
        (
            "those that hold",
            changed(AUDIT, ("if not holds", "if holds")),
            0,
            "Statement A is not judged right",
        ),
        ("numbers", "def audit(report):\n    return [1, 2]", 0, "letters from A to F"),
        (
            "what the visible check asks for, typed in",
            "def audit(report):\n"
            '    return {1200: "ABCEF", 418: "D", 310: "CDEF"}.get(report["mean_warm_ms"], "")',
            0,
            "",
        ),
    ],
    "stall-order": [
        (
            "an answer from one order",
            changed(ORDER, ("    if not", POOLED + "    if not"), ("return None", "return pooled")),
            2 / 3,
            "pairs in one order",
        ),
        (
            "the two in the other order",
            changed(
                ORDER,
                (" - warm_first) / 2", " + warm_first) / 2"),
                ("(cold_first + warm_first) / 2\n", "(cold_first - warm_first) / 2\n"),
            ),
            1 / 3,
            "other order",
        ),
        (
            "one average over all pairs",
            changed(
                ORDER,
                (
                    "    cold_first, warm_first =",
                    POOLED + "    return pooled\n    cold_first, warm_first =",
                ),
            ),
            1 / 3,
            "one average over all pairs",
        ),
        (
            "medians",
            changed(
                ORDER,
                ('np.mean(steps["cold"])', 'np.median(steps["cold"])'),
                ('np.mean(steps["warm"])', 'np.median(steps["warm"])'),
            ),
            1 / 3,
            "medians",
        ),
        ("not halved", ORDER.replace(" / 2", ""), 1 / 3, "twice what it should be"),
        (
            "first less second",
            changed(ORDER, ("(cold_first + warm_first) / 2", "-(cold_first + warm_first) / 2")),
            2 / 3,
            "right but for its sign",
        ),
        ("always None", "def two_effects(pairs):\n    return None", 0, "has an answer"),
        (
            "what the visible check asks for, typed in",
            "def two_effects(pairs):\n    return (22.0, 10.0) if pairs[0][1] == 200.0 else None",
            0,
            "",
        ),
    ],
    "stall-rivals": [
        ("one agreement is enough", changed(RIVALS, ("if all(", "if any(")), 0, "agree with some"),
        (
            "runs that nobody made count",
            changed(
                RIVALS,
                (
                    "in observed.items()",
                    "in (dict.fromkeys(predictions.index, False) | observed).items()",
                ),
            ),
            0,
            "runs that nobody made",
        ),
        (
            "`is` for ==: NumPy's True is not Python's",
            changed(
                RIVALS,
                ("predictions.loc[run, rival] == stalls", "predictions.loc[run, rival] is stalls"),
            ),
            0,
            "or `is` for ==",
        ),
        (
            "the last of tied runs",
            changed(RIVALS, ("n_left < fewest", "n_left < len(names) and n_left <= fewest")),
            2 / 3,
            "the last of several runs",
        ),
        (
            "those that are out",
            changed(RIVALS, ("if all(", "if not all(")),
            0,
            "the rivals that are excluded",
        ),
        (
            "all rivals count for the next run",
            changed(RIVALS, ("names = alive(predictions, observed)", "names = list(predictions)")),
            1 / 3,
            "already excluded",
        ),
        (
            "the best case",
            changed(RIVALS, ("n_left = max(", "n_left = min(")),
            1 / 3,
            "next_run",
        ),
        (
            "the run on which they agree most",
            changed(
                RIVALS, ("None, len(names)", "None, 0"), ("n_left < fewest", "n_left > fewest")
            ),
            1 / 3,
            "agree most",
        ),
        (
            "always some run",
            changed(RIVALS, ("None, len(names)", "None, len(names) + 1")),
            2 / 3,
            "splits no one off",
        ),
        (
            "what the visible check asks for, typed in",
            "def alive(predictions, observed):\n"
            '    return ["neighbour, laid out ahead", "retry, everywhere", '
            '"verification of allocations"]\n\n\n'
            "def next_run(predictions, observed):\n"
            '    if "run 1" not in observed:\n'
            '        return "time-out 0 alone"\n'
            '    return "run 4" if len(observed) == 1 else None',
            0,
            "",
        ),
    ],
    "stall-hashes": [
        (
            "the eyes see all",
            changed(HASHES, (" / seen)", ")"), ("- rate * seen)", "- rate)")),
            0,
            "every damage seen by the hash",
        ),
        (
            "the eyes on the wrong side",
            changed(HASHES, (" / seen)", " * seen)")),
            1 / 3,
            "on the wrong side",
        ),
        (
            "fewer runs that see all",
            changed(
                HASHES,
                (
                    "min(1.0, (1 - (1 - confidence) ** (1 / n_clean)) / seen)",
                    "1 - (1 - confidence) ** (1 / (n_clean * seen))",
                ),
            ),
            1 / 3,
            "runs that see all: near",
        ),
        (
            "more than certain",
            changed(
                HASHES,
                (
                    "min(1.0, (1 - (1 - confidence) ** (1 / n_clean)) / seen)",
                    "(1 - (1 - confidence) ** (1 / n_clean)) / seen",
                ),
            ),
            2 / 3,
            "a probability above 1",
        ),
        (
            "three over n",
            changed(HASHES, ("(1 - (1 - confidence) ** (1 / n_clean))", "3 / n_clean")),
            1 / 3,
            "the rule of three",
        ),
        (
            "the confidence itself",
            changed(HASHES, ("(1 - confidence) ** (1", "confidence ** (1")),
            1 / 3,
            "the chance of being fooled",
        ),
        ("one run short", changed(HASHES, ("1e-9)) + 1", "1e-9))")), 2 / 3, "one run too few"),
        (
            "a bound that equals the rate is enough",
            changed(HASHES, ("np.floor", "np.ceil"), (" + 1e-9)) + 1", "))")),
            2 / 3,
            "0.75) is not right. It looks like one run too few",
        ),
        (
            "the logarithm of 0",
            "import math\n"
            + changed(
                HASHES,
                ("    if rate * seen == 1:\n        return 1\n", ""),
                ("np.log(1 - rate", "math.log(1 - rate"),
            ),
            2 / 3,
            "",
        ),
        (
            "no run at all where the hash sees each",
            changed(HASHES, ("        return 1\n", "        return 0\n")),
            2 / 3,
            "",
        ),
        (
            "not a whole number",
            changed(
                HASHES,
                (
                    "int(np.floor(np.log(1 - confidence) / np.log(1 - rate * seen) + 1e-9)) + 1",
                    "np.log(1 - confidence) / np.log(1 - rate * seen)",
                ),
            ),
            2 / 3,
            "not whole",
        ),
        (
            "runs of a hash that sees all",
            changed(HASHES, ("- rate * seen)", "- rate)")),
            2 / 3,
            "every damage seen by the hash",
        ),
        (
            "three over the rate",
            changed(
                HASHES,
                (
                    "np.floor(np.log(1 - confidence) / np.log(1 - rate * seen) + 1e-9)) + 1",
                    "np.ceil(3 / (rate * seen)))",
                ),
            ),
            2 / 3,
            "the rule of three",
        ),
        (
            "runs for the confidence itself",
            changed(HASHES, ("np.log(1 - confidence)", "np.log(confidence)")),
            2 / 3,
            "the chance of being fooled",
        ),
    ],
    "stall-clocks": [
        (
            "each run its own shift",
            "def rescue(runs):\n"
            "    rate, first = min((e / (last - first), first) for first, last, e in runs)\n"
            "    return rate, -rate * first",
            0,
            "a shift of its own",
        ),
        (
            "no shift",
            changed(CLOCKS, ("earliest = min(first for first, _, _ in runs)", "earliest = 0.0")),
            0,
            "without any shift",
        ),
        (
            "the least of the runs' own rates",
            changed(CLOCKS, ("(last - earliest)", "(last - first)")),
            0,
            "the least of the rates of the single runs",
        ),
        (
            "one run saved",
            changed(CLOCKS, ("rate = min(", "rate = max(")),
            0,
            "keeps one run within its timer",
        ),
        (
            "the inverse rate",
            changed(CLOCKS, ("return rate,", "return 1 / rate,")),
            1 / 2,
            "the other clock's rate",
        ),
        (
            "a shift of the stamps",
            changed(CLOCKS, ("-rate * earliest", "-earliest")),
            1 / 2,
            "a shift in ms of the stamps",
        ),
        (
            "a shift the wrong way",
            changed(CLOCKS, ("-rate * earliest", "rate * earliest")),
            1 / 2,
            "right but for its sign",
        ),
        (
            "what the visible check asks for, typed in",
            "def rescue(runs):\n"
            "    rate = 140 / 160 if len(runs) == 3 and runs[0][0] == 30.0 else 1204 / 1207\n"
            "    return rate, -rate * (147.0 if len(runs) == 6 else 20.0)",
            0,
            "",
        ),
    ],
}
