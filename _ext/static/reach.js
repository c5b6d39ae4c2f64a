// What scrolls sideways on a narrow screen can be reached by keyboard. The theme's script does so
// for code and tables; figures and formulas are left to this one.
(() => {
  "use strict";
  const update = () => {
    for (const box of document.querySelectorAll(".cell_output figure, .katex-display")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(update, 300);
  });
  update();
})();
