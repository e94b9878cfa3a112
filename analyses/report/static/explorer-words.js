/* What the explorer says: numbers, names of positions, sentences. No DOM. */
BoolensExplorer.words = (() => {
  "use strict";

  /* Two decimals, or two digits for the small; a true minus. */
  const plain = (x) => {
    if (x === null || x === undefined || Number.isNaN(x)) return "–";
    const size = Math.abs(x);
    let text;
    if (size < 5e-13) text = "0";
    else if (size < 1e-4 || size >= 1e5) text = size.toExponential(1).replace("e+", "e").replace("e-", "e−");
    else if (size < 0.1) text = size.toPrecision(2);
    else text = size.toFixed(size < 100 ? 2 : 1);
    return (x < 0 && text !== "0" ? "−" : "") + text;
  };

  const signed = (x) => {
    const text = plain(x);
    return text === "0" || text === "–" || text.startsWith("−") ? text : `+${text}`;
  };

  const probability = (p) => {
    if (p > 0.9995) return "over 0.999";
    return p < 0.0005 ? "under 0.001" : p.toFixed(3);
  };

  const truth = (value) => (value ? "True" : "False");
  const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
  const list = (items) => (items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`);

  const ruleOf = (payload, bits) => payload.rule_positions.reduce((rule, pos) => 2 * rule + bits[pos], 0);

  const isCls = (payload, pos) => pos === payload.config.n_ctx;

  /* "7", or the feature's name. */
  const short = (payload, pos) => (isCls(payload, pos) ? "[CLS]" : payload.names[pos]);

  const numbered = (payload) => payload.names.every((name, i) => name === String(i));

  const position = (payload, pos) => {
    if (isCls(payload, pos)) return "[CLS]";
    return numbered(payload) ? `Position ${pos}` : `${payload.names[pos]} (position ${pos})`;
  };

  /* {kind, words}: what a position is to the task, under the rule in force. */
  const role = (payload, bits, pos) => {
    if (isCls(payload, pos)) return {kind: "cls", words: "the query's own key"};
    if (payload.rule_positions.includes(pos)) return {kind: "rule", words: "rule bit"};
    const rule = ruleOf(payload, bits);
    if (payload.targets[rule].includes(pos)) return {kind: "target", words: "target"};
    const others = payload.targets.flatMap((targets, r) => (targets.includes(pos) ? [r] : []));
    if (others.length) return {kind: "other-target", words: `target of rule ${others.join(", ")}`};
    return {kind: "plain", words: "not a target"};
  };

  /* Compared with the label where that is known. */
  const verdict = (label, answer) => {
    if (label === null) return {kind: "unknown", words: "label unknown: the task is a table"};
    const right = label === answer;
    return {kind: right ? "right" : "wrong", words: `${right ? "right" : "wrong"}: the label is ${truth(label)}`};
  };

  const move = (logit, was) =>
    was === null ? "no change yet" : `was ${signed(was)} before this change (${signed(logit - was)})`;

  /* What the bits are, where they were loaded, and what has been changed since. */
  const loaded = (payload, source, bits, logit, label) => {
    if (!source) return "Your own input.";
    const answer = `the model answers ${truth(logit > 0)}`;
    const about = label === null ? answer : `the label is ${truth(label)}, ${answer}`;
    const changed = bits.flatMap((bit, pos) => (bit === source.bits[pos] ? [] : [short(payload, pos)]));
    if (changed.length) {
      const where = changed.length > 8 ? count(changed.length, "position") : list(changed);
      return `${source.what}, changed at ${where}: now ${about}.`;
    }
    return `${source.what}: ${about}.${source.more ? ` ${source.more}` : ""}`;
  };

  const scope = (head, nHeads) => (nHeads === 1 ? "" : head === null ? " · all heads" : ` · head ${head}`);

  const vector = (values) => {
    if (values.length <= 4) return values.map((value) => plain(value)).join(", ");
    return `${values.length} numbers, norm ${plain(Math.hypot(...values))}`;
  };

  return {plain, signed, probability, truth, count, list, ruleOf, short, numbered, position, role, verdict, move, loaded, scope, vector};
})();
