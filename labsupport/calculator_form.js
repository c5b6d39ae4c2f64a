// The calculator's form in the page. It asks for nothing, stores nothing and sends nothing.

function start(root) {
  let number = 1; // an output may be shown twice: ids are made here, from a free number
  while (document.getElementById(`memory-calculator-${number}`)) number += 1;
  root.id = `memory-calculator-${number}`;
  root.dataset.ready = "";

  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  const form = root.querySelector("form");
  const find = (selector) => form.querySelector(selector);
  const control = (name) => form.elements.namedItem(name);
  const chosen = () => data.models.find((model) => model.name === control("model").value);

  // Tied to each field for screen readers: its label, its hint, and a place for its error.
  const errors = {};
  for (const field of form.querySelectorAll(".field")) {
    const [label, entry] = field.children;
    entry.id = label.htmlFor = `${root.id}-${entry.name}`;
    errors[entry.name] = field.appendChild(made("p", ""));
    errors[entry.name].className = "error";
    const notes = [...field.querySelectorAll("p")];
    notes.forEach((note, i) => (note.id = `${entry.id}-${i}`));
    entry.setAttribute("aria-describedby", notes.map((note) => note.id).join(" "));
  }

  for (const { name } of data.models) control("model").add(new Option(name));
  control("model").add(new Option("Your own sizes", ""));
  for (const name of ["cacheDtype", "weightDtype"]) {
    for (const [dtype, bytes] of Object.entries(data.bytes)) {
      const size = bytes < 1 ? "half a byte" : bytes === 1 ? "1 byte" : `${bytes} bytes`;
      control(name).add(new Option(`${dtype}, ${size}`, dtype));
    }
    control(name).value = data.dtype;
  }
  control("model").value = data.model;

  // A model's sizes go into the fields, so that they and a reader's own are computed alike.
  function fillSizes({ url, paper, note, ...model }) {
    for (const name of SIZES) control(name).value = model[name] ? grouped(model[name]) : "";
    const link = made("a", "configuration");
    link.href = url;
    find(".about").replaceChildren("Sizes: the makers’ ", link, `. Report: ${paper}. ${note}`);
  }

  function ownSizes() {
    control("model").value = "";
    find(".about").replaceChildren();
    find("details").open = true;
  }

  // All that is asked, or null if a field cannot be read; every error stands at its field.
  function asked() {
    const values = {};
    const wrong = {};
    for (const [name, rule] of Object.entries(FIELDS)) {
      const { value, error } = parsed(control(name).value, rule);
      values[name] = value;
      if (error) wrong[name] = error;
    }
    if (!(wrong.layers || wrong.window || wrong.windowed)) {
      Object.assign(wrong, contradictions(values, control("windowed").value.trim() !== ""));
    }
    for (const name of Object.keys(FIELDS)) {
      errors[name].textContent = wrong[name] || "";
      control(name).setAttribute("aria-invalid", String(name in wrong));
    }
    if (Object.keys(wrong).length) return refuse(Object.keys(wrong));

    const halves = (name) => BigInt(2 * data.bytes[control(name).value]);
    values.cacheHalves = halves("cacheDtype");
    values.weightHalves = halves("weightDtype");
    values.memory = 2n * ((values.memory * BigInt(control("unit").value)) / 1000n); // whole bytes
    return values;
  }

  function refuse(names) {
    const labels = names.map((name) => control(name).labels[0].textContent);
    for (const cell of form.querySelectorAll("[data-answer]")) cell.replaceChildren();
    find(".picture").hidden = true;
    say("No answer.", `To correct: ${labels.join(", ")}.`);
    return null;
  }

  // What is said already is not touched: a screen reader would say it again.
  function say(verdict, ...sentences) {
    const rest = ` ${sentences.join(" ").trim()}`;
    if (find("output").textContent === verdict + rest) return;
    find("output").replaceChildren(made("strong", verdict), rest);
  }

  function answer(name, text, detail = "") {
    const more = detail ? [made("small", detail)] : [];
    find(`[data-answer="${name}"]`).replaceChildren(text, ...more);
  }

  function show(values) {
    const found = prices(values);
    const total = found.weights + found.cache;
    tell(values, total);
    draw(found, total, values.memory);

    answer("aToken", both(found.aToken), exact(found.aToken) + pastWindow(values, found));
    answer("cache", both(found.cache), exact(found.cache));
    answer("weights", both(found.weights), exact(found.weights));
    answer("total", both(total), exact(total));
    answer("ratio", brief(Number(found.cache) / Number(found.weights)));

    const never = "never: its windows end before";
    answer("breakEven", found.breakEven ? counted(found.breakEven, "token") : never);
    const alone = found.weights > values.memory ? "the weights alone do not fit" : "";
    answer("sequencesThatFit", grouped(found.sequencesThatFit), alone);
    const any = "any number: all layers have a window";
    const most = found.tokensThatFit;
    answer("tokensThatFit", most === null ? any : grouped(most), alone);
  }

  function pastWindow({ windowed }, { aTokenLater, most }) {
    if (!windowed) return "";
    if (most === null) return `; ${both(aTokenLater)} once the windows are full`;
    return `; nothing once the windows are full, at ${both(most)}`;
  }

  function tell({ tokens, sequences, memory }, total) {
    const model = chosen();
    const load = `${counted(sequences, "sequence")} of ${counted(tokens, "token")}`;
    const fits = total <= memory;
    const rest = fits ? `${binary(memory - total)} left.` : `${binary(total - memory)} missing.`;
    const limit = model?.positions ?? model?.context ?? Infinity;
    const caveat = model?.positions ? "Its position table ends at" : "Its makers state at most";
    say(
      fits ? "Fits." : "Does not fit.",
      `${model ? model.name : "Your own model"}, ${load}: ${binary(total)}.`,
      `The card has ${both(memory)}; ${rest}`,
      tokens > limit ? `${caveat} ${counted(limit, "token")}.` : "",
    );
  }

  function draw({ weights, cache }, total, memory) {
    const whole = Number(total > memory ? total : memory);
    const share = (part) => `${(100 * Number(part)) / whole}%`;
    find(".bar .weights").style.width = share(weights);
    find(".bar .cache").style.width = share(cache);
    find(".bar .end").style.left = share(memory);
    find(".picture").hidden = false;
  }

  function update({ target }) {
    if (target === control("model") && chosen()) fillSizes(chosen());
    if (!chosen() || SIZES.includes(target.name)) ownSizes();
    if (target === control("card") && target.value) control("memory").value = target.value;
    if (target === control("memory")) {
      control("card").value = target.value.trim();
      if (control("card").selectedIndex < 0) control("card").value = "";
    }
    const values = asked();
    if (values) show(values);
  }

  // JupyterLab reads keys in a list as its own commands (d d deletes the cell), but not with this.
  form.addEventListener("focusin", ({ target }) => (target.dataset.lmSuppressShortcuts = "true"));

  fillSizes(chosen());
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", update);
  root.querySelector(".unscripted").remove();
  form.hidden = false;
  update({ target: form });
}

function made(tag, text) {
  return Object.assign(document.createElement(tag), { textContent: text });
}

document.querySelectorAll(".memory-calculator:not([data-ready])").forEach(start);
