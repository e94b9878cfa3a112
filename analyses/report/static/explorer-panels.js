/* The explorer's parts of buttons and text: rows of bits, what is known of a position, the interventions in force. */
BoolensExplorer.panels = (() => {
  "use strict";

  const {plain, signed, short, position, role, scope, vector} = BoolensExplorer.words;

  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  /* A row of toggles, of which one can be reached by Tab and the others from it by arrows. */
  const bitRow = (root, payload, prefix, {toggle, select, hover, key}) => {
    const buttons = payload.names.map((name, pos) =>
      element(
        "button",
        {type: "button", class: "ex-bit", "data-pos": pos},
        element("span", {class: "ex-index"}, element("span", {class: "ex-name", title: name}, name)),
        element("span", {class: "ex-digit"}),
      ),
    );
    root.append(...buttons);
    if (payload.architecture === "cls") root.append(element("span", {class: "ex-blank", "aria-hidden": "true"}, "[CLS]"));
    const indexOf = (event) => buttons.indexOf(event.target.closest("button"));

    /* The nearest button in the next line of a wrapped row. */
    const inLine = (from, direction) => {
      const box = buttons[from].getBoundingClientRect();
      const distance = (button) => {
        const other = button.getBoundingClientRect();
        const below = direction * (other.top - box.top);
        return below < 4 ? Infinity : below * 100 + Math.abs(other.left - box.left);
      };
      const best = buttons.reduce((a, b) => (distance(b) < distance(a) ? b : a));
      return distance(best) < Infinity ? buttons.indexOf(best) : from;
    };

    root.addEventListener("click", (event) => {
      const pos = indexOf(event);
      if (pos < 0) return;
      select(pos);
      toggle(pos);
    });
    root.addEventListener("focusin", (event) => indexOf(event) >= 0 && select(indexOf(event)));
    root.addEventListener("pointerover", (event) => event.pointerType === "mouse" && indexOf(event) >= 0 && hover(indexOf(event)));
    root.addEventListener("pointerleave", () => hover(null));
    root.addEventListener("keydown", (event) => {
      const pos = indexOf(event);
      if (pos < 0) return;
      const last = buttons.length - 1;
      const next = {
        ArrowLeft: () => Math.max(0, pos - 1),
        ArrowRight: () => Math.min(last, pos + 1),
        ArrowUp: () => inLine(pos, -1),
        ArrowDown: () => inLine(pos, 1),
        Home: () => 0,
        End: () => last,
      }[event.key];
      if (next) {
        event.preventDefault();
        buttons[next()].focus();
      } else key(event);
    });

    return ({bits, roleBits, selected, hovered, differs}) =>
      buttons.forEach((button, pos) => {
        const {kind, words} = role(payload, roleBits, pos);
        button.lastChild.textContent = bits[pos];
        button.setAttribute("aria-pressed", bits[pos] === 1);
        button.setAttribute("aria-label", `${prefix}${named(payload, pos)}, ${kind === "plain" ? "" : `${words}, `}is ${bits[pos]}`);
        button.tabIndex = pos === Math.min(selected, buttons.length - 1) ? 0 : -1;
        button.dataset.role = kind;
        button.classList.toggle("ex-on", pos === selected);
        button.classList.toggle("ex-over", pos === hovered);
        button.classList.toggle("ex-differs", Boolean(differs?.[pos]));
      });
  };

  const named = (payload, pos) => (BoolensExplorer.words.numbered(payload) ? `bit ${pos}` : `bit ${pos}, ${payload.names[pos]}`);

  const FIELDS = {
    attention: [
      ["attention", "mean attention onto it"],
      ["effective", "effective attention"],
      ["value", "value"],
      ["contribution", "contribution to the logit"],
      ["flip", "if its bit is flipped"],
      ["removal", "if its key is removed"],
      ["query", "as a query it adds"],
      ["cell", "cell"],
    ],
    mlp: [["flip", "if its bit is flipped"]],
    linear: [
      ["contribution", "contribution to the logit"],
      ["flip", "if its bit is flipped"],
    ],
  };
  FIELDS.cls = FIELDS.attention.map(([key, text]) => [key, key === "query" ? "" : text]).filter(([, text]) => text);

  /* Fixed terms whose values change, so that nothing jumps. */
  const details = (part, payload) => {
    const shown = FIELDS[payload.architecture].map(([key, text]) => {
      const term = element("dt", {}, text);
      const value = element("dd", {"data-value": key});
      part("values").append(element("div", {}, term, value));
      return [key, {term, value}];
    });
    const fields = Object.fromEntries(shown);
    const put = (key, text, number) => {
      if (!fields[key]) return;
      fields[key].value.textContent = text;
      fields[key].value.dataset.number = number ?? "";
    };
    const move = (key, by, logit, otherwise) => {
      put(key, by === null ? otherwise : `logit ${signed(by)}, to ${signed(logit + by)}`, by);
    };
    return ({pos, bits, found, logit}) => {
      const {kind, words} = role(payload, bits, pos);
      part("name").textContent = position(payload, pos);
      part("role").textContent = words;
      part("role").dataset.role = kind;
      part("bit").textContent = pos < bits.length ? `bit is ${bits[pos]}` : "";
      put("attention", plain(found.attention), found.attention);
      put("effective", signed(found.effective), found.effective);
      put("value", found.value ? vector(found.value) : "", found.value?.[0]);
      put("contribution", signed(found.contribution), found.contribution);
      move("flip", found.flip, logit, pos < bits.length ? "computing …" : "it has no bit");
      move("removal", found.removal, logit, found.removed ? "it is removed" : "it is the last key");
      put("query", signed(found.query), found.query);
      if (!fields.cell) return;
      fields.cell.term.textContent = found.cell.name;
      put("cell", `pattern ${plain(found.cell.pattern)}, score ${found.cell.score === null ? "−∞" : signed(found.cell.score)}`, found.cell.pattern);
    };
  };

  const rowName = (payload, dest) => {
    if (payload.architecture === "cls") return "[CLS]'s row";
    return dest === null ? "all rows" : `row ${short(payload, dest)}`;
  };

  /* The interventions in force, each with a button that takes it back: `undo` gets the list's name and the entry. */
  const editList = (root, payload, undo) => (state) => {
    const nHeads = payload.config.n_heads;
    const entries = [
      ...state.removed.map((edit) => ["removed", edit, `Key ${short(payload, edit.src)} removed`]),
      ...state.frozen.map((edit) => ["frozen", edit, `Frozen ${rowName(payload, edit.dest)}`]),
      ...state.patched.map((edit) => ["patched", edit, `Patched ${rowName(payload, edit.dest)}`]),
    ];
    const items = entries.map(([name, edit, text]) => {
      const words = `${text}${scope(edit.head, nHeads)}`;
      const button = element("button", {type: "button", "aria-label": `Undo: ${words}`}, "Undo");
      button.addEventListener("click", () => {
        const index = [...root.children].indexOf(button.parentElement);
        undo(name, edit);
        const left = root.querySelectorAll("button");
        if (left.length) left[Math.min(index, left.length - 1)].focus();
      });
      const note = name === "frozen" ? element("small", {title: edit.bits.join("")}, ` as on ${sample(edit.bits)}`) : name === "patched" ? element("small", {}, " from the second input") : "";
      return element("li", {"data-edit": name}, element("span", {}, words, note), button);
    });
    root.replaceChildren(...items);
  };

  const sample = (bits) => (bits.length > 16 ? `${bits.slice(0, 12).join("")}…` : bits.join(""));

  return {bitRow, details, editList, rowName};
})();
