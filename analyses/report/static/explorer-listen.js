/* From the events of the explorer's controls to its changes. */
BoolensExplorer.listen = (app) => {
  "use strict";

  const {root, part, sizes, isCls, point, select, same, show, onKey, chart, grid, at} = app;
  const clamp = (value, size) => Math.min(size - 1, Math.max(0, value));
  const onEach = (attribute, event, handle) => {
    for (const element of root.querySelectorAll(`[data-${attribute}]`)) {
      element.addEventListener(event, () => handle(element.dataset[attribute]));
    }
  };

  onEach("input", "click", (index) => app.load(Number(index)));
  onEach("fill", "click", app.fill);
  onEach("act", "click", (name) => app.act[name]());
  onEach("second", "click", (name) => app.second[name]());
  part("copy").addEventListener("click", app.copyLink);
  part("rules")?.addEventListener("change", (event) => app.setRule(Number(event.target.value)));
  part("view")?.addEventListener("change", (event) => show({view: event.target.value}));
  part("head")?.addEventListener("change", ({target}) => show({head: target.value === "" ? null : Number(target.value)}));

  const bars = part("chart");
  const column = (event) => {
    const src = chart.columnAt(event);
    return src === null ? null : same(src);
  };
  bars.addEventListener("pointermove", (event) => event.pointerType === "mouse" && point(column(event)));
  bars.addEventListener("pointerleave", () => point(null));
  bars.addEventListener("click", (event) => column(event) && select(column(event)));
  bars.addEventListener("keydown", (event) => {
    const src = {
      ArrowLeft: at().src - 1,
      ArrowDown: at().src - 1,
      ArrowRight: at().src + 1,
      ArrowUp: at().src + 1,
      Home: 0,
      End: sizes.nSrc - 1,
    }[event.key];
    if (src === undefined) return onKey(event);
    event.preventDefault();
    select(same(clamp(src, sizes.nSrc)));
  });

  if (!grid) return;
  const canvas = part("matrix");
  /* The cell under the pointer; the bars beside a row stand for its query. */
  const cell = (event) => {
    const found = grid.cellAt(event);
    if (!found) return null;
    if (isCls) return {dest: at().dest, src: found.src ?? at().src, head: found.dest};
    return found.src === null ? same(found.dest) : found;
  };
  canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && point(cell(event)));
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("click", (event) => {
    const found = cell(event);
    if (found) select({dest: found.dest, src: found.src});
  });
  canvas.addEventListener("keydown", (event) => {
    const {dest, src} = at();
    const next = {
      ArrowLeft: {dest, src: src - 1},
      ArrowRight: {dest, src: src + 1},
      ArrowUp: {dest: dest - 1, src},
      ArrowDown: {dest: dest + 1, src},
      Home: {dest, src: 0},
      End: {dest, src: sizes.nSrc - 1},
    }[event.key];
    if (!next) return onKey(event);
    event.preventDefault();
    select({dest: clamp(next.dest, sizes.nCtx), src: clamp(next.src, sizes.nSrc)});
  });
};
