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

  // Each text field gets a place for its error, and tells it and its hints to a screen reader.
  const errors = {};
  for (const name of Object.keys(FIELDS)) {
    const field = control(name).closest(".field");
    errors[name] = field.appendChild(made("p", ""));
    errors[name].className = "error";
    const notes = [...field.querySelectorAll("p")];
    notes.forEach((note, i) => (note.id = `${root.id}-${name}-${i}`));
    control(name).setAttribute("aria-describedby", notes.map((note) => note.id).join(" "));
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

  function fillSizes() {
    const model = chosen();
    find(".about").replaceChildren();
    if (!model) {
      find("details").open = true;
      return;
    }
    for (const name of SIZES) control(name).value = model[name] ? grouped(model[name]) : "";
    const link = made("a", "configuration");
    link.href = model.url;
    find(".about").append(`Sizes: the makers’ `, link, `. Report: ${model.paper}. ${model.note}`);
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
    if (SIZES.some((name) => name in wrong)) find("details").open = true;
    if (Object.keys(wrong).length) return refuse(Object.keys(wrong));

    const halves = (name) => BigInt(2 * data.bytes[control(name).value]);
    values.cacheHalves = halves("cacheDtype");
    values.weightHalves = halves("weightDtype");
    values.memory = 2n * ((values.memory * BigInt(control("unit").value)) / 1000n); // whole bytes
    return values;
  }

  function refuse(names) {
    const labels = names.map((name) => control(name).closest("label").textContent.trim());
    for (const cell of form.querySelectorAll("[data-answer]")) cell.replaceChildren();
    find(".picture").hidden = true;
    say("No answer.", `To correct: ${labels.join(", ")}.`);
    return null;
  }

  function say(verdict, ...sentences) {
    find("output").replaceChildren(made("strong", verdict), ` ${sentences.join(" ").trim()}`);
  }

  function answer(name, text, detail = "") {
    find(`[data-answer="${name}"]`).replaceChildren(text, ...(detail ? [made("small", detail)] : []));
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
    const some = found.tokensThatFit;
    answer("tokensThatFit", some === null ? "any number: all layers have a window" : grouped(some), alone);
  }

  function pastWindow({ windowed }, { aTokenLater, most }) {
    if (!windowed) return "";
    if (most === null) return `; ${both(aTokenLater)} once the windows are full`;
    return `; nothing once the windows are full, at ${both(most)}`;
  }

  function tell({ tokens, sequences, memory }, total) {
    const model = chosen();
    const load = `${counted(sequences, "sequence")} of ${counted(tokens, "token")}`;
    const sum = `${binary(total)} of ${binary(memory)}`;
    const fits = total <= memory;
    const rest = fits ? `${binary(memory - total)} stay free.` : `${binary(total - memory)} are missing.`;
    const limit = model && tokens > model.context ? `${counted(model.context, "token")}.` : "";
    const caveat = model?.positions ? "Its position table ends at" : "Its makers state at most";
    say(
      fits ? "Fits." : "Does not fit.",
      `${model ? model.name : "Your own model"}, ${load}: ${sum}, ${rest}`,
      limit && `${caveat} ${limit}`,
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
    if (target === control("model")) fillSizes();
    if (SIZES.includes(target.name)) control("model").value = "";
    if (target === control("card") && target.value) control("memory").value = target.value;
    if (target === control("memory")) {
      control("card").value = target.value.trim();
      if (control("card").selectedIndex < 0) control("card").value = "";
    }
    const values = asked();
    if (values) show(values);
  }

  if (control("model").value !== "") fillSizes();
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
