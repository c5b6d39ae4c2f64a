"""Predictions and quick quizzes as the chapters write them: what the page's script relies on."""

import re

import numpy as np
import pytest
from lesson_inputs import toc_pages
from markdown_it import MarkdownIt
from mdit_py_plugins.colon_fence import colon_fence_plugin
from repository import ROOT, read

from labsupport import arithmetic, charmodel, hitrate, memory, paged, quantize
from labsupport.blockpool import BlockPool

CHAPTERS = ["chapters/stall", "chapters/decomposition", "chapters/derivation", "chapters/memory"]
PAGES = [doc for doc, path in toc_pages(ROOT).items() if path.suffix == ".md"]
RIGHT = "right-answer"


def directives(text):
    """(name, title, options, body) of each colon-fenced directive at the top of a MyST text."""
    for token in MarkdownIt().use(colon_fence_plugin).parse(text):
        if token.type == "colon_fence":
            name, title = re.fullmatch(r"\{([\w-]+)\}\s*(.*)", token.info.strip()).groups()
            head = re.match(r"(?::[\w-]+:.*\n)*", token.content)[0]
            options = dict(re.findall(r"^:([\w-]+):\s*(.*)$", head, re.M))
            yield name, title, options, token.content[len(head) :].strip()


def questions(doc):
    """The predictions and quizzes of a page, in order, as dicts."""
    found = []
    for name, title, options, body in directives(read(f"{doc}.md")):
        classes = set(options.get("class", "").split())
        if name == "admonition" and classes & {"predict", "quiz"}:
            answers = [part for part in directives(body) if part[0] == "dropdown"]
            found.append(
                {
                    "doc": doc,
                    "name": options.get("name"),
                    "title": title,
                    "classes": classes,
                    "asks": body.split(":::", 1)[0].strip(),
                    "options": [part[1] for part in answers],
                    "texts": [part[3] for part in answers],
                    "right": [part[1] for part in answers if RIGHT in part[2].values()],
                }
            )
    return found


ALL = [question for doc in PAGES for question in questions(doc)]
QUIZZES = [question for question in ALL if "quiz" in question["classes"]]
PREDICTIONS = [question for question in ALL if "predict" in question["classes"]]


def named(question):
    return question["name"] or f"{question['doc']}: {question['title']}"


def test_the_reading_finds_what_it_should():
    """A page of two questions, one of them with an option that is marked and one that is not."""
    text = (
        "::::{admonition} A\n:class: hint quiz\n:name: q\n\nWhich?\n\n:::{dropdown} Yes\n"
        ":class-container: right-answer\n\nRight.\n:::\n\n:::{dropdown} No\nWrong.\n:::\n::::\n"
    )
    (one,) = directives(text)
    assert one[:3] == ("admonition", "A", {"class": "hint quiz", "name": "q"})
    yes, no = directives(one[3])
    assert yes == ("dropdown", "Yes", {"class-container": RIGHT}, "Right.")
    assert no == ("dropdown", "No", {}, "Wrong.")


@pytest.mark.parametrize("doc", CHAPTERS)
def test_a_chapter_asks_before_and_after(doc):
    assert sum(question["doc"] == doc for question in PREDICTIONS) >= 2
    assert sum(question["doc"] == doc for question in QUIZZES) >= 3


def test_the_refresher_asks():
    assert sum(question["doc"] == "pages/refresher" for question in QUIZZES) >= 2


@pytest.mark.parametrize("doc", [*CHAPTERS, "pages/refresher"])
def test_no_invitation_to_predict_is_left_without_a_question(doc):
    """An admonition or a sentence that asks for a prediction lets the reader make one."""
    for name, title, options, _ in directives(read(f"{doc}.md")):
        if name == "admonition" and re.search(r"commit|predict first|find it", title, re.I):
            assert "predict" in options["class"].split(), title


@pytest.mark.parametrize("question", ALL, ids=named)
def test_a_question_is_one(question):
    """It has a name that says its kind, asks something, and has three options or four."""
    assert len(question["classes"] & {"predict", "quiz"}) == 1
    kind = "quiz" if "quiz" in question["classes"] else "predict"
    page = question["doc"].split("/")[-1]
    assert re.fullmatch(rf"{kind}-{page}-[a-z]+", question["name"])
    assert question["asks"].rstrip(".)").endswith("?") or "?" in question["asks"]
    assert 3 <= len(question["options"]) <= 4
    assert len(set(question["options"])) == len(question["options"])
    assert all(len(text) > 20 for text in question["texts"]), "an option that explains nothing"


def test_no_two_questions_share_a_key():
    names = [question["name"] for question in ALL]
    assert len(names) > 20
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("question", QUIZZES, ids=named)
def test_a_quiz_has_one_right_option_and_its_text_says_so(question):
    """In words besides, for readers of the notebook and those without scripts."""
    assert len(question["right"]) == 1
    says = [text.startswith("Right.") for text in question["texts"]]
    assert says == [option in question["right"] for option in question["options"]]


