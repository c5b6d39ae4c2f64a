"""Predictions and quick quizzes in the page: what is remembered, where, and for how long."""

import json

import pytest

PAGE, OTHER, HOW = "chapters/stall", "chapters/memory", "pages/how-to-use"
PREDICTION, QUIZ, NEXT_QUIZ = "predict-stall-where", "quiz-stall-clocks", "quiz-stall-order"
OTHER_QUIZ = "quiz-memory-view"

# Storage that refuses our answers and nothing else: what a full one does, or a private window.
REFUSE_WRITING = """
const kept = Storage.prototype.setItem;
Storage.prototype.setItem = function (key, value) {
  if (key.startsWith("answers ")) throw new DOMException("full", "QuotaExceededError");
  return kept.call(this, key, value);
};
"""
REFUSE_ALL = """
Object.defineProperty(window, "localStorage", {
  get() { throw new DOMException("blocked", "SecurityError"); }
});
"""


@pytest.fixture
def device(fresh):
    """device(doc, ...) -> as `fresh`, once the quizzes' script has run."""

    def load(doc, **how):
        page = fresh(doc, **how)
        settle(page)
        return page

    return load


def settle(page):
    """Wait until the script, which comes last, has run and what it shows was fetched."""
    page.wait_for_selector(".quiz-memory[data-kept]")
    page.wait_for_load_state("networkidle")


def option(page, question, nth):
    return page.locator(f"#{question} details").nth(nth).locator("summary")


def right(page, question):
    return page.locator(f"#{question} details.right-answer summary")


def marks(page, question):
    """What is written beside each option of a question, in order; "" where nothing is."""
    return page.locator(f"#{question} details").evaluate_all(
        "all => all.map(one => one.querySelector('.quiz-mark')?.textContent ?? '')"
    )


def stored(page):
    """The answers that this device keeps, by key."""
    everything = page.evaluate("({...localStorage})")
    return {key: text for key, text in everything.items() if key.startswith("answers ")}


def reload(page):
    page.wait_for_load_state("networkidle")  # what is cut off by leaving would be a complaint
    page.reload()
    settle(page)


def go(page, doc):
    root = page.evaluate("document.documentElement.dataset.content_root")
    page.goto(page.evaluate(f"new URL('{root}{doc}.html', location).href"))
    settle(page)


def forget(page):
    return page.locator(".quiz-memory button")


def test_an_answer_is_there_after_reload_and_on_its_page_alone(device):
    page = device(PAGE)
    option(page, PREDICTION, 1).click()
    assert marks(page, PREDICTION) == ["", "Your answer", ""]
    reload(page)
    assert marks(page, PREDICTION) == ["", "Your answer", ""]
    go(page, OTHER)
    assert page.locator(".quiz-mark").count() == 0
    (key,) = stored(page)
    assert key.endswith(f" {PAGE}#{PREDICTION}")


def test_an_answer_given_before_the_script_came_counts(device):
    page = device(PAGE)
    held = []
    page.route("**/course/course.js", lambda route: held.append(route))
    page.reload(wait_until="load")
    option(page, PREDICTION, 2).click()
    option(page, PREDICTION, 0).click()
    page.wait_for_timeout(100)
    assert marks(page, PREDICTION) == ["", "", ""]
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    settle(page)
    assert marks(page, PREDICTION) == ["", "", "Your answer"]
    assert len(stored(page)) == 1


def test_the_first_option_opened_is_the_prediction(device):
    page = device(PAGE)
    for nth in (2, 0, 2, 1):
        option(page, PREDICTION, nth).click()
    assert marks(page, PREDICTION) == ["", "", "Your answer"]
    assert page.locator(".quiz-right, .quiz-again").count() == 0


def test_the_prediction_is_quoted_where_the_outcome_is(device):
    page = device(PAGE)
    link = page.locator(f'.recall a[href="#{PREDICTION}"]')
    asked = link.inner_text()
    title = option(page, PREDICTION, 1).inner_text().strip()
    option(page, PREDICTION, 1).click()
    assert link.inner_text() == f"You predicted: “{title}”"
    forget(page).click()
    assert link.inner_text() == asked


def test_a_quiz_says_right_or_look_again_and_keeps_the_first_try(device):
    page = device(PAGE)
    score = page.locator(".quiz-score")
    option(page, QUIZ, 0).click()
    assert marks(page, QUIZ)[0] == "Your answer: look again"
    right(page, QUIZ).click()
    right(page, NEXT_QUIZ).click()
    for _ in range(2):
        assert marks(page, QUIZ) == ["Your answer: look again", "", "Try 2: right", ""]
        assert marks(page, NEXT_QUIZ) == ["", "Your answer: right", "", ""]
        assert "2 of 5 answered, 1 right at the first try" in score.text_content()
        reload(page)
    option(page, QUIZ, 3).click()  # read once the right one is found: no further try
    assert marks(page, QUIZ)[3] == ""


