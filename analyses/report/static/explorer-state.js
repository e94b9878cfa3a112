/* The explorer's state and its form in the address, e.g.
 *   #explorer&bits=0110&second=0111&head=1&view=scores&removed=2,3.0&frozen=1:0110,all.0:1111:2+3&patched=0&at=1.3
 * Lists are separated by commas. A key or row is followed by ".head" where only that head is edited; "all" stands for all
 * rows; a frozen row carries the input at which it was frozen and the keys that were removed then; `at` is the selected
 * dest and src. What is left out is as in a fresh page.
 */
const BoolensExplorer = {};

BoolensExplorer.state = (() => {
  "use strict";

  const MARK = "explorer";
  const VIEWS = ["pattern", "scores"];

  const fresh = (bits, pos = 0) => ({
    bits,
    second: null,
    head: null,
    view: "pattern",
    removed: [],
    frozen: [],
    patched: [],
    at: {dest: pos, src: pos},
  });

  const place = (index, head) => `${index === null ? "all" : index}${head === null ? "" : `.${head}`}`;

  const format = (state) => {
    const parts = [["bits", state.bits.join("")]];
    if (state.second) parts.push(["second", state.second.join("")]);
    if (state.head !== null) parts.push(["head", state.head]);
    if (state.view !== "pattern") parts.push(["view", state.view]);
    const lists = {
      removed: state.removed.map(({src, head}) => place(src, head)),
      frozen: state.frozen.map(({dest, head, bits, removed}) => {
        const keys = removed.map((key) => place(key.src, key.head)).join("+");
        return [place(dest, head), bits.join(""), ...(keys ? [keys] : [])].join(":");
      }),
      patched: state.patched.map(({dest, head}) => place(dest, head)),
    };
    for (const [name, entries] of Object.entries(lists)) if (entries.length) parts.push([name, entries.join(",")]);
    parts.push(["at", `${state.at.dest}.${state.at.src}`]);
    return `${MARK}&${parts.map(([name, value]) => `${name}=${value}`).join("&")}`;
  };

  const number = (text, size, what) => {
    if (!/^\d{1,6}$/.test(text) || Number(text) >= size) {
      throw new Error(`${what} is “${text}”, but it must be a whole number from 0 to ${size - 1}`);
    }
    return Number(text);
  };

  const bitsOf = (text, nCtx, what) => {
    if (!/^[01]*$/.test(text) || text.length !== nCtx) {
      throw new Error(`${what} is “${text}”, but it must be ${nCtx} digits, each 0 or 1`);
    }
    return Array.from(text, Number);
  };

  const headOf = (text, sizes) => (text === undefined ? null : number(text, sizes.nHeads, "a head"));

  const rowOf = (text, sizes) => {
    const [dest, head, ...more] = text.split(".");
    if (more.length) throw new Error(`a row is “${text}”, but it must be a number, or two with a point between`);
    return {dest: dest === "all" ? null : number(dest, sizes.nDest, "a row"), head: headOf(head, sizes)};
  };

  const keysOf = (entries, sizes) => {
    const keys = entries.map((entry) => {
      const {dest: src, head} = rowOf(entry, {...sizes, nDest: sizes.nSrc});
      return {src, head};
    });
    if (keys.some(({src}) => src === null) || !keepsKeys(keys, sizes)) {
      throw new Error("removing all keys leaves nothing to attend to");
    }
    return keys;
  };

  const READERS = {
    bits: (text, sizes) => bitsOf(text, sizes.nCtx, "bits"),
    second: (text, sizes) => bitsOf(text, sizes.nCtx, "second"),
    head: (text, sizes) => headOf(text, sizes),
    view: (text) => {
      if (!VIEWS.includes(text)) throw new Error(`view is “${text}”, but it must be ${VIEWS.join(" or ")}`);
      return text;
    },
    removed: (text, sizes) => keysOf(text.split(","), sizes),
    frozen: (text, sizes) =>
      text.split(",").map((entry) => {
        const [row, bits, keys, ...more] = entry.split(":");
        if (bits === undefined || more.length) {
          throw new Error(`frozen is “${entry}”, but it must be row:bits or row:bits:keys`);
        }
        const removed = keys === undefined ? [] : keysOf(keys.split("+"), sizes);
        return {...rowOf(row, sizes), bits: bitsOf(bits, sizes.nCtx, "frozen's input"), removed};
      }),
    patched: (text, sizes) => text.split(",").map((entry) => rowOf(entry, sizes)),
    at: (text, sizes) => {
      const [dest, src, ...more] = text.split(".");
      if (src === undefined || more.length) throw new Error(`at is “${text}”, but it must be dest.src`);
      return {dest: number(dest, sizes.nCtx, "at's dest"), src: number(src, sizes.nSrc, "at's src")};
    },
  };

  /* The state that a fragment (without its #) tells, null where it is no state at all; for a network of these sizes
   * {nCtx, nSrc, nDest, nHeads}, of which nDest and nHeads are 0 where there is no attention. Throws an Error that names
   * what is wrong. */
  const parse = (fragment, sizes) => {
    const [mark, ...parts] = decodeURIComponent(fragment).split("&");
    if (mark !== MARK || !parts.length) return null;
    const found = {};
    for (const part of parts) {
      const [name, value, ...more] = part.split("=");
      if (!Object.hasOwn(READERS, name)) throw new Error(`“${name}” is unknown; there are ${Object.keys(READERS).join(", ")}`);
      if (value === undefined || more.length) throw new Error(`“${part}” must be ${name}=…`);
      if (name in found) throw new Error(`${name} is given twice`);
      if (!sizes.nHeads && !["bits", "at"].includes(name)) throw new Error(`${name} needs attention, which this network has not`);
      found[name] = READERS[name](value, sizes);
    }
    if (!found.bits) throw new Error("bits are missing");
    if (found.patched && !found.second) throw new Error("patched rows need a second input");
    const state = {...fresh(found.bits), ...found};
    return state;
  };

  /* Whether every head keeps a key. */
  const keepsKeys = (removed, {nHeads, nSrc}) => {
    for (let head = 0; head < nHeads; head++) {
      const gone = new Set(removed.filter((key) => key.head === null || key.head === head).map((key) => key.src));
      if (gone.size === nSrc) return false;
    }
    return true;
  };

  /* The edits, as network.js takes them, of the interventions of a state. */
  const edits = (state, nDest) => {
    const rows = [...state.frozen, ...state.patched.map((row) => ({...row, bits: state.second, removed: []}))];
    const each = rows.flatMap((row) =>
      Array.from({length: row.dest === null ? nDest : 1}, (_, i) => ({...row, dest: row.dest ?? i})),
    );
    return {removed: state.removed, rows: each};
  };

  const anyEdit = (state) => state.removed.length + state.frozen.length + state.patched.length > 0;

  /* A list of keys or rows with one more, which takes the place of those that it covers. */
  const withEdit = (list, entry, axis) => [
    ...list.filter((old) => !((entry[axis] === null || entry[axis] === old[axis]) && (entry.head === null || entry.head === old.head))),
    entry,
  ];

  const sameEdit = (axis, a) => (b) => a[axis] === b[axis] && a.head === b.head;

  return {fresh, format, parse, edits, anyEdit, keepsKeys, withEdit, sameEdit};
})();
