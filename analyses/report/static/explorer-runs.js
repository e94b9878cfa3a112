/* What runs of the network say about a state of the explorer. */
BoolensExplorer.runs = (payload, sizes, onFlips) => {
  "use strict";

  const {state: states, words} = BoolensExplorer;
  const {sum, mean} = BoolensExplorer.runs;
  const {nCtx, nHeads, nDest} = sizes;
  const isCls = payload.architecture === "cls";
  const net = BoolensNetwork.load(payload);
  let ticket = 0;

  const logitOf = (bits, edits) => BoolensNetwork.run(net, bits, edits).logit;
  const editsOf = (state) => (nHeads ? states.edits(state, nDest) : undefined);
  const heads = ({head}) => (head === null ? Array.from({length: nHeads}, (_, h) => h) : [head]);

  /* {run, unedited, second, flips}: the run under the state's edits, the logit without them (null where there are none),
   * that of the second input, and by position the exact move of the logit if its bit is flipped (null: not yet known,
   * onFlips tells). */
  const of = (state) => {
    const now = {
      run: BoolensNetwork.run(net, state.bits, editsOf(state)),
      unedited: states.anyEdit(state) ? logitOf(state.bits) : null,
      second: state.second && logitOf(state.second),
      flips: new Array(nCtx).fill(null),
    };
    sweep(state, now, ++ticket, 0);
    return now;
  };

  /* In slices short enough that the page answers in between. */
  const sweep = (state, now, mine, from) => {
    if (mine !== ticket) return;
    const started = performance.now();
    const edits = editsOf(state);
    let pos = from;
    for (; pos < nCtx && performance.now() - started < 25; pos++) {
      const flipped = state.bits.map((bit, i) => (i === pos ? 1 - bit : bit));
      now.flips[pos] = logitOf(flipped, edits) - now.run.logit;
    }
    if (pos < nCtx) setTimeout(() => sweep(state, now, mine, pos));
    if (from) onFlips(pos === nCtx);
  };

  /* What happens if a key is removed too; null where it cannot be. */
  const removalOf = (state, now, src) => {
    const gone = (head) => state.removed.some((key) => key.src === src && (key.head === null || key.head === head));
    if (heads(state).every(gone)) return {removed: true, removal: null};
    const removed = states.withEdit(state.removed, {src, head: state.head}, "src");
    if (!states.keepsKeys(removed, sizes)) return {removed: false, removal: null};
    return {removed: false, removal: logitOf(state.bits, {...editsOf(state), removed}) - now.run.logit};
  };

  /* A query's score and share of a key, of one head or as means over those shown. */
  const cell = (state, now, {dest, src, head}) => {
    const {pattern, scores} = now.run;
    const row = isCls ? 0 : dest;
    const over = head === undefined ? heads(state) : [head];
    const known = over.map((h) => scores[h][row][src]).filter((score) => score !== null);
    const from = isCls ? "[CLS]" : words.short(payload, dest);
    const which = over.length > 1 ? ", mean over heads" : nHeads > 1 ? `, head ${over[0]}` : "";
    return {
      name: `query ${from} to key ${words.short(payload, src)}${which}`,
      pattern: mean(over.map((h) => pattern[h][row][src])),
      score: mean(known),
    };
  };

  const overHeads = (state, list, numberOf) =>
    list[0].map((_, src) => sum((nHeads ? heads(state) : [0]).map((h) => numberOf(list[h][src]))));
  const contributions = (state, now) => overHeads(state, now.run.contribution, (value) => value);
  const effective = (state, now) => overHeads(state, now.run.effective, sum);

  /* All that is known of a position. */
  const about = (state, now, at) => {
    const {run, flips} = now;
    const {src} = at;
    const found = {flip: flips[src] ?? null, contribution: run.contribution && contributions(state, now)[src]};
    if (!nHeads) return found;
    return {
      ...found,
      ...removalOf(state, now, src),
      attention: mean(heads(state).flatMap((h) => run.pattern[h].map((row) => row[src]))),
      effective: effective(state, now)[src],
      value: heads(state).flatMap((h) => run.values[h][src]),
      query: run.dest_contribution[src],
      cell: cell(state, now, at),
    };
  };

  return {of, heads, cell, contributions, effective, about};
};

BoolensExplorer.runs.sum = (values) => values.reduce((total, value) => total + value, 0);
BoolensExplorer.runs.mean = (values) => (values.length ? BoolensExplorer.runs.sum(values) / values.length : null);
