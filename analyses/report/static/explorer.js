/* The explorer: one state, one run of the network for each change of it, and everything drawn from that. */
BoolensExplorer.start = (root, payload) => {
  "use strict";

  const {state: states, words, bars, matrix, panels} = BoolensExplorer;
  const part = (name) => root.querySelector(`[data-ex="${name}"]`);
  const {sum, mean} = BoolensExplorer.runs;

  const nCtx = payload.config.n_ctx;
  const isCls = payload.architecture === "cls";
  const nHeads = payload.config.n_heads && (isCls || payload.architecture === "attention") ? payload.config.n_heads : 0;
  const sizes = {nCtx, nHeads, nDest: nHeads ? (isCls ? 1 : nCtx) : 0, nSrc: isCls ? nCtx + 1 : nCtx};
  const sources = payload.inputs.map(({name, kind, bits}) => ({
    bits: Array.from(bits, Number),
    what: {
      typical: `A typical input${name.split(", ").slice(2).map((rule) => ` of ${rule}`).join("")}`,
      counterexample: "The certificate's counterexample",
      worst: "The worst input that the certificate found",
    }[kind],
    more: kind === "counterexample" ? payload.certificate?.sentence : "",
  }));

  let state = states.fresh(sources[0]?.bits ?? new Array(nCtx).fill(0), payload.targets[0][0] ?? 0);
  let source = sources[0] ?? null;
  let hover = null; // {dest, src, head} under the pointer, which counts before the selected position while it is there
  let was = null; // the logit before the last change of it
  let now = null; // what runs of the network gave for the state: {run, unedited, second, flips}
  let saving = 0;

  const runs = BoolensExplorer.runs(payload, sizes, (moved) => {
    root.setAttribute("aria-busy", !moved);
    drawPositions();
  });
  const heads = () => runs.heads(state);
  const compute = () => {
    now = runs.of(state);
    root.setAttribute("aria-busy", now.flips.includes(null));
  };

  // ------------------------------------------------------------------ drawing

  const drawGauge = bars.gauge(part("gauge"));
  const chart = bars.chart(part("chart"));
  const grid = nHeads ? matrix.create(part("matrix"), part("box")) : null;
  const drawDetails = panels.details(part, payload);

  const drawOutput = () => {
    const {logit, probability} = now.run;
    const label = BoolensNetwork.label(payload, state.bits);
    const verdict = words.verdict(label, logit > 0);
    Object.assign(part("output").dataset, {logit, answer: logit > 0, unedited: now.unedited ?? ""});
    part("answer").textContent = words.truth(logit > 0);
    part("answer").className = logit > 0 ? "ex-says-true" : "ex-says-false";
    part("probability").textContent = `probability of True ${words.probability(probability)}`;
    part("verdict").textContent = verdict.words;
    part("verdict").dataset.kind = verdict.kind;
    part("logit").textContent = words.signed(logit);
    part("move").textContent = words.move(logit, was);
    part("without").textContent = now.unedited === null ? "" : `without interventions: ${words.signed(now.unedited)}`;
    part("loaded").textContent = words.loaded(payload, source, state.bits, now.unedited ?? logit, label);
    part("print").textContent = `The network of this page runs live in the HTML file. Printed is its state on the input ${state.bits.join("")}.`;
    drawGauge({logit, was, unedited: now.unedited});
  };

  const columns = () =>
    Array.from({length: sizes.nSrc}, (_, pos) => ({label: words.short(payload, pos), kind: words.role(payload, state.bits, pos).kind}));

  const chartRows = () => {
    const rows = [{key: "flip", title: "if flipped", note: "exact move of the logit", values: [...now.flips, ...(isCls ? [null] : [])]}];
    const which = nHeads > 1 ? (state.head === null ? "sum over heads" : `head ${state.head}`) : null;
    if (now.run.contribution) rows.unshift({key: "contribution", title: "contribution", note: which ?? "to the logit", values: runs.contributions(state, now)});
    if (nHeads) rows.unshift({key: "effective", title: "effective attention", note: which ?? "readoutᵀ · pattern", values: runs.effective(state, now)});
    return rows;
  };

  const LEAST_PITCH = 27; // a bit's button is 24 pixels wide or more
  const layout = () => {
    const width = root.clientWidth;
    const gutter = width >= 640 ? 136 : 0;
    const pitch = (width - gutter) / sizes.nSrc;
    const longest = Math.max(...payload.names.map((name) => name.length));
    return {width, gutter, pitch, wide: gutter > 0, aligned: gutter > 0 && pitch >= Math.max(LEAST_PITCH, longest * 5.9 + 8)};
  };

  const fillBits = () => {
    const {aligned, pitch} = layout();
    root.classList.toggle("ex-aligned", aligned);
    root.style.setProperty("--ex-pitch", `${pitch}px`);
    const selected = (hover ?? state.at).src;
    const common = {roleBits: state.bits, selected: state.at.src, hovered: selected};
    drawBits({...common, bits: state.bits});
    if (!nHeads) return;
    part("second-line").hidden = !state.second;
    if (!state.second) return;
    drawSecond({...common, bits: state.second, differs: state.second.map((bit, i) => bit !== state.bits[i])});
    part("second-logit").textContent = `logit ${words.signed(now.second)}`;
    part("second-line").dataset.logit = now.second;
  };

  const drawMatrix = () => {
    const {view} = state;
    const table = now.run[view];
    const over = (cells) => mean(cells.filter((cell) => cell !== null));
    const cells = isCls ? table.map(([row]) => row) : table[0].map((row, i) => row.map((_, j) => over(heads().map((h) => table[h][i][j]))));
    const added = isCls ? now.run.contribution.map(sum) : now.run.dest_contribution;
    const at = hover ?? state.at;
    const rows = isCls ? table.map((_, head) => ({label: String(head), kind: head === state.head ? "chosen" : "plain"})) : columns();
    const shown = ({head}) => head === null || state.head === null || head === state.head;
    const edited = {removed: new Set(state.removed.filter(shown).map(({src}) => src)), rows: new Map()};
    for (const [name, list] of [["frozen", state.frozen], ["patched", state.patched]]) {
      for (const {dest, head} of isCls ? list : list.filter(shown)) {
        const all = isCls ? (head === null ? rows.keys() : [head]) : dest === null ? rows.keys() : [dest];
        for (const row of all) edited.rows.set(row, name);
      }
    }
    const legend = grid.draw({
      cells,
      view,
      columns: columns(),
      rows,
      added,
      edited,
      square: !isCls,
      addedTitle: isCls ? "contribution" : "z · readout",
      cursor: {dest: isCls ? (hover?.head ?? state.head) : at.dest, src: at.src},
      axes: {src: "src (key)", dest: isCls ? "head" : "dest (query)"},
    });
    part("ramp").style.background = legend.gradient;
    part("low").textContent = view === "pattern" ? "0" : words.tick(-legend.end);
    part("high").textContent = view === "pattern" ? words.tick(legend.end).slice(1) : words.tick(legend.end);
    const of = nHeads === 1 ? "" : isCls ? "; one row a head, of the [CLS] query" : state.head === null ? ", mean over heads" : `, head ${state.head}`;
    part("matrix-title").textContent = `${view === "pattern" ? "every row sums to 1" : "before the softmax"}${of}`;
    const cell = runs.cell(state, now, at);
    part("matrix").setAttribute("aria-label", `Matrix of the ${view}, arrow keys move: ${cell.name}, pattern ${words.plain(cell.pattern)}, score ${words.signed(cell.score)}`);
  };

  const drawActions = () => {
    const {dest, src} = state.at;
    const scope = words.scope(state.head, nHeads);
    const row = panels.rowName(payload, dest);
    const rowAt = isCls ? 0 : dest;
    const has = (list, axis, index) => list.some(states.sameEdit(axis, {[axis]: index, head: state.head}));
    const put = (name, text) => (root.querySelector(`[data-act="${name}"]`).textContent = text + scope);
    put("remove", `${has(state.removed, "src", src) ? "Restore" : "Remove"} key ${words.short(payload, src)}`);
    put("freeze", `${has(state.frozen, "dest", rowAt) ? "Release" : "Freeze"} ${row}`);
    put("patch", `${has(state.patched, "dest", rowAt) ? "Unpatch" : "Patch"} ${row}`);
    if (!isCls) {
      put("freeze-all", `${has(state.frozen, "dest", null) ? "Release" : "Freeze"} all rows`);
      put("patch-all", `${has(state.patched, "dest", null) ? "Unpatch" : "Patch"} all rows`);
    }
    part("none").hidden = states.anyEdit(state);
    root.querySelector('[data-act="clear"]').hidden = !states.anyEdit(state);
  };

  /* What depends on the position selected or under the pointer. */
  const drawPositions = () => {
    const at = hover ?? state.at;
    fillBits();
    chart.draw({rows: chartRows(), columns: columns(), layout: layout(), selected: state.at.src, hovered: hover?.src ?? null});
    const svg = part("chart");
    svg.setAttribute("aria-valuemax", sizes.nSrc - 1);
    svg.setAttribute("aria-valuenow", state.at.src);
    svg.setAttribute("aria-valuetext", `${words.position(payload, state.at.src)}, ${words.role(payload, state.bits, state.at.src).words}`);
    drawDetails({pos: at.src, bits: state.bits, found: runs.about(state, now, at), logit: now.run.logit});
    if (!nHeads) return;
    drawMatrix();
    drawActions();
  };

  const drawAll = () => {
    drawOutput();
    drawPositions();
    if (nHeads) drawEdits(state);
    for (const input of root.querySelectorAll('[name="ex-rule"]')) input.checked = Number(input.value) === words.ruleOf(payload, state.bits);
    for (const input of root.querySelectorAll('[name="ex-view"]')) input.checked = input.value === state.view;
    if (part("head")) part("head").value = state.head ?? "";
    if (part("summed")) part("summed").textContent = state.head === null ? "summed over heads" : `of head ${state.head} alone`;
  };

  // ------------------------------------------------------------------ changes

  const save = () => {
    clearTimeout(saving);
    history.replaceState(null, "", `#${states.format(state)}`);
  };

  const notice = (text) => {
    part("notice").textContent = text;
    part("notice").hidden = !text;
  };

  /* A change that the network must run for. */
  const change = (fields) => {
    const before = now.run.logit;
    state = {...state, ...fields};
    notice("");
    compute();
    was = before;
    drawAll();
    save();
  };

  /* A change of what is shown of the same run. */
  const show = (fields) => {
    state = {...state, ...fields};
    if ("head" in fields) chart.forget();
    drawAll();
    save();
  };

  const select = (at) => {
    if (at.dest === state.at.dest && at.src === state.at.src) return;
    state = {...state, at};
    drawPositions();
    clearTimeout(saving); // browsers allow only so many changes of the address a second, and a held arrow key makes more
    saving = setTimeout(save, 200);
  };

  const point = (at) => {
    if (hover?.src === at?.src && hover?.dest === at?.dest && hover?.head === at?.head) return;
    hover = at;
    drawPositions();
  };

  const same = (pos) => ({dest: Math.min(pos, nCtx - 1), src: pos});
  const flipped = (bits, positions) => bits.map((bit, i) => (positions.includes(i) ? 1 - bit : bit));
  const targetsFlipped = () => flipped(state.bits, payload.targets[words.ruleOf(payload, state.bits)]);

  const toggleEdit = (name, axis, entry) => {
    const list = state[name];
    const there = list.some(states.sameEdit(axis, entry));
    const next = there ? list.filter((old) => !states.sameEdit(axis, entry)(old)) : states.withEdit(list, entry, axis);
    if (name === "removed" && !states.keepsKeys(next, sizes)) {
      notice("This is the last key: a query must keep one to attend to. Restore another key first.");
      return;
    }
    const fields = {[name]: next};
    if (!there && name !== "removed") {
      const other = name === "frozen" ? "patched" : "frozen"; // a row has one source
      fields[other] = states.withEdit(state[other], entry, axis).filter((old) => old !== entry);
    }
    if (name === "patched" && !there) fields.second = state.second ?? targetsFlipped();
    change(fields);
  };

  /* The row (null: all rows) as it is now: one that is frozen or patched stays what it is. */
  const frozenNow = (dest) => {
    const {head} = state;
    const covers = (edit) => (edit.dest === null || edit.dest === dest) && (edit.head === null || edit.head === head);
    const {bits, removed} = state.patched.some(covers)
      ? {bits: state.second, removed: []}
      : (state.frozen.findLast(covers) ?? state);
    return {dest, head, bits, removed};
  };

  const focusBit = () => root.querySelector('[data-ex="bits"] [tabindex="0"]').focus();

  const act = {
    remove: () => toggleEdit("removed", "src", {src: state.at.src, head: state.head}),
    freeze: () => toggleEdit("frozen", "dest", frozenNow(isCls ? 0 : state.at.dest)),
    patch: () => toggleEdit("patched", "dest", {dest: isCls ? 0 : state.at.dest, head: state.head}),
    "freeze-all": () => toggleEdit("frozen", "dest", frozenNow(null)),
    "patch-all": () => toggleEdit("patched", "dest", {dest: isCls ? 0 : null, head: state.head}),
    clear: () => {
      change({removed: [], frozen: [], patched: []});
      focusBit();
    },
  };

  const second = {
    copy: () => change({second: state.bits}),
    flip: () => change({second: targetsFlipped()}),
    "patch-all": () => act["patch-all"](),
    close: () => change({second: null, patched: []}),
  };

  const onKey = (event) => {
    const name = {r: "remove", f: "freeze", p: "patch"}[event.key.toLowerCase()];
    if (!nHeads || !name || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act[name]();
  };

  const load = (index) => {
    source = sources[index];
    change({bits: source.bits});
  };

  const fill = (how) => {
    source = {random: null, 0: {what: "All bits 0"}, 1: {what: "All bits 1"}}[how];
    const keep = payload.rule_positions; // a rule that is in force stays in force
    const bits = state.bits.map((bit, i) => (keep.includes(i) ? bit : how === "random" ? Number(Math.random() < 0.5) : Number(how)));
    source = source && {...source, what: `${source.what}${keep.length ? " but the rule's" : ""}`, bits};
    if (how === "random") source = {what: "A random input, every bit fair", bits};
    change({bits});
  };

  const setRule = (rule) => {
    const positions = payload.rule_positions;
    const bits = [...state.bits];
    positions.forEach((pos, i) => (bits[pos] = (rule >> (positions.length - 1 - i)) & 1));
    change({bits});
  };

  const copyLink = async () => {
    save();
    const field = part("link");
    try {
      await navigator.clipboard.writeText(location.href);
      field.hidden = true;
      part("copy").textContent = "Copied";
      setTimeout(() => (part("copy").textContent = "Copy link"), 1500);
    } catch {
      field.hidden = false; // no clipboard here: the address, selected, for the reader to copy
      field.querySelector("input").value = location.href;
      field.querySelector("input").select();
    }
  };

  /* The state in the address, if there is one; null after a notice where it is malformed. */
  const readAddress = () => {
    const fragment = location.hash.slice(1);
    if (!fragment || document.getElementById(fragment)) return null;
    try {
      const found = states.parse(fragment, sizes);
      if (found) return found;
      notice(`The address ends in “#${fragment.slice(0, 60)}”, which is no state of the explorer; it is ignored.`);
    } catch (error) {
      notice(`The address holds no valid state of the explorer, and is ignored: ${error.message}.`);
    }
    return null;
  };

  const restore = (found) => {
    state = found;
    source = sources.find(({bits}) => bits.join("") === state.bits.join("")) ?? null;
    chart.forget();
  };

  BoolensExplorer.listen({root, part, sizes, isCls, point, select, same, change, show, onKey, act, second, load, fill, setRule, copyLink, chart, grid, at: () => state.at});
  const rowOf = (name, set) => ({
    toggle: (pos) => change(set(flipped(state[name], [pos]))),
    select: (pos) => select(same(pos)),
    hover: (pos) => point(pos === null ? null : same(pos)),
    key: onKey,
  });
  const drawBits = panels.bitRow(part("bits"), payload, "", rowOf("bits", (bits) => ({bits})));
  const drawSecond = nHeads && panels.bitRow(part("second"), payload, "second input, ", rowOf("second", (bits) => ({second: bits})));
  const drawEdits = nHeads && panels.editList(part("edits"), payload, (name, edit) => {
    change({[name]: state[name].filter((old) => old !== edit)});
    if (!states.anyEdit(state)) focusBit();
  });

  const found = readAddress();
  if (found) restore(found);
  root.hidden = false;
  compute();
  drawAll();
  if (found) window.addEventListener("load", () => root.scrollIntoView({behavior: "instant"}), {once: true});
  window.addEventListener("hashchange", () => {
    const next = readAddress();
    if (!next) return;
    notice("");
    restore(next);
    was = null;
    compute();
    drawAll();
  });
  const header = document.querySelector("header.bar"); // below it, where it stays in view
  if (header && getComputedStyle(header).position === "sticky") root.style.setProperty("--page-top", `${header.offsetHeight}px`);
  let width = root.clientWidth;
  window.addEventListener("resize", () => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    drawAll();
  });
  const themes = matchMedia("(prefers-color-scheme: dark)");
  for (const [target, event] of [[document, "boolens:theme"], [themes, "change"], [window, "beforeprint"], [window, "afterprint"]]) {
    target.addEventListener(event, drawAll);
  }
};

BoolensExplorer.start(document.getElementById("explorer-app"), JSON.parse(document.getElementById("explorer-data").textContent));
