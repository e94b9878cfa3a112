/* The matrix [dest, src] of the pattern or of the scores on a canvas, with what each row adds to the logit beside it. */
BoolensExplorer.matrix = (() => {
  "use strict";

  const {signed} = BoolensExplorer.words;
  const {steady, palette, sequential, diverging, ticks} = BoolensExplorer.scales;
  const FONT = "11px system-ui, sans-serif";
  const TOP = 14; // room for the marks of targets and removed keys

  const mark = (context, x, y, kind, downwards) => {
    context.beginPath();
    const points = {
      target: [[-4, -7], [4, -7], [0, 0]],
      rule: [[-4, -4], [0, 0], [4, -4], [0, -8]],
      removed: null,
    }[kind];
    if (points) {
      points.forEach(([a, b], i) => context[i ? "lineTo" : "moveTo"](x + (downwards ? a : b), y + (downwards ? b : a)));
      context.fill();
      return;
    }
    context.lineWidth = 2;
    for (const sign of [1, -1]) {
      context.moveTo(x - 3, y - 4 - 3 * sign);
      context.lineTo(x + 3, y - 4 + 3 * sign);
    }
    context.stroke();
  };

  const create = (canvas, box) => {
    const ends = {pattern: steady(), scores: steady(), rows: steady()};
    const context = canvas.getContext("2d");
    let geometry = null;

    const layoutOf = ({cells, columns, rows, square}) => {
      const width = Math.max(240, box.clientWidth);
      context.font = FONT;
      const longest = Math.max(...rows.map(({label}) => context.measureText(label).width));
      const left = Math.min(96, Math.ceil(longest)) + 34;
      const bars = width < 480 ? 64 : 120;
      const room = width - left - bars - 24;
      const pitch = Math.min(square ? 34 : 44, room / cells[0].length);
      const height = square ? pitch : Math.min(24, Math.max(14, pitch));
      const turned = columns.some(({label}) => context.measureText(label).width > pitch && label.length > 3);
      const below = (turned ? Math.min(84, Math.max(...columns.map(({label}) => context.measureText(label).width))) : 12) + 26;
      return {
        width,
        left,
        pitch,
        height,
        turned,
        bars: Math.min(bars + Math.max(0, room - pitch * cells[0].length), 200),
        right: left + pitch * cells[0].length,
        bottom: TOP + height * cells.length,
        total: TOP + height * cells.length + below,
        nSrc: cells[0].length,
        nDest: cells.length,
      };
    };

    const drawCells = ({cells, colour, colours}) => {
      const {left, pitch, height, right, bottom} = geometry;
      const dpr = window.devicePixelRatio || 1;
      const edge = (at) => Math.round(at * dpr) / dpr; // cells end on whole pixels, so that no seams show
      cells.forEach((row, i) =>
        row.forEach((value, j) => {
          const [x, y] = [edge(left + j * pitch), edge(TOP + i * height)];
          context.fillStyle = value === null ? colours.surface : colour(value);
          context.fillRect(x, y, edge(left + (j + 1) * pitch) - x, edge(TOP + (i + 1) * height) - y);
        }),
      );
      context.strokeStyle = colours.line;
      context.lineWidth = 1;
      context.strokeRect(left - 0.5, TOP - 0.5, right - left + 1, bottom - TOP + 1);
    };

    const drawLabels = ({columns, rows, colours, axes}) => {
      const {left, pitch, height, right, bottom, turned, total} = geometry;
      context.font = FONT;
      const colourOf = (kind) => ({target: colours.target, rule: colours.rule})[kind] ?? colours.muted;
      const marked = (list) => list.flatMap(({kind}, i) => (["target", "rule", "cls"].includes(kind) ? [i] : []));
      const wide = turned ? 13 : Math.max(...columns.map(({label}) => Math.min(22, context.measureText(label).width))) + 5;
      context.textBaseline = "middle";
      for (const i of ticks(columns.length, marked(columns), pitch, wide)) {
        context.save();
        context.translate(left + (i + 0.5) * pitch, bottom + 5);
        context.fillStyle = colourOf(columns[i].kind);
        if (turned) context.rotate(-Math.PI / 2);
        context.textAlign = turned ? "right" : "center";
        if (!turned) context.translate(0, 7);
        context.fillText(columns[i].kind === "cls" && !turned && pitch < 26 ? "C" : columns[i].label, 0, 0, 84);
        context.restore();
      }
      context.textAlign = "right";
      for (const i of ticks(rows.length, marked(rows), height, 13)) {
        context.fillStyle = colourOf(rows[i].kind);
        context.fillText(rows[i].label, left - 12, TOP + (i + 0.5) * height, 96);
      }
      context.fillStyle = colours.muted;
      context.textAlign = "center";
      context.textBaseline = "alphabetic";
      context.fillText(axes.src, (left + right) / 2, total - 4);
      context.save();
      context.translate(11, (TOP + bottom) / 2);
      context.rotate(-Math.PI / 2);
      context.fillText(axes.dest, 0, 0);
      context.restore();
    };

    const drawMarks = ({columns, rows, colours, edited}) => {
      const {left, pitch, height} = geometry;
      columns.forEach(({kind}, i) => {
        const gone = edited.removed.has(i);
        context.fillStyle = context.strokeStyle = gone ? colours.warn : kind === "rule" ? colours.rule : colours.target;
        if (gone) mark(context, left + (i + 0.5) * pitch, TOP - 3, "removed", true);
        else if (kind === "target" || kind === "rule") mark(context, left + (i + 0.5) * pitch, TOP - 3, kind, true);
      });
      rows.forEach(({kind}, i) => {
        context.fillStyle = kind === "rule" ? colours.rule : colours.target;
        if (kind === "target" || kind === "rule") mark(context, left - 3, TOP + (i + 0.5) * height, kind, false);
        const rowEdit = edited.rows.get(i);
        if (!rowEdit) return;
        context.strokeStyle = colours.warn;
        context.lineWidth = 2;
        context.setLineDash(rowEdit === "patched" ? [4, 3] : []);
        context.strokeRect(left - 1, TOP + i * height + 1, geometry.right - left + 2, Math.max(2, height - 2));
        context.setLineDash([]);
      });
    };

    const drawBars = ({added, addedTitle, colours}) => {
      const {right, height, bars, bottom, total} = geometry;
      const start = right + 14;
      const width = bars - 14;
      const end = ends.rows(Math.max(...added.map(Math.abs))) || 1;
      const low = Math.min(...added) < 0 ? -end : 0;
      const high = Math.max(...added) > 0 || !low ? end : 0;
      const at = (value) => start + ((value - low) / (high - low)) * width;
      added.forEach((value, i) => {
        context.fillStyle = value < 0 ? colours.negative : colours.positive;
        const inset = height > 6 ? height * 0.14 : 0;
        context.fillRect(Math.min(at(0), at(value)), TOP + i * height + inset, Math.abs(at(value) - at(0)), height - 2 * inset);
      });
      context.fillStyle = colours.text;
      context.fillRect(at(0) - 0.5, TOP, 1, bottom - TOP);
      context.fillStyle = colours.muted;
      context.textBaseline = "alphabetic";
      context.textAlign = "left";
      context.fillText(low ? signed(low) : "0", start, bottom + 15);
      context.textAlign = "right";
      context.fillText(high ? signed(high) : "0", start + width, bottom + 15);
      context.textAlign = "center";
      context.fillText(addedTitle, start + width / 2, total - 4, bars + 20);
    };

    const drawCursor = ({cursor, colours}) => {
      if (!cursor) return;
      const {left, pitch, height, right, bottom} = geometry;
      context.lineWidth = 1;
      context.strokeStyle = colours.accent;
      const [x, y] = [left + cursor.src * pitch, TOP + cursor.dest * height];
      const outline = (...rect) => {
        context.lineWidth = 3;
        context.strokeStyle = colours.bg;
        context.strokeRect(...rect);
        context.lineWidth = 1.5;
        context.strokeStyle = colours.accent;
        context.strokeRect(...rect);
      };
      outline(x, TOP, pitch, bottom - TOP);
      if (cursor.dest !== null) outline(left, y, right - left, height);
    };

    /* content: cells [dest][src] (null: no score), view, columns and rows [{label, kind}], added [dest], cursor … */
    const draw = (content) => {
      const colours = palette(canvas);
      geometry = layoutOf(content);
      const dpr = window.devicePixelRatio || 1;
      canvas.width = Math.round(geometry.width * dpr);
      canvas.height = Math.round(geometry.total * dpr);
      canvas.style.width = `${geometry.width}px`;
      canvas.style.height = `${geometry.total}px`;
      context.setTransform(dpr, 0, 0, dpr, 0, 0);
      const known = content.cells.flat().filter((value) => value !== null);
      const end = ends[content.view](Math.max(...known.map(Math.abs)));
      const colour = content.view === "pattern" ? sequential(end) : diverging(end, colours);
      const all = {...content, colour, colours};
      drawCells(all);
      drawLabels(all);
      drawBars(all);
      drawCursor(all);
      drawMarks(all);
      const samples = Array.from({length: 9}, (_, i) => colour(content.view === "pattern" ? (end * i) / 8 : (end * (i - 4)) / 4));
      return {end, gradient: `linear-gradient(to right, ${samples.join(", ")})`};
    };

    /* {dest, src} under a pointer's event; src is null on the bars, and all is null outside. */
    const cellAt = (event) => {
      const rect = canvas.getBoundingClientRect();
      const {left, pitch, height, right, bars, nSrc, nDest} = geometry;
      const dest = Math.floor((event.clientY - rect.top - TOP) / height);
      const x = event.clientX - rect.left;
      const src = Math.floor((x - left) / pitch);
      if (dest < 0 || dest >= nDest || x < left || x > right + bars) return null;
      return {dest, src: src < nSrc ? src : null};
    };

    return {draw, cellAt};
  };

  return {create};
})();
