"""Wrong answers to chapter 2's exercises: what each deserves, and what the check should say.

WRONG maps an exercise to (why, source of its solution cell, share of the points, words of the
check). Words "" belong to answers with which the visible check is content.
"""

LEFT_OVER = """
def left_over(row):
    return {}
"""

MEDIANS = """
def median_gaps(rows):
    columns = ["total_ns", *profile.SEGMENTS]
    middle = {}
    gaps = middle["total_ns"] - middle[profile.SEGMENTS].sum(axis=1)
    return {}

why = {}
"""


def _medians(
    middle="rows.groupby('path')[columns].median() / 1000", given="gaps.to_dict()", why="'C'"
):
    return MEDIANS.format(middle, given, why)


RIGHT_ENDS = """
def extremes(lookup, copy):
    from itertools import permutations
    totals = [np.median(lookup + np.array(o)) for o in permutations(copy)]
    return min(totals), max(totals)
"""
RIGHT_CLOSING = """
def closing(lookup, copy):
    return np.sort(copy)[np.argsort(np.argsort(lookup))]
"""


def _closing(returned):
    return f"def closing(lookup, copy):\n    return {returned}\n" + RIGHT_ENDS


def _ends(returned):
    return f"{RIGHT_CLOSING}\ndef extremes(lookup, copy):\n    return {returned}\n"


ORDER = """
def order(degree):
    n = 2 ** (degree + 1)
    return {}
"""

ISOLATED = """
def isolated(cache):
    def held(cache):
        return np.stack([cache.keys(), cache.values()])

    def new(number):
        return np.full((cache.n_kv_heads, 2, cache.head_dim), number, cache.dtype)

    kept = held(cache)
    for back in {backs}:
        queries = [cache.copy() for _ in range({n})]
        for i, query in enumerate(queries):
            query.truncate(len(query) - back)
            query.append(new(i), new(10 + i))
        {each}
        if not np.array_equal(held(cache), kept):
            return False
    return True
"""
EACH = """for i, query in enumerate(queries):
            start = kept[:, :, : len(cache) - back]
            want = np.concatenate([start, np.stack([new(i), new(10 + i)])], axis=2)
            if not np.array_equal(held(query), want):
                return False"""


def _isolated(backs="(0, 1)", n="3", each=EACH):
    return ISOLATED.format(backs=backs, n=n, each=each)


AFTER = """
def after(build, name, change, tokens):
    model = build()
    named, outputs = {first}, model.forward(tokens)
    try:
        change(model)
    except {refusals}:
        return "refused"
    same = {same}
    if {same_name}:
        return "harmless" if same else "stale"
    return "needless" if same else "seen"
"""


def _after(
    first="name(model)",
    refusals="(AttributeError, TypeError, ValueError)",
    same="np.abs(model.forward(tokens) - outputs).max() <= 1e-12",
    same_name="name(model) == named",
):
    return AFTER.format(first=first, refusals=refusals, same=same, same_name=same_name)


def _pays(*lines):
    return "\n    ".join(["def queries_to_pay(n_prefixes, fresh, hit, miss, once):", *lines]) + "\n"


NEVER = "if hit >= fresh: return None"

STORE = """
from collections import OrderedDict


def run(prefixes, room, refresh={refresh}):
    kept, hits = OrderedDict(), 0
    for prefix in prefixes:
        if prefix in kept:
            hits += 1
            if refresh:
                kept.move_to_end(prefix)
        elif room:
            kept[prefix] = 1
            if len(kept) > room:
                kept.popitem(last=False)
    return hits


def hits_by_room(prefixes):
    return [run(prefixes, room){more} for room in range({start}, len(set(prefixes)) + {stop})]


def smallest_room(prefixes, fresh, hit, miss):
    n = len(prefixes)
    for room in range(len(set(prefixes)) + 1):
        hits = {hits}
        if hits * hit + (n - hits) * miss {less} n * fresh:
            return {found}
    return {none}
"""


def _store(**changed):
    usual = {
        **{"refresh": "True", "more": "", "start": "0", "stop": "1"},
        **{"hits": "run(prefixes, room)", "less": "<", "found": "room", "none": "None"},
    }
    return STORE.format(**usual | changed)


