// What scrolls sideways can be reached by keyboard: it takes the focus where it is wider than its
// place. An observer is told when a box is laid out or changes its size; to ask every box at once,
// as the theme's script did, would lay out the whole chapter before the reader has come to it.
(() => {
  "use strict";
  const boxes = "pre, .cell_output, .cell_output > .output, .cell_output figure, " +
    ".pst-scrollable-table-container, .katex-display";
  const scrolls = (box) => {
    const { overflowX } = getComputedStyle(box);
    return overflowX !== "visible" && box.scrollWidth > box.clientWidth;
  };
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (scrolls(target)) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  const look = () => {
    for (const box of document.querySelectorAll(boxes)) {
      observer.unobserve(box);
      observer.observe(box);
    }
  };
  look();
  document.fonts.addEventListener("loadingdone", look);  // wider letters in a box of the same size
})();
