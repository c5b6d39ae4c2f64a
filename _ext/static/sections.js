// Sections below the first screen wait for the reader to come near (course.css). Here they are laid
// out in idle moments, one a frame: so no task is long, the scroll bar soon tells the truth, and
// nothing overlaps for tools that ask where things are.
(() => {
  "use strict";
  const idle = window.requestIdleCallback ?? ((next) => setTimeout(next, 50));
  // A section above the screen gets its real height: what the reader looks at must not move for it.
  const holdsStill = CSS.supports("overflow-anchor", "auto");
  const waiting = [...document.querySelectorAll(".bd-article > div section")];
  const next = () => {
    const section = waiting.shift();
    if (!section) return;
    if (holdsStill || section.getBoundingClientRect().bottom > 0) {
      section.style.contentVisibility = "visible";
    }
    requestAnimationFrame(() => idle(next));
  };
  idle(next);
})();