WITHIN = """
def hits_by_room(prefixes):
    last, gaps = {}, []
    for i, prefix in enumerate(prefixes):
        if prefix in last:
            gaps.append(i - last[prefix])
        last[prefix] = i
    return [sum(g <= r for g in gaps) for r in range(len(set(prefixes)) + 1)]
"""

CONCLUDE = """
def conclude(rows):
    pairs = rows.pivot(index=["seed", "round"], columns="path", values="total_ns")
    ratio, low, high = timing.ratio_of_pairs({pairs})
    return {given}
"""
VERDICT = "timing.verdict(low, high, timing.MARGIN)"
PAIRS = 'pairs["full"], pairs["frozen"]'
HASTY = """
def conclude(rows):
    times = rows.groupby("path")["total_ns"].{}()
    return "slower" if times["frozen"] > times["full"] else "faster"
"""

RUN = """
out = Path(tempfile.mkdtemp(prefix="profile-"), "run")
case = profile.Case({sizes}, seeds=3, rounds=11)
profile_command.record(evidence.begin(out), {recorded})
conclusion = conclude(evidence.read(out).rows)
{then}
"""


def _run(sizes="tokens=20, prefix=16", recorded="case", then=""):
    return RUN.format(sizes=sizes, recorded=recorded, then=then)


