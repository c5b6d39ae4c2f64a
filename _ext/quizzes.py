"""Predictions and quick quizzes: room on the page for what their script will say.

A chapter writes them in plain MyST: an admonition of class `predict` or `quiz` with a `:name:` of
its own, its options as `{dropdown}`s. Unfolded, an option explains itself, with or without a
script. `static/quiz.js` remembers the reader's answers. It runs after the page has been shown, and
what it added to the page then would push the text away under the reader. So three places are made
here, in their final size:

- after the first prediction or quiz of a page, a line that says where answers are kept, the score
  of the quizzes, and the button that forgets the page's answers;
- at the end of a `{div} quiz-course`, the button that forgets those of the whole course;
- on a `{div} recall`, whose link leads back to a prediction, nothing but its class: the stylesheet
  keeps the room for the words "You predicted".
"""

from docutils import nodes

KEPT = "Your answers are remembered on this device, in this browser, and nowhere else."
VISIT = "This browser stores nothing for this page, so your answers last until you leave it."
NO_SCRIPT = "Scripts are off here: options unfold and explain themselves, nothing is remembered."
SCORE = (
    '<p class="quiz-score">Quick quizzes on this page: <span class="quiz-answered">0</span> of '
    '{n_quizzes} answered, <span class="quiz-first">0</span> right at the first try.</p>'
)
PLACE = (
    '<div class="quiz-memory">'
    '<p class="quiz-place"><span class="quiz-kept">{KEPT}</span>'
    '<span class="quiz-visit">{VISIT}</span><noscript>{NO_SCRIPT}</noscript></p>'
    '{score}<button type="button" class="quiz-forget">{button}</button></div>'
)


def place(button, n_quizzes=0):
    """HTML of the place that says where answers are kept; a score only where there are quizzes."""
    score = SCORE.format(n_quizzes=n_quizzes) if n_quizzes else ""
    texts = {"KEPT": KEPT, "VISIT": VISIT, "NO_SCRIPT": NO_SCRIPT}
    return PLACE.format(**texts, score=score, button=button)


def add_places(app, doctree, docname):
    """Add the places to a page that is about to be written as HTML."""
    if app.builder.format != "html":
        return
    asked = [
        node
        for node in doctree.findall(nodes.admonition)
        if {"predict", "quiz"} & set(node["classes"])
    ]
    if asked:
        n_quizzes = sum("quiz" in node["classes"] for node in asked)
        html = place("Forget my answers on this page", n_quizzes)
        asked[0] += nodes.raw("", html, format="html")
    for node in doctree.findall(nodes.container):
        if "quiz-course" in node["classes"]:
            html = place("Forget my answers in the whole course")
            node += nodes.raw("", html, format="html")


def setup(app):
    """Add the places when a page's references are resolved, that is, before it is written."""
    app.connect("doctree-resolved", add_places)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
