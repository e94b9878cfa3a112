/* Scales and colours of the explorer's drawings. */
BoolensExplorer.scales = (() => {
  "use strict";

  /* The smallest of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten that is at least x > 0. */
  const nice = (x) => {
    const power = 10 ** Math.floor(Math.log10(x));
    const digit = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((candidate) => candidate * power >= x * (1 - 1e-9));
    return digit * power;
  };

  /* A scale's end that stays where it is while it fits, so that bars can be compared from one input to the next. */
  const steady = () => {
    let end = 0;
    return (largest) => {
      if (largest > end || largest < 0.3 * end) end = largest > 0 ? nice(largest) : 0;
      return end;
    };
  };

  /* matplotlib's viridis at ninths. */
  const VIRIDIS = ["440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725"].map((hex) =>
    [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)),
  );

  const mix = (a, b, share) => a.map((value, i) => Math.round(value + (b[i] - value) * share));
  const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

  const along = (stops, share) => {
    const at = Math.min(1, Math.max(0, share)) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return mix(stops[low], stops[low + 1], at - low);
  };

  /* A theme's colour as numbers, whatever way the page writes it. */
  const pixel = Object.assign(document.createElement("canvas"), {width: 1, height: 1}).getContext("2d", {
    willReadFrequently: true,
  });
  const rgb = (colour) => {
    pixel.fillStyle = colour;
    pixel.fillRect(0, 0, 1, 1);
    return Array.from(pixel.getImageData(0, 0, 1, 1).data.slice(0, 3));
  };

  const NAMES = ["bg", "surface", "text", "muted", "line", "accent", "target", "rule", "positive", "negative", "warn"];

  /* The theme's colours, as they are now on an element. */
  const palette = (element) => {
    const style = getComputedStyle(element);
    return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--ex-${name}`).trim()]));
  };

  /* From 0..end to viridis, or from -end..end to blue, ground, red; each as CSS' colour. */
  const sequential = (end) => (value) => css(along(VIRIDIS, end ? value / end : 0));
  const diverging = (end, colours) => {
    const stops = [colours.negative, colours.surface, colours.positive].map(rgb);
    return (value) => css(along(stops, end ? 0.5 + value / end / 2 : 0.5));
  };

  /* The smallest step of 1, 2, 5, 10 … whose labels have the room. */
  const tickStep = (pitch, room) => {
    for (let power = 1; ; power *= 10) for (const digit of [1, 2, 5]) if (digit * power * pitch >= room) return digit * power;
  };

  /* Which of n labels are written: all marked ones that fit, and between them every tickStep-th that keeps clear. */
  const ticks = (n, marked, pitch, room) => {
    const chosen = [];
    const clear = (i) => chosen.every((other) => Math.abs(other - i) * pitch >= room);
    for (const i of marked) if (clear(i)) chosen.push(i);
    for (let i = 0; i < n; i += tickStep(pitch, room)) if (clear(i)) chosen.push(i);
    return chosen;
  };

  return {nice, steady, palette, sequential, diverging, ticks};
})();