WRONG = {
    "decomposition-left-over": [
        (
            "the residual is left out",
            LEFT_OVER.format("row['total_ns'] - row[profile.SEGMENTS[:-1]].sum()"),
            0,
            "residual is left out",
        ),
        (
            "all columns of times are parts",
            LEFT_OVER.format("row['total_ns'] - row.filter(like='_ns').sum()"),
            0,
            "total is counted",
        ),
        (
            "all columns after the total are parts",
            LEFT_OVER.format("row['total_ns'] - row['signature_ns':].sum()"),
            0,
            "`agreed` is counted",
        ),
        ("the sum", LEFT_OVER.format("row[profile.SEGMENTS].sum()"), 0, "a sum of the parts"),
        (
            "the wrong way round",
            LEFT_OVER.format("row[profile.SEGMENTS].sum() - row['total_ns']"),
            0,
            "sign",
        ),
        (
            "without its sign",
            LEFT_OVER.format("abs(row['total_ns'] - row[profile.SEGMENTS].sum())"),
            1 / 2,
            "lost its sign",
        ),
        ("always zero", LEFT_OVER.format("0"), 0, "of your own making"),
        (
            "in µs",
            LEFT_OVER.format("(row['total_ns'] - row[profile.SEGMENTS].sum()) / 1000"),
            0,
            "1,000 times too small",
        ),
        (
            "an array",
            LEFT_OVER.format("np.array([row['total_ns'] - row[profile.SEGMENTS].sum()])"),
            0,
            "one number, not an array",
        ),
        (
            "the row is changed",
            "def left_over(row):\n    row['total_ns'] -= row[profile.SEGMENTS].sum()\n"
            "    return row['total_ns']",
            1,
            "changes an argument",
        ),
        (
            "hard-coded",
            LEFT_OVER.format("{181_340: 0, 90_407: 7, 1_960: -40}[row['total_ns']]"),
            0,
            "",
        ),
    ],
    "decomposition-medians": [
        (
            "means",
            _medians("rows.groupby('path')[columns].mean() / 1000"),
            1 / 2,
            "Means always add up",
        ),
        (
            "sums of the rows",
            _medians(given="{path: 0.0 for path in gaps.index}"),
            1 / 2,
            "Means always add up",
        ),
        ("ns", _medians("rows.groupby('path')[columns].median()"), 1 / 2, "1,000 times too large"),
        ("the wrong way round", _medians(given="(-gaps).to_dict()"), 1 / 2, "sign"),
        (
            "all paths together",
            "def median_gaps(rows):\n"
            "    medians = rows[['total_ns', *profile.SEGMENTS]].median() / 1000\n"
            "    gap = medians.iloc[0] - medians.iloc[1:].sum()\n"
            "    return dict.fromkeys(rows['path'], gap)\n"
            "why = 'C'",
            1 / 2,
            "thrown together",
        ),
        (
            "without the residual",
            _medians(given="(gaps + middle['residual_ns']).to_dict()"),
            1 / 2,
            "residual is left out",
        ),
        (
            "the total is a part",
            _medians(given="(gaps - middle['total_ns']).to_dict()"),
            1 / 2,
            "total is counted",
        ),
        (
            "the chapter's paths only",
            _medians(given="{p: float(gaps.get(p, 0)) for p in profile.PATHS}"),
            1 / 2,
            "The paths in these rows",
        ),
        ("a number", _medians(given="0.0"), 1 / 2, "return a dict"),
        ("time that nobody sees", _medians(why="'A'"), 1 / 2, "and yet there is a gap"),
        ("rounding", _medians(why="'B'"), 1 / 2, "rounding to 0.1"),
        ("slow queries", _medians(why="'D'"), 1 / 2, "hardly move"),
        ("no reason", _medians(why="..."), 1 / 2, "no value yet"),
        ("no such letter", _medians(why="'E'"), 1 / 2, "should be one of"),
    ],
    "decomposition-pairings": [
        ("as it came", _closing("copy"), 2 / 3, "as it came"),
        ("sorted", _closing("np.sort(copy)"), 2 / 3, "sorts copy, but"),
        (
            "longest to shortest",
            _closing("np.sort(copy)[::-1][np.argsort(np.argsort(lookup))]"),
            2 / 3,
            "longest copies to the shortest",
        ),
        ("argsort for ranks", _closing("np.sort(copy)[np.argsort(lookup)]"), 2 / 3, "ranks"),
        (
            "other numbers",
            _closing("np.full_like(copy, np.median(copy))"),
            2 / 3,
            "the same numbers as copy",
        ),
        (
            "the median of one row",
            _closing("np.roll(copy, 1)"),
            2 / 3,
            "With closing the median total is",
        ),
        (
            "greatest first",
            _ends("extremes_of(lookup, copy)[::-1]").replace(
                "def extremes(", RIGHT_ENDS.replace("extremes", "extremes_of") + "\ndef extremes("
            ),
            1 / 3,
            "the greatest, in the place of the least",
        ),
        (
            "rows",
            _ends("lookup.min() + copy.min(), lookup.max() + copy.max()"),
            1 / 3,
            "the shortest row",
        ),
        (
            "the longest row",
            _ends("extremes_of(lookup, copy)[0], lookup.max() + copy.max()").replace(
                "def extremes(", RIGHT_ENDS.replace("extremes", "extremes_of") + "\ndef extremes("
            ),
            2 / 3,
            "the longest row",
        ),
        (
            "one order",
            _ends("(np.median(np.sort(lookup) + np.sort(copy)[::-1]),) * 2"),
            1 / 3,
            "longest to shortest in all rows",
        ),
        (
            "the sum",
            _ends("(np.median(lookup) + np.median(copy),) * 2"),
            1 / 3,
            "the one that adds up",
        ),
        ("one number", _ends("0.0"), 1 / 3, "two numbers"),
        (
            "the input is sorted where it lies",
            _closing("(lookup.sort(), np.sort(copy))[1]"),
            2 / 3,
            "changes an argument",
        ),
    ],
    "decomposition-order": [
        (
            "one after the other",
            ORDER.format("'f' * (n // 2) + 'g' * (n // 2)"),
            0,
            "after the other",
        ),
        ("in turns", ORDER.format("'fg' * (n // 2)"), 0, "alternate"),
        ("groups of four", ORDER.format("('fggf' * n)[:n]"), 1 / 3, "same four calls"),
        (
            "groups of four, from g",
            ORDER.format("('gffg' * n)[:n]"),
            1 / 3,
            "same four calls",
        ),
        ("one length", ORDER.format("'fggf'"), 0, "it should have 2"),
        ("too long", ORDER.format("'fg' * n"), 0, "it should have 2"),
        ("f alone", ORDER.format("'f' * n"), 0, "equally often"),
        ("a list", ORDER.format("['f', 'g'] * (n // 2)"), 0, "a text"),
        ("capitals", ORDER.format("'FG' * (n // 2)"), 0, "the letters f and g"),
        (
            "mirrored",
            ORDER.format("'fg' if n == 2 else 'f' * (n // 4) + 'g' * (n // 2) + 'f' * (n // 4)"),
            1 / 3,
            "under drift of degree 2",
        ),
        (
            "as far as the check looks",
            ORDER.format(
                "''.join('fg'[i.bit_count() % 2] for i in range(n)) if n < 64 else 'fg' * (n // 2)"
            ),
            2 / 3,
            "",
        ),
    ],
    "decomposition-isolated": [
        ("every cache is safe", "def isolated(cache):\n    return True", 0, "share all rows"),
        ("no cache is safe", "def isolated(cache):\n    return False", 0, "independent"),
        (
            "only the kept rows",
            _isolated(backs="(0,)", each="pass"),
            0,
            "look at what each of them reads",
        ),
        (
            "memory",
            "def isolated(cache):\n    a, b = cache.copy(), cache.copy()\n"
            "    pairs = [(a, b), (a, cache), (b, cache)]\n"
            "    return not any(np.shares_memory(x.keys(), y.keys())"
            " or np.shares_memory(x.values(), y.values()) for x, y in pairs)",
            2 / 3,
            "judge by what is read",
        ),
        (
            "keys alone",
            _isolated()
            .replace("[cache.keys(), cache.values()]", "[cache.keys()] * 2")
            .replace("np.stack([new(i), new(10 + i)])", "np.stack([new(i)] * 2)"),
            2 / 3,
            "share the values",
        ),
        (
            "all queries append the same",
            _isolated().replace("new(i), new(10 + i)", "new(1), new(2)"),
            2 / 3,
            "append different rows",
        ),
        ("one query", _isolated(n="1"), 2 / 3, "take two copies"),
        (
            "an assertion",
            "def isolated(cache):\n    a, b = cache.copy(), cache.copy()\n"
            "    assert not np.shares_memory(a.values(), b.values())\n"
            "    assert not np.shares_memory(a.keys(), b.keys())\n    return True",
            0,
            "return False instead",
        ),
        ("no token taken back", _isolated(backs="(0,)"), 2 / 3, "before its first append"),
        (
            "a word",
            "def isolated(cache):\n    return 'yes'",
            0,
            "True or False",
        ),
    ],
    "decomposition-identity": [
        ("outputs do not count", _after(same="False"), 2 / 3, "as they are"),
        ("every change counts for nothing", _after(same="True"), 0, "Outputs differ here"),
        ("refusals go through", _after(refusals="KeyError"), 2 / 3, "refusal through"),
        (
            "the outputs are taken afterwards",
            _after(same="np.array_equal(model.forward(tokens), model.forward(tokens))"),
            0,
            "Outputs differ here",
        ),
        ("names are the same object", _after(same_name="name(model) is named"), 1 / 3, "by =="),
        (
            "the first token alone",
            _after(same="np.abs(model.forward(tokens) - outputs)[0].max() <= 1e-12"),
            1 / 3,
            "for all tokens",
        ),
        (
            "names differ always",
            _after(same_name="False"),
            1 / 3,
            "by ==",
        ),
        (
            "a name says nothing",
            _after(same_name="True"),
            0,
            "by ==",
        ),
        (
            "whatever happens is a refusal",
            "def after(build, name, change, tokens):\n    return 'refused'",
            0,
            "one of the three errors",
        ),
        (
            "any difference counts",
            _after(same="np.array_equal(model.forward(tokens), outputs)"),
            2 / 3,
            "less than 1e-12 here",
        ),
        (
            "too wide a tolerance",
            _after(same="np.allclose(model.forward(tokens), outputs)"),
            2 / 3,
            "more than 1e-12 here",
        ),
        (
            "a thousandth",
            _after(same="np.abs(model.forward(tokens) - outputs).max() <= 1e-3"),
            2 / 3,
            "more than 1e-12 here",
        ),
        (
            "the table transposed",
            _after()
            .replace('"stale"', '"x"')
            .replace('"needless"', '"stale"')
            .replace('"x"', '"needless"'),
            1 / 3,
            "stale and needless are interchanged",
        ),
        ("other words", _after().replace('"seen"', '"noticed"'), 1 / 3, "should be one of"),
    ],
    "decomposition-pays": [
        (
            "equal is enough",
            _pays(NEVER, "return -(-(once + n_prefixes * (miss - hit)) // (fresh - hit))"),
            1 / 3,
            "take the same time",
        ),
        (
            "repeats alone",
            _pays(
                NEVER,
                "return (once + n_prefixes * (miss - hit)) // (fresh - hit) + 1 - n_prefixes",
            ),
            0,
            "the repeats alone",
        ),
        (
            "the name is free",
            _pays(NEVER, "return n_prefixes * (miss - hit) // (fresh - hit) + 1"),
            0,
            "is left out",
        ),
        (
            "no cold starts",
            _pays(NEVER, "return once // (fresh - hit) + 1"),
            0,
            "as if they were hits",
        ),
        ("a rate", _pays("return (miss - fresh) / (miss - hit)"), 0, "a hit rate"),
        (
            "a miss is a fresh query",
            _pays(NEVER, "return (once + n_prefixes * (fresh - hit)) // (fresh - hit) + 1"),
            1 / 3,
            "costs no more than a fresh query",
        ),
        (
            "named for each prefix",
            _pays(NEVER, "return n_prefixes * (once + miss - hit) // (fresh - hit) + 1"),
            0,
            "once for each prefix",
        ),
        (
            "no never",
            _pays("return (once + n_prefixes * (miss - hit)) // (fresh - hit) + 1"),
            2 / 3,
            "never pays",
        ),
        (
            "division by zero",
            _pays(
                "if hit > fresh: return None",
                "return (once + n_prefixes * (miss - hit)) // (fresh - hit) + 1",
            ),
            2 / 3,
            "divides by zero",
        ),
        ("never", _pays("return None"), 0, "returns nothing"),
    ],
    "decomposition-room": [
        ("the oldest goes", _store(refresh="False"), 2 / 4, "came first"),
        ("no room 0", _store(start="1"), 2 / 4, "one place off"),
        (
            "one too deep",
            _store(start="-1", stop="0").replace(
                "run(prefixes, room) for", "run(prefixes, max(room, 0)) for"
            ),
            2 / 4,
            "repeats item 0",
        ),
        (
            "first uses are hits",
            _store(more=" + (len(set(prefixes)) if room else 0)"),
            2 / 4,
            "a store begins empty",
        ),
        ("time, not prefixes", _store() + WITHIN, 3 / 4, "different prefixes in between"),
        ("nothing hits", _store(more=" * 0"), 2 / 4, "too few hits from room 1 on"),
        ("everything hits", _store(more=" + len(prefixes)"), 2 / 4, "too many hits from room 0"),
        (
            "the newest goes",
            _store().replace("kept.popitem(last=False)", "kept.popitem()"),
            0,
            "forgets the newest",
        ),
        (
            "the last used goes",
            _store().replace(
                "kept[prefix] = 1\n",
                "len(kept) < room or kept.popitem()\n            kept[prefix] = 1\n",
            ),
            0,
            "that was used last",
        ),
        (
            "the least often used goes",
            _store()
            .replace("hits += 1", "hits += 1\n            kept[prefix] += 1")
            .replace(
                "kept[prefix] = 1\n",
                "len(kept) < room or kept.pop(min(kept, key=kept.get))\n"
                "            kept[prefix] = 1\n",
            ),
            2 / 4,
            "least often",
        ),
        (
            "a dict",
            _store()
            .replace("    return [run(", "    return dict(enumerate([run(")
            .replace("+ 1)]", "+ 1)]))", 1),
            2 / 4,
            "should return a list",
        ),
        (
            "misses at the price of fresh queries",
            _store().replace("(n - hits) * miss", "(n - hits) * fresh"),
            2 / 4,
            "costs no more than a fresh query",
        ),
        (
            "one miss a prefix",
            _store().replace("(n - hits) * miss", "len(set(prefixes)) * miss"),
            2 / 4,
            "one that was forgotten misses again",
        ),
        (
            "one room too few",
            _store().replace("return room", "return room - 1"),
            2 / 4,
            "off by one",
        ),
        (
            "one room too many",
            _store().replace("return room", "return room + 1"),
            2 / 4,
            "off by one",
        ),
        ("no room is enough", _store(found="None"), 2 / 4, "there is such a room"),
        ("one item more", _store(stop="2"), 2 / 4, "gives 8 items"),
        ("equal is enough", _store(less="<="), 2 / 4, "take the same time"),
        ("the hits", _store(found="hits"), 2 / 4, "the hits, not the room"),
        ("the largest room", _store(found="len(set(prefixes))"), 2 / 4, "the most hits"),
        ("no None", _store(none="len(set(prefixes))"), 3 / 4, "no less"),
    ],
    "decomposition-conclude": [
        ("medians", HASTY.format("median"), 1 / 3, "medians of the paths"),
        ("means", HASTY.format("mean"), 1 / 3, "means of the paths"),
        (
            "upside down",
            CONCLUDE.format(
                pairs='pairs["frozen"], pairs["full"]',
                given="timing.verdict(low, high, timing.MARGIN)",
            ),
            0,
            "upside down",
        ),
        (
            "rehash",
            CONCLUDE.format(
                pairs='pairs["full"], pairs["rehash"]',
                given="timing.verdict(low, high, timing.MARGIN)",
            ),
            0,
            "rehash is judged",
        ),
        (
            "the ratio alone",
            CONCLUDE.format(pairs=PAIRS, given="'slower' if ratio > 1 else 'faster'"),
            1 / 3,
            "judged wrongly: [3]",
        ),
        (
            "rows in the order measured",
            "def conclude(rows):\n"
            "    by = {p: r.to_numpy() for p, r in rows.groupby('path')['total_ns']}\n"
            "    _, low, high = timing.ratio_of_pairs(by['full'], np.sort(by['frozen']))\n"
            "    return timing.verdict(low, high, timing.MARGIN)",
            1 / 3,
            "judged wrongly",
        ),
        (
            "rounds of all seeds together",
            CONCLUDE.replace("rows.pivot(", "rows.pivot_table(")
            .replace('["seed", "round"]', '"round"')
            .format(pairs=PAIRS, given=VERDICT),
            2 / 3,
            "round 5 of one seed",
        ),
        (
            "rows as they stand",
            "def conclude(rows):\n"
            "    by = {p: r.to_numpy() for p, r in rows.groupby('path')['total_ns']}\n"
            "    _, low, high = timing.ratio_of_pairs(by['full'], by['frozen'])\n"
            f"    return {VERDICT}",
            2 / 3,
            "paired as they stand",
        ),
        (
            "rounds without seeds",
            CONCLUDE.replace('["seed", "round"]', '"round"').format(pairs=PAIRS, given=VERDICT),
            0,
            "what tells rounds apart is both",
        ),
        ("a number", CONCLUDE.format(pairs=PAIRS, given="ratio"), 0, "should return one of"),
        ("always", "def conclude(rows):\n    return 'cannot tell'", 0, "judged wrongly"),
    ],
    "decomposition-own-run": [
        ("no longer prefix", _run("tokens=12, prefix=8"), 2 / 3, "no longer prefix"),
        ("too few rounds", _run().replace("rounds=11", "rounds=9"), 2 / 3, "seeds times rounds"),
        (
            "no run",
            "out = Path(tempfile.mkdtemp(), 'run')\n"
            "case = profile.Case(tokens=20, prefix=16)\nconclusion = 'slower'",
            0,
            "no run in out",
        ),
        (
            "a figure was mended",
            _run(
                then="raw = (out / 'raw.csv').read_bytes()\n"
                "(out / 'raw.csv').write_bytes(raw.replace(b'rehash,', b'rehash,1', 1))"
            ),
            2 / 3,
            "The audit says failed",
        ),
        (
            "a file is lost",
            _run(then="(out / 'summary.json').unlink()"),
            2 / 3,
            "The audit says failed",
        ),
        (
            "another case was recorded",
            _run(recorded="profile.Case(seeds=3, rounds=11)"),
            2 / 3,
            "of another case: tokens, prefix differ",
        ),
        (
            "not what the rows say",
            _run(then="conclusion = {'slower': 'faster'}.get(conclusion, 'slower')"),
            2 / 3,
            "not what the recorded rows say",
        ),
        ("no conclusion", _run(then="conclusion = ..."), 2 / 3, "conclusion has no value yet"),
        ("no case", _run(then="case = ..."), 1, "case has no value yet"),
        ("a case of another kind", _run(then="case = vars(case)"), 1, "should be a profile.Case"),
    ],
}