def test_a_page_forgets_its_answers_and_the_whole_course_all(device):
    page = device(OTHER)
    right(page, OTHER_QUIZ).click()
    go(page, PAGE)
    option(page, QUIZ, 0).click()
    page.evaluate("localStorage.setItem('of something else', 'stays')")
    assert len(stored(page)) == 2
    forget(page).click()
    assert marks(page, QUIZ) == [""] * 4
    assert page.locator(f"#{QUIZ} details[open]").count() == 0
    assert [key.split("#")[1] for key in stored(page)] == [OTHER_QUIZ]
    option(page, QUIZ, 1).click()
    assert marks(page, QUIZ)[1] == "Your answer: look again"

    go(page, HOW)
    forget(page).click()
    assert stored(page) == {}
    assert page.evaluate("localStorage.getItem('of something else')") == "stays"
    for doc in (PAGE, OTHER):
        go(page, doc)
        assert page.locator(".quiz-mark").count() == 0


def test_what_another_tab_forgets_is_forgotten(device):
    page = device(PAGE)
    option(page, QUIZ, 0).click()
    other = page.context.new_page()
    other.goto(page.url)
    settle(other)
    assert marks(other, QUIZ)[0] == "Your answer: look again"
    forget(other).click()
    page.wait_for_function("!document.querySelector('.quiz-mark')")
    option(page, NEXT_QUIZ, 0).click()
    assert len(stored(page)) == 1


@pytest.mark.parametrize("source", [f"#{NEXT_QUIZ}", f"#{PREDICTION}"])
def test_an_answer_to_another_question_is_not_taken_for_one(device, source):
    page = device(PAGE)
    option(page, source[1:], 0).click()
    ((key, text),) = stored(page).items()
    moved = key.replace(source, f"#{QUIZ}")
    page.evaluate("([old, key, text]) => localStorage.setItem(key, text)", [key, moved, text])
    reload(page)
    assert any(marks(page, source[1:]))
    assert marks(page, QUIZ) == [""] * 4
    answered = "1" if source[1:] == NEXT_QUIZ else "0"
    assert page.locator(".quiz-answered").text_content() == answered


def test_an_answer_is_known_by_its_words_not_by_its_place(device):
    """Options may change places between two builds, and new ones may come."""
    page = device(PAGE)
    option(page, QUIZ, 2).click()
    page.route(
        page.url,
        lambda route: route.fulfill(
            response=(answer := route.fetch()),
            body=answer.text().replace("Yes: both count in milliseconds", "Some new option"),
        ),
    )
    reload(page)
    assert marks(page, QUIZ) == ["", "", "Your answer: right", ""]
    title = option(page, QUIZ, 2).locator(".sd-summary-text").inner_text()
    page.unroute_all()
    page.route(
        page.url,
        lambda route: route.fulfill(
            response=(answer := route.fetch()),
            body=answer.text().replace(title, "What this option never said"),
        ),
    )
    reload(page)
    assert option(page, QUIZ, 2).inner_text().strip() == "What this option never said"
    assert marks(page, QUIZ) == [""] * 4


GARBLED = ["", "{", "null", "7", '"x"', "{}", "[1]", "[null]", '["no such option"]', "[[]]"]


@pytest.mark.parametrize("text", [*GARBLED, "twice"])
def test_garbled_answers_are_ignored(device, text):
    page = device(PAGE)
    option(page, QUIZ, 0).click()
    ((key, good),) = stored(page).items()
    if text == "twice":
        text = json.dumps(json.loads(good) * 2)
    page.evaluate("([key, text]) => localStorage.setItem(key, text)", [key, text])
    reload(page)
    assert marks(page, QUIZ) == [""] * 4
    right(page, QUIZ).click()
    assert marks(page, QUIZ)[2] == "Your answer: right"


@pytest.mark.parametrize("refusal", [REFUSE_WRITING, REFUSE_ALL], ids=["writing", "all"])
def test_storage_that_is_refused_breaks_nothing(opening, refusal):
    with opening(PAGE) as page:
        settle(page)
        option(page, PREDICTION, 0).click()
        page.add_init_script(refusal)
        reload(page)
        before = marks(page, PREDICTION)
        assert before == (["Your answer", "", ""] if refusal == REFUSE_WRITING else [""] * 3)
        assert page.locator(".quiz-visit").is_visible()
        assert not page.locator(".quiz-kept").is_visible()
        option(page, QUIZ, 0).click()
        right(page, QUIZ).click()
        assert marks(page, QUIZ) == ["Your answer: look again", "", "Try 2: right", ""]
        assert marks(page, PREDICTION) == before
        forget(page).click()
        assert page.locator(".quiz-mark").count() == 0
        reload(page)
        assert page.locator(".quiz-mark").count() == 0
        assert not any("quiz.js" in complaint for complaint in page.complaints)


