/* The logit's gauge and the bars over the positions, as SVG that CSS colours. */
BoolensExplorer.bars = (() => {
  "use strict";

  const {signed, plain} = BoolensExplorer.words;
  const {steady, ticks} = BoolensExplorer.scales;

  const svg = (name, attributes = {}, text = null) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== null) element.textContent = text;
    return element;
  };

  /* A scale from -end to end with the logit's bar from 0, a tick where it was and one where it is without edits. */
  const gauge = (root) => {
    const end = steady();
    let largest = 1;
    return ({logit, was, unedited}) => {
      const width = root.clientWidth;
      largest = Math.max(largest, Math.abs(logit), Math.abs(was ?? 0), Math.abs(unedited ?? 0));
      const limit = end(largest);
      const x = (value) => 8 + ((value + limit) / (2 * limit)) * (width - 16);
      const label = (value, text, anchor, y, kind) => svg("text", {x: x(value), y, "text-anchor": anchor, class: kind}, text);
      root.setAttribute("viewBox", `0 0 ${width} 46`);
      const parts = [
        svg("rect", {x: 8, y: 16, width: width - 16, height: 12, rx: 2, class: "ex-track"}),
        svg("rect", {
          x: Math.min(x(0), x(logit)),
          y: 16,
          width: Math.max(1.5, Math.abs(x(logit) - x(0))),
          height: 12,
          class: logit > 0 ? "ex-true" : "ex-false",
        }),
        svg("path", {d: `M${x(0)} 12V32`, class: "ex-zero"}),
        label(-limit, "False", "start", 11, "ex-end"),
        label(limit, "True", "end", 11, "ex-end"),
      ];
      for (const [value, anchor] of [[-limit, "start"], [-limit / 2, "middle"], [0, "middle"], [limit / 2, "middle"], [limit, "end"]]) {
        parts.push(label(value, signed(value), anchor, 42, "ex-tick"));
      }
      if (was !== null) parts.push(svg("path", {d: `M${x(was)} 13V31`, class: "ex-was"}));
      if (unedited !== null) {
        parts.push(svg("path", {d: `M${x(unedited) - 4} 9h8l-4 6z`, class: "ex-unedited"}));
      }
      parts.push(svg("path", {d: `M${x(logit)} 13V31`, class: "ex-needle"}));
      root.replaceChildren(...parts);
    };
  };

  const ROW = {wide: 50, narrow: 44};
  const GAP = {wide: 12, narrow: 26};

  /* Rows of bars that share the axis of positions. `draw` takes rows [{key, title, note, values}], columns of which
   * [{label, kind}], where the axis lies {gutter, pitch, wide}, and which columns are selected and under the pointer. */
  const chart = (root) => {
    const scales = {};
    let geometry = null;

    const range = (key, values) => {
      scales[key] ??= [steady(), steady()];
      const known = values.filter((value) => value !== null);
      const high = scales[key][0](Math.max(0, ...known));
      const low = -scales[key][1](Math.max(0, ...known.map((value) => -value)));
      return high - low ? [low, high] : [0, 1];
    };

    const bandOf = (column, kind) => {
      const {gutter, pitch, top, bottom} = geometry;
      return svg("rect", {x: gutter + column * pitch, y: top, width: pitch, height: bottom - top, class: kind});
    };

    const drawRow = (row, y, layout, columns) => {
      const height = layout.wide ? ROW.wide : ROW.narrow;
      const {gutter, pitch} = layout;
      const [low, high] = range(row.key, row.values);
      const at = (value) => y + ((high - value) / (high - low)) * height;
      const right = gutter + columns.length * pitch;
      const group = svg("g", {class: "ex-row", "data-row": row.key});
      for (const value of new Set([low, 0, high])) {
        group.append(svg("path", {d: `M${gutter} ${at(value)}H${right}`, class: value === 0 ? "ex-base" : "ex-grid"}));
      }
      if (layout.wide) {
        group.append(
          svg("text", {x: 0, y: y + height / 2 - 3, class: "ex-title"}, row.title),
          svg("text", {x: 0, y: y + height / 2 + 11, class: "ex-note"}, row.note),
          svg("text", {x: gutter - 6, y: at(high) + 4, "text-anchor": "end", class: "ex-tick"}, high ? signed(high) : ""),
          svg("text", {x: gutter - 6, y: at(low) + 4, "text-anchor": "end", class: "ex-tick"}, low ? signed(low) : "0"),
        );
      } else {
        const ends = low && high ? `${plain(low)} to ${signed(high)}` : low ? `${plain(low)} to 0` : `0 to ${signed(high)}`;
        group.append(
          svg("text", {x: 0, y: y - 7, class: "ex-title"}, row.title),
          svg("text", {x: right, y: y - 7, "text-anchor": "end", class: "ex-tick"}, ends),
        );
      }
      const inset = pitch > 10 ? Math.max(pitch * 0.14, (pitch - 34) / 2) : pitch > 4 ? 0.75 : 0;
      row.values.forEach((value, i) => {
        if (value === null) return;
        const bar = svg("rect", {
          x: gutter + i * pitch + inset,
          y: Math.min(at(0), at(value)),
          width: Math.max(0.5, pitch - 2 * inset),
          height: Math.max(value ? 0.75 : 0, Math.abs(at(value) - at(0))),
          class: value < 0 ? "ex-negative" : "ex-positive",
          "data-pos": i,
          "data-value": value,
        });
        group.append(bar);
      });
      return group;
    };

    const drawAxis = (y, layout, columns) => {
      const {gutter, pitch} = layout;
      const longest = Math.max(...columns.map(({label}) => label.length));
      const turned = longest * 6 > pitch && longest > 3;
      const room = turned ? 11 : Math.min(longest, 3) * 6.5 + 5;
      const marked = columns.flatMap(({kind}, i) => (kind === "target" || kind === "rule" ? [i] : []));
      const cls = columns.flatMap(({kind}, i) => (kind === "cls" ? [i] : []));
      const group = svg("g", {class: "ex-axis"});
      for (const i of ticks(columns.length, [...marked, ...cls], pitch, room)) {
        const x = gutter + (i + 0.5) * pitch;
        const {label, kind} = columns[i];
        const place = turned && kind !== "cls" ? {transform: `translate(${x + 3.5} ${y + 17}) rotate(-90)`, "text-anchor": "end"} : {x, y: y + 21, "text-anchor": "middle"};
        const text = turned && label.length > 14 ? `${label.slice(0, 13)}…` : label;
        group.append(svg("text", {...place, class: `ex-tick ex-at-${kind}`}, kind === "cls" && pitch < 30 ? "C" : text));
      }
      for (const i of marked) {
        const x = gutter + (i + 0.5) * pitch;
        const half = Math.min(4, Math.max(2, pitch / 2));
        const d = columns[i].kind === "rule" ? `M${x} ${y + 3}l${half} 4l${-half} 4l${-half} -4z` : `M${x} ${y + 3}l${half} 7h${-2 * half}z`;
        group.append(svg("path", {d, class: `ex-mark-${columns[i].kind}`}));
      }
      return {group, height: turned ? 22 + Math.min(14, longest) * 6 : 26};
    };

    const draw = ({rows, columns, layout, selected, hovered}) => {
      const height = layout.wide ? ROW.wide : ROW.narrow;
      const gap = layout.wide ? GAP.wide : GAP.narrow;
      const top = layout.wide ? 6 : 0;
      const bottom = top + rows.length * (height + gap) + (layout.wide ? -gap + 6 : 4);
      geometry = {...layout, n: columns.length, top, bottom};
      const axis = drawAxis(bottom, layout, columns);
      const total = bottom + axis.height;
      const parts = columns.flatMap(({kind}, i) => (kind === "target" || kind === "rule" ? [bandOf(i, `ex-band-${kind}`)] : []));
      if (selected !== null) parts.push(bandOf(selected, "ex-selected"));
      if (hovered !== null && hovered !== selected) parts.push(bandOf(hovered, "ex-hovered"));
      rows.forEach((row, i) => parts.push(drawRow(row, top + i * (height + gap) + (layout.wide ? 0 : gap - 4), layout, columns)));
      root.setAttribute("viewBox", `0 0 ${layout.width} ${total}`);
      root.style.height = `${total}px`;
      root.replaceChildren(...parts, axis.group);
    };

    /* The column under a pointer's event, or null. */
    const columnAt = (event) => {
      const {gutter, pitch, n} = geometry;
      const column = Math.floor((event.clientX - root.getBoundingClientRect().left - gutter) / pitch);
      return column >= 0 && column < n ? column : null;
    };

    return {draw, columnAt, forget: () => Object.keys(scales).forEach((key) => delete scales[key])};
  };

  return {gauge, chart};
})();
