"use strict";
// Draws the charts of `labsupport/explore.py` when a reader opens them, and not before: the library
// (0.9 MB) is asked for at the first opening. Without it the table in the block remains.
(() => {
  const root = document.documentElement;
  const address = new URL(`${root.dataset.content_root ?? "./"}_static/course/vega.js`, location.href);
  const views = new Map(); // block -> the view that was drawn in it
  let library;

  function load() {
    library ??= new Promise((loaded, failed) => {
      const script = document.createElement("script");
      script.src = address;
      script.onload = loaded;
      script.onerror = () => {
        library = undefined; // opening a block again tries again
        script.remove();
        failed();
      };
      document.head.append(script);
    });
    return library;
  }

  // The page's own colours, for what the chart does not colour itself.
  function colours(width) {
    const style = getComputedStyle(root);
    const [text, muted, line] = ["text-base", "text-muted", "border"].map((name) =>
      style.getPropertyValue(`--pst-color-${name}`).trim(),
    );
    const axis = { labelColor: text, titleColor: text, domainColor: muted, tickColor: muted };
    return {
      background: "transparent",
      font: getComputedStyle(document.body).fontFamily,
      axis: { ...axis, gridColor: line },
      legend: { labelColor: text, columns: Math.max(1, Math.floor((width - 60) / 110)) },
      line: { color: text }, // those that no data colours: a bound, a level
      rule: { color: text },
    };
  }

  // The chart's description in these colours, with what the reader chose before it is drawn anew.
  function specification(block, view, config) {
    const spec = JSON.parse(block.querySelector("script").textContent);
    for (const [name, value] of Object.entries(config)) {
      spec.config[name] = typeof value === "string" ? value : { ...spec.config[name], ...value };
    }
    for (const param of spec.params ?? []) {
      if (view) param.value = view.signal(param.name);
    }
    return spec;
  }

  async function draw(block) {
    const place = block.querySelector(".explore-chart");
    const choices = block.querySelector(".explore-choices");
    const status = block.querySelector(".explore-status");
    try {
      await load();
      const spec = specification(block, views.get(block), colours(place.clientWidth));
      views.get(block)?.finalize();
      const { view } = await window.vegaEmbed(place, spec, {
        actions: false,
        bind: choices,
        defaultStyle: false,
        renderer: "svg",
        tooltip: { theme: root.dataset.theme === "dark" ? "dark" : "light" },
      });
      views.set(block, view);
      status.textContent = "";
    } catch {
      status.textContent = "The chart could not be drawn. The table below holds its figures.";
    }
  }

  for (const block of document.querySelectorAll("details.explore")) {
    const once = () => block.open && !views.has(block) && draw(block);
    block.addEventListener("toggle", once);
    once();
  }
  new MutationObserver(() => [...views.keys()].forEach(draw)).observe(root, {
    attributeFilter: ["data-theme"],
  });
})();
