"use strict";
// Before the page is drawn, so that a remembered theme does not flash.
const savedTheme = {
  get() {
    try {
      return localStorage.getItem("boolens:theme");
    } catch {
      return null; // storage can be refused for files and in private windows; the system's theme is then used
    }
  },
  set(theme) {
    try {
      localStorage.setItem("boolens:theme", theme);
    } catch {
      return; // as above: the choice holds for this page only
    }
  },
};
if (["light", "dark"].includes(savedTheme.get())) document.documentElement.dataset.theme = savedTheme.get();
