"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const current = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  const say = () => {
    button.textContent = current() === "dark" ? "Light theme" : "Dark theme";
  };
  button.hidden = false;
  say();
  dark.addEventListener("change", say);
  button.addEventListener("click", () => {
    const theme = current() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    savedTheme.set(theme);
    say();
    document.dispatchEvent(new CustomEvent("boolens:theme", { detail: theme }));
  });

  // A number as it is printed: thousands apart, a true minus sign; anything else is a word.
  const value = (cell) => {
    const text = cell.textContent.trim().replaceAll(",", "").replaceAll("\u2212", "-");
    return /^-?[0-9.]+(e[+-]?\d+)?$/i.test(text) ? Number(text) : null;
  };
  const words = new Intl.Collator("en", { numeric: true });
  const undefinedLast = (cell) => cell.textContent.trim() === "\u2013";
  const order = (a, b, direction) => {
    if (undefinedLast(a) !== undefinedLast(b)) return undefinedLast(a) ? 1 : -1;
    const [x, y] = [value(a), value(b)];
    if (x !== null && y !== null) return direction * (x - y);
    return direction * words.compare(a.textContent, b.textContent);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].sort((a, b) => order(a.cells[column], b.cells[column], direction));
        body.append(...rows);
      });
    });
  }

  const contents = document.querySelector(".toc details");
  const wide = matchMedia("(min-width: 75rem)");
  const unfold = () => {
    contents.open = wide.matches;
  };
  unfold();
  wide.addEventListener("change", unfold);

  // The section being read is marked in the contents.
  const links = new Map([...document.querySelectorAll(".toc a")].map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const watch = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target.id);
      const first = [...links.keys()].find((id) => seen.has(id));
      if (first === undefined) return;
      for (const [id, link] of links) {
        if (id === first) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    },
    { rootMargin: "-10% 0px -60% 0px" },
  );
  for (const id of links.keys()) {
    const section = document.getElementById(id);
    if (section) watch.observe(section);
  }
})();