def test_storage_that_works_is_said_to(device):
    page = device(PAGE)
    assert page.locator(".quiz-kept").is_visible()
    assert not page.locator(".quiz-visit").is_visible()


@pytest.mark.parametrize("doc", [PAGE, "pages/refresher"])
def test_everything_can_be_read_with_scripts_off(fresh, doc):
    page = fresh(doc, scripts=False)
    for box in page.locator(".admonition.predict details, .admonition.quiz details").all():
        assert not box.locator(".sd-summary-content").is_visible()
        box.locator("summary").click()
        assert box.locator(".sd-summary-content").is_visible()
    assert page.locator(".quiz-place noscript").is_visible()
    for name in (".quiz-memory button", ".quiz-score", ".quiz-kept", ".quiz-visit"):
        assert not page.locator(name).first.is_visible()


def test_everything_works_by_keyboard_and_is_said(device):
    page = device(PAGE)
    status = page.locator(".quiz-said[role=status]")
    assert status.text_content() == ""
    option(page, PREDICTION, 0).focus()
    page.keyboard.press("Tab")  # to the second option
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Space")
    assert marks(page, PREDICTION) == ["", "Your answer", ""]
    title = option(page, PREDICTION, 1).locator(".sd-summary-text").inner_text()
    assert status.text_content() == f"Your answer: {title}"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # past the third option to the button
    assert forget(page).evaluate("one => one === document.activeElement")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    assert marks(page, PREDICTION) == [""] * 3
    assert "forgotten" in status.text_content()

    option(page, QUIZ, 0).focus()
    page.keyboard.press("Enter")
    assert status.text_content().startswith("Your answer: look again: ")


def test_what_opens_an_option_otherwise_is_no_answer(device):
    """A search in the page and a print job unfold options, too."""
    page = device(PAGE)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    page.wait_for_timeout(100)
    option(page, QUIZ, 0).click()  # this closes it
    assert page.locator(".quiz-mark").count() == 0
    assert stored(page) == {}


def test_nothing_leaves_the_device(device):
    page = device(PAGE)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    cookies = page.context.cookies()
    option(page, PREDICTION, 0).click()
    option(page, QUIZ, 0).click()
    right(page, QUIZ).click()
    forget(page).click()
    page.wait_for_timeout(200)
    assert [url for url in asked if "/_images/" not in url] == []  # figures that came into view
    assert page.context.cookies() == cookies


@pytest.mark.parametrize("width", [320, 1300])
def test_nothing_moves_when_answers_are_marked(device, width):
    """The same heights without the script, with it, and with every question answered."""

    def heights():
        return page.locator(".predict, .quiz, .recall, .quiz-course").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().height)"
        )

    page = device(PAGE, width=width)
    shown = heights()
    for box in page.locator(".predict, .quiz").all():
        for one in box.locator("summary").all():
            one.click()
    reload(page)
    assert page.locator(".quiz-mark").count() > 8
    assert heights() == shown
    excess = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert excess <= 0
    page.wait_for_load_state("networkidle")
    page.route("**/course.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    page.reload(wait_until="networkidle")
    assert page.locator(".quiz-said").count() == 0
    assert heights() == shown


def test_a_mark_can_be_seen_whole(device):
    """Neither its option nor the admonition cuts it off, and it lies on no words."""
    page = device(PAGE, width=360)
    option(page, QUIZ, 0).click()
    mark = page.locator(".quiz-mark")
    mark.scroll_into_view_if_needed()
    assert mark.evaluate("""one => {
      const box = one.getBoundingClientRect();
      const inside = [0.1, 0.5, 0.9].map((share) => box.top + share * box.height);
      return inside.every((y) => document.elementFromPoint(box.left + box.width / 2, y) === one);
    }""")
    assert mark.evaluate("""one => {
      const range = document.createRange();
      range.selectNodeContents(one.parentElement.querySelector('.sd-summary-text'));
      return range.getBoundingClientRect().top >= one.getBoundingClientRect().bottom - 3;
    }""")


def test_print_shows_every_option(device):
    page = device(PAGE)
    text = page.locator(f"#{QUIZ} .sd-summary-content")
    assert [one.is_visible() for one in text.all()] == [False] * 4
    page.emulate_media(media="print")
    assert [one.is_visible() for one in text.all()] == [True] * 4
    assert not page.locator(".quiz-memory").is_visible()