def test_the_right_option_is_not_always_in_the_same_place():
    places = [question["options"].index(question["right"][0]) for question in QUIZZES]
    assert max(map(places.count, set(places))) <= 0.6 * len(places)


@pytest.mark.parametrize("question", PREDICTIONS, ids=named)
def test_a_prediction_marks_nothing_as_right(question):
    """It is made before the measurement, which may come out either way."""
    assert question["right"] == []
    assert not any(re.match(r"(Right|Wrong|Yes|No)\b", text) for text in question["texts"])


@pytest.mark.parametrize("question", ALL, ids=named)
def test_an_option_is_known_by_plain_words(question):
    """Answers are stored under an option's title, so it holds no number that a cell computes."""
    assert not any("{glue" in option or "$" in option for option in question["options"])


@pytest.mark.parametrize("question", QUIZZES, ids=named)
def test_a_quiz_holds_whatever_a_live_run_says(question):
    assert "{glue" not in question["asks"] + "".join(question["texts"])


@pytest.mark.parametrize("doc", PAGES)
def test_what_was_predicted_is_shown_after_its_question_and_once(doc):
    """Each chapter's predictions are taken up again, further down on the same page."""
    text = read(f"{doc}.md")
    for question in questions(doc):
        links = [m.start() for m in re.finditer(re.escape(f"(#{question['name']})"), text)]
        if "predict" in question["classes"]:
            assert len(links) == 1
            assert links[0] > text.index(f":name: {question['name']}\n")


def answer(name):
    (question,) = [question for question in QUIZZES if question["name"] == name]
    return question["right"][0]


# What quizzes compute, by the package that the course computes with.


def test_ten_clean_runs():
    assert answer("quiz-stall-clean") == "At most about one request in four gives another output"
    assert 1 / 4 <= 1 - 0.05 ** (1 / 10) < 0.27
    assert 1 - 0.05 ** (1 / 299) <= 0.01 < 1 - 0.05 ** (1 / 298)


def test_the_hit_rate_from_which_a_store_pays():
    rate = hitrate.breakeven(fresh=100, hit=80, miss=105)
    assert answer("quiz-decomposition-rate") == f"From {rate:.0%}".replace("%", " %")


def test_half_the_rows():
    assert answer("quiz-decomposition-rows") == f"{200 * 0.4 + 20 / 2:.0f} µs"


def test_the_first_of_two_tokens():
    seen = charmodel.causal_mask(2, 6).int()[0].tolist()
    assert answer("quiz-derivation-chunk") == f"`{' '.join(map(str, seen))}`"


def test_the_linear_layers_of_nine_steps():
    def linear(n_new, n_tokens):
        by_kind = arithmetic.multiplications(charmodel.CharConfig(), n_new, n_tokens)
        return sum(by_kind[layer] for layer in ("qkv", "o", "up", "down"))

    factor = sum(linear(t, t) for t in range(1, 10)) / sum(linear(1, t) for t in range(1, 10))
    assert answer("quiz-derivation-steps") == f"{factor:g}"


def test_a_model_twice_as_wide():
    lengths = [
        memory.CacheShape(32, width // 128, 128).break_even(12 * 32 * width**2 * 2)
        for width in (4096, 8192)
    ]
    assert answer("quiz-memory-width") == "It doubles"
    assert lengths[1] / lengths[0] == pytest.approx(2, rel=1e-3)


def test_codes_beside_one_large_number():
    others = np.linspace(-1, 1, 1001, dtype=np.float32)
    codes = quantize.quantize(np.append(others, 100)[None].astype(np.float32), 1).codes[0, :-1]
    assert answer("quiz-memory-scale") == f"{len(set(codes.tolist()))}"


def test_three_answers_share_a_prompt():
    pool = BlockPool(n_blocks=12, block_size=16, n_kv_heads=1, head_dim=1)
    first = paged.PagedCache(1, 1, pool=pool)
    first.append(*np.ones((2, 1, 40, 1), np.float32))
    answers = [first, first.fork(), first.fork()]
    assert pool.n_used == 3
    for cache in answers:
        cache.append(*np.ones((2, 1, 1, 1), np.float32))
    assert answer("quiz-memory-fork") == f"{pool.n_used}"


def test_the_wrong_axis():
    x = np.arange(9.0).reshape(3, 3) ** 2
    found = x - x.mean(axis=1)
    by_column = x - np.array([[x[j].mean() for j in range(3)]])
    assert (found == by_column).all()
    assert (found != x - x.mean(axis=1, keepdims=True)).any()


def test_who_shares_memory():
    a = np.arange(16.0).reshape(4, 4)
    own = {"a": a}
    question = next(q for q in QUIZZES if q["name"] == "quiz-refresher-view")
    shares = {
        option: np.shares_memory(a, eval(option.strip("`"), own)) for option in question["options"]
    }
    assert [option for option, shared in shares.items() if shared] == question["right"]
