// Predictions and quick quizzes remember the reader's answers: in this browser, nowhere else.
//
// An answer is the titles of the options that were opened, in their order, stored under the page
// and the name of its admonition. What is stored for other options than a question has, or is
// garbled, is ignored. Only a click or a key on an option is an answer: what a search in the page
// or a print job unfolds is not.
"use strict";

(() => {
  const questions = [...document.querySelectorAll(".admonition.predict, .admonition.quiz")]
    .filter((box) => box.id)
    .map(read);
  const places = [...document.querySelectorAll(".quiz-memory")];
  if (!questions.length && !places.length) return;

  const root = new URL(document.documentElement.dataset.content_root ?? "./", location.href);
  const page = location.pathname.slice(root.pathname.length).replace(/\.html$/, "");
  const PREFIX = `answers ${root.pathname} `; // one origin may serve more than one course
  const keyOf = (question) => `${PREFIX}${page || "index"}#${question.id}`;

  // What is stored, and a copy for this visit, which alone counts once the browser has refused:
  // private mode, cookies blocked, no room left.
  let kept = true;
  const visit = new Map();

  function attempt(work) {
    try {
      return work(window.localStorage);
    } catch {
      kept = false;
      return undefined;
    }
  }

  function recall(key) {
    const text = kept ? attempt((storage) => storage.getItem(key)) : undefined;
    if (kept) visit.set(key, text);
    return visit.get(key);
  }

  function store(key, text) {
    visit.set(key, text);
    if (kept) attempt((storage) => storage.setItem(key, text));
  }

  function forget(matches) {
    const keys = attempt((storage) => Object.keys(storage)) ?? [];
    for (const key of new Set([...keys, ...visit.keys()])) {
      if (!matches(key)) continue;
      visit.delete(key);
      attempt((storage) => storage.removeItem(key));
    }
  }

  // A question of the page: its id, its kind, its options with title and summary.
  function read(box) {
    const options = [...box.querySelectorAll("details")].map((details) => ({
      details,
      summary: details.querySelector("summary"),
      title: details.querySelector("summary").textContent.replace(/\s+/g, " ").trim(),
      right: details.classList.contains("right-answer"),
    }));
    return { id: box.id, isQuiz: box.classList.contains("quiz"), options };
  }

  // The options chosen, in their order; none if what is stored is not an answer to this question.
  function chosenOf(question) {
    let titles;
    try {
      titles = JSON.parse(recall(keyOf(question)) ?? "[]");
    } catch {
      return [];
    }
    if (!Array.isArray(titles) || new Set(titles).size !== titles.length) return [];
    const chosen = titles.map((title) => question.options.find((one) => one.title === title));
    return chosen.every(Boolean) ? chosen : [];
  }

  // Beside an option: your answer, and for a quiz, how that was and which try.
  function verdict(question, option, chosen) {
    const nth = chosen.indexOf(option);
    if (nth < 0) return "";
    if (!question.isQuiz) return "Your answer";
    return `${nth ? `Try ${nth + 1}` : "Your answer"}: ${option.right ? "right" : "look again"}`;
  }

  function mark(question) {
    const chosen = chosenOf(question);
    for (const option of question.options) {
      option.summary.querySelector(".quiz-mark")?.remove();
      const words = verdict(question, option, chosen);
      if (!words) continue;
      const badge = document.createElement("span");
      badge.className = "quiz-mark";
      if (question.isQuiz) badge.classList.add(option.right ? "quiz-right" : "quiz-again");
      badge.textContent = words;
      option.summary.append(" ", badge);
    }
    for (const link of document.querySelectorAll(`.recall a[href="#${question.id}"]`)) {
      link.dataset.asked ??= link.textContent;
      link.textContent = chosen.length
        ? `You predicted: “${chosen[0].title}”`
        : link.dataset.asked;
    }
  }

  function refresh() {
    questions.forEach(mark);
    const quizzes = questions.filter((question) => question.isQuiz).map(chosenOf);
    const answered = quizzes.filter((chosen) => chosen.length);
    for (const place of places) {
      place.dataset.kept = kept ? "device" : "visit";
      const score = place.querySelector(".quiz-score");
      if (!score) continue;
      const firsts = answered.filter((chosen) => chosen[0].right);
      score.querySelector(".quiz-answered").textContent = answered.length;
      score.querySelector(".quiz-first").textContent = firsts.length;
    }
  }

  // Changes are said to those who cannot see them.
  const speaker = document.createElement("p");
  speaker.className = "quiz-said";
  speaker.setAttribute("role", "status");
  document.querySelector("main")?.append(speaker);
  const say = (words) => {
    speaker.textContent = words;
  };

  // The first option of a prediction counts; of a quiz each new one, until the right one is found.
  function choose(question, option) {
    const chosen = chosenOf(question);
    const over = question.isQuiz ? chosen.some((one) => one.right) : chosen.length > 0;
    if (over || chosen.includes(option)) return;
    chosen.push(option);
    store(keyOf(question), JSON.stringify(chosen.map((one) => one.title)));
    refresh();
    say(`${verdict(question, option, chosen)}: ${option.title}`);
  }

  for (const question of questions) {
    for (const option of question.options) {
      option.summary.addEventListener("click", () => {
        if (!option.details.open) choose(question, option);
      });
    }
  }

  // What was opened before this script came is an answer too.
  function chooseEarlier() {
    for (const target of window.earlyClicks ?? []) {
      for (const question of questions) {
        const option = question.options.find(({ summary }) => summary.contains(target));
        if (option) choose(question, option);
      }
    }
  }

  for (const place of places) {
    const whole = place.closest(".quiz-course");
    place.querySelector("button").addEventListener("click", () => {
      const own = new Set(questions.map(keyOf));
      forget((key) => (whole ? key.startsWith(PREFIX) : own.has(key)));
      refresh();
      for (const question of questions) {
        for (const option of question.options) option.details.open = false;
      }
      say(whole ? "All your answers are forgotten." : "Your answers on this page are forgotten.");
    });
  }

  refresh(); // first what can be read, then whether anything can be written
  const probe = `${PREFIX}probe`;
  attempt((storage) => storage.setItem(probe, "1"));
  attempt((storage) => storage.removeItem(probe));
  refresh();
  chooseEarlier();
  window.addEventListener("storage", refresh); // answered or forgotten in another tab
  window.addEventListener("pageshow", (event) => event.persisted && refresh());
})();
