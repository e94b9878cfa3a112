/* The trained network in the browser: the forward pass of the four architectures in interp/models, in double precision.
 *
 *   const net = BoolensNetwork.load(payload);              the payload is that of analyses/report/explorer.py
 *   const activations = BoolensNetwork.run(net, bits, {removed: [{src: 3, head: null}], rows: []});
 *   const label = BoolensNetwork.label(payload, bits);     true, false, or null where it is not known
 *
 * Edits are those of interp/interventions. `removed` is RemoveKey at the scores: the key {src, head} is taken from
 * every query and the softmax renormalises the rest. `rows` is Patch of the pattern: the row {dest, head, bits, removed}
 * becomes that of the run on `bits` without its own keys `removed` (none if left out), whatever else is removed; of two
 * edits of one row the later counts. head = null means all heads.
 *
 * Activations are nested arrays, by head, then dest, then src: scores (null where removed), pattern, values, z,
 * effective (attention), contribution, dest_contribution; and logit, probability, rest, where the contributions and rest
 * add up to the logit. What an architecture does not have is null.
 */
const BoolensNetwork = (() => {
  "use strict";

  const NORM_EPS = 1e-5; // as in interp/config.py
  const range = (n) => Array.from({length: n}, (_, i) => i);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const add = (a, b) => (b ? a.map((value, i) => value + b[i]) : a);

  const dot = (a, b) => {
    let total = 0;
    for (let i = 0; i < a.length; i++) total += a[i] * b[i];
    return total;
  };

  /* The vector times a matrix of `vector.length` rows, given flat. */
  const times = (vector, matrix, width) => {
    const out = new Float64Array(width);
    for (let i = 0; i < vector.length; i++) {
      for (let j = 0; j < width; j++) out[j] += vector[i] * matrix[i * width + j];
    }
    return out;
  };

  /* To 1e-15: the series of positive terms (DLMF 7.6.2), and for the tail the continued fraction (DLMF 7.9.1). */
  const erf = (x) => {
    const size = Math.abs(x);
    if (size > 6) return Math.sign(x);
    if (size < 2) {
      let term = x;
      let total = x;
      for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(total); n++) {
        term *= (2 * x * x) / (2 * n + 1);
        total += term;
      }
      return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * total;
    }
    let fraction = 0;
    for (let k = 60; k > 0; k--) fraction = k / 2 / (size + fraction);
    return Math.sign(x) * (1 - Math.exp(-x * x) / Math.sqrt(Math.PI) / (size + fraction));
  };

  const gelu = (x) => 0.5 * x * (1 + erf(x / Math.SQRT2));

  /* Of scores, of which those that are null get no share. */
  const softmax = (scores) => {
    let largest = -Infinity;
    for (const score of scores) if (score !== null && score > largest) largest = score;
    const shares = scores.map((score) => (score === null ? 0 : Math.exp(score - largest)));
    const total = sum(shares);
    return shares.map((share) => share / total);
  };

  /* A LayerNorm's output and the scale that it divides by; without one the vector itself, and 1. */
  const layerNorm = (vector, weight, bias) => {
    if (!weight) return {out: vector, scale: 1};
    const mean = sum(vector) / vector.length;
    const centred = vector.map((value) => value - mean);
    const scale = Math.sqrt(dot(centred, centred) / vector.length + NORM_EPS);
    return {out: add(centred.map((value, i) => (value / scale) * weight[i]), bias), scale};
  };

  /* [head][row]: each row of the residual stream times the head's matrix, plus its bias. */
  const project = (resid, weight, bias, nHeads) => {
    const width = weight.length / nHeads / resid[0].length;
    return range(nHeads).map((head) => {
      const matrix = weight.subarray((head * weight.length) / nHeads, ((head + 1) * weight.length) / nHeads);
      const shift = bias && bias.subarray(head * width, (head + 1) * width);
      return resid.map((vector) => add(times(vector, matrix, width), shift));
    });
  };

  /* From bits and edits to scores, pattern, values and z. The residual stream has one row for every position and bit,
   * at 2 · position + bit, and [CLS]'s behind them; `onlyLast` says that [CLS] is there and asks alone. */
  const attentionLayer = (weights, resid, nCtx, nHeads, onlyLast) => {
    const [q, k, v] = ["Q", "K", "V"].map((name) =>
      project(resid, weights[`blocks.0.attn.W_${name}`], weights[`blocks.0.attn.b_${name}`], nHeads),
    );
    const scale = q[0][0].length ** -0.5;
    const nSrc = onlyLast ? nCtx + 1 : nCtx;
    const nDest = onlyLast ? 1 : nCtx;
    const rowsOf = (bits) => {
      const rows = bits.map((bit, pos) => 2 * pos + bit);
      return onlyLast ? [...rows, 2 * nCtx] : rows;
    };
    const tables = q.map(() => []); // by query row: its scores with every key row, made when it is first asked for
    const scoresOf = (rows, head, dest) => {
      const row = rows[nSrc - nDest + dest];
      tables[head][row] ??= Float64Array.from(k[head], (key) => scale * dot(q[head][row], key));
      const table = tables[head][row];
      return rows.map((key) => table[key]);
    };

    const attend = (bits, edits) => {
      const kept = keptKeys(edits.removed, nHeads, nSrc);
      const rows = rowsOf(bits);
      const without = (all, keys) => (keys.includes(false) ? all.map((score, src) => (keys[src] ? score : null)) : all);
      const scores = range(nHeads).map((head) =>
        range(nDest).map((dest) => without(scoresOf(rows, head, dest), kept[head])),
      );
      const pattern = scores.map((ofHead) => ofHead.map(softmax));
      for (const {dest, head, bits: source, removed = []} of edits.rows) {
        checkIndex(dest, nDest, "dest");
        checkBits(source, nCtx);
        const from = rowsOf(source);
        const keys = removed.length ? keptKeys(removed, nHeads, nSrc) : null;
        for (const h of headsOf(head, nHeads)) {
          const all = scoresOf(from, h, dest);
          pattern[h][dest] = softmax(keys ? without(all, keys[h]) : all);
        }
      }
      const values = v.map((ofHead) => rows.map((row) => Array.from(ofHead[row])));
      const z = pattern.map((ofHead, head) => ofHead.map((shares) => weighted(shares, values[head])));
      return {scores, pattern, values, z};
    };
    return attend;
  };

  /* Sum over src of share × value. */
  const weighted = (shares, values) => {
    const out = new Array(values[0].length).fill(0);
    for (let src = 0; src < shares.length; src++) {
      for (let d = 0; d < out.length; d++) out[d] += shares[src] * values[src][d];
    }
    return out;
  };

  /* What keys and queries add to the logit, through the readout [head][dest][d_value] (interp/attention.py). */
  const decompose = ({pattern, values, z}, readout) => {
    const effective = pattern.map((ofHead, head) => {
      const out = values[head].map((value) => new Array(value.length).fill(0));
      ofHead.forEach((shares, dest) => {
        const weights = readout[head][dest];
        for (let src = 0; src < shares.length; src++) {
          for (let d = 0; d < weights.length; d++) out[src][d] += shares[src] * weights[d];
        }
      });
      return out;
    });
    return {
      effective,
      contribution: effective.map((ofHead, head) => ofHead.map((weight, src) => dot(weight, values[head][src]))),
      dest_contribution: z[0].map((_, dest) => sum(z.map((ofHead, head) => dot(ofHead[dest], readout[head][dest])))),
    };
  };

  const attentionNet = ({n_ctx: nCtx, n_heads: nHeads, d_model: dModel, d_value: dValue}, weights) => {
    const resid = range(2 * nCtx).map((row) => embedding(weights, row % 2, row >> 1, dModel));
    const attend = attentionLayer(weights, resid, nCtx, nHeads, false);
    const readout = range(nHeads).map((head) =>
      range(nCtx).map((dest) => weights.W_readout.subarray((dest * nHeads + head) * dValue).subarray(0, dValue)),
    );
    const bias = weights.b_readout ? weights.b_readout[0] : 0;
    return (bits, edits) => {
      const attention = attend(bits, edits);
      const terms = decompose(attention, readout);
      return {...attention, ...terms, logit: sum(terms.dest_contribution) + bias, rest: bias};
    };
  };

  const clsNet = ({n_ctx: nCtx, n_heads: nHeads, d_model: dModel, d_head: dHead, d_mlp: dMlp}, weights) => {
    const norm = (name, vector) => layerNorm(vector, weights[`${name}.w`], weights[`${name}.b`]);
    const resid = range(2 * nCtx + 1).map((row) =>
      embedding(weights, row === 2 * nCtx ? 2 : row % 2, row >> 1, dModel),
    );
    const normalised = resid.map((vector) => norm("blocks.0.ln1", vector).out);
    const attend = attentionLayer(weights, normalised, nCtx, nHeads, true);
    const output = weights["blocks.0.attn.W_O"];
    const mlp = (vector) => {
      const pre = add(times(vector, weights["blocks.0.mlp.W_in"], dMlp), weights["blocks.0.mlp.b_in"]);
      return add(times(pre.map(gelu), weights["blocks.0.mlp.W_out"], dModel), weights["blocks.0.mlp.b_out"]);
    };
    return (bits, edits) => {
      const attention = attend(bits, edits);
      const ofHeads = times(attention.z.flatMap(([ofCls]) => ofCls), output, dModel);
      let stream = add(resid[2 * nCtx], add(ofHeads, weights["blocks.0.attn.b_O"]));
      if (dMlp) stream = add(stream, mlp(norm("blocks.0.ln2", stream).out));
      const final = norm("ln_final", stream);
      const logit = dot(final.out, weights.W_readout) + (weights.b_readout ? weights.b_readout[0] : 0);
      const direct = directReadout(weights, final.scale);
      const readout = range(nHeads).map((head) => [
        Float64Array.from(range(dHead), (d) => dot(direct, output.subarray((head * dHead + d) * dModel))),
      ]);
      const terms = decompose(attention, readout);
      return {...attention, ...terms, logit, rest: logit - sum(terms.contribution.map(sum))};
    };
  };

  /* What a unit of the residual stream adds to the logit with the final norm's scale as it is (interp/readout.py);
   * under edits the scale is that of the edited run. */
  const directReadout = (weights, scale) => {
    if (!weights["ln_final.w"]) return weights.W_readout;
    const scaled = weights.W_readout.map((value, i) => value * weights["ln_final.w"][i]);
    const mean = sum(scaled) / scaled.length;
    return scaled.map((value) => (value - mean) / scale);
  };

  const embedding = (weights, token, pos, dModel) =>
    add(
      weights.W_E.subarray(token * dModel, (token + 1) * dModel),
      weights.W_pos.subarray(pos * dModel, (pos + 1) * dModel),
    );

  const NO_ATTENTION = {scores: null, pattern: null, values: null, z: null, effective: null, dest_contribution: null};

  const mlpNet = ({d_mlp: dMlp}, weights) => {
    const part = (name) => weights[`blocks.0.mlp.${name}`];
    return (bits) => {
      const post = add(times(bits, part("W_in"), dMlp), part("b_in")).map(gelu);
      const logit = dot(post, part("W_out")) + part("b_out")[0];
      return {...NO_ATTENTION, contribution: null, logit, rest: logit};
    };
  };

  const linearNet = (_, weights) => (bits) => {
    const terms = bits.map((bit, pos) => bit * weights.W[pos]);
    const rest = weights.b[0];
    return {...NO_ATTENTION, contribution: [terms], logit: sum(terms) + rest, rest};
  };

  const ARCHITECTURES = {attention: attentionNet, cls: clsNet, mlp: mlpNet, linear: linearNet};

  const checkIndex = (index, size, what) => {
    if (!Number.isInteger(index) || index < 0 || index >= size) {
      throw new Error(`${what} ${index} is out of range; there are ${size}, 0 to ${size - 1}`);
    }
  };

  const checkBits = (bits, nCtx) => {
    if (!Array.isArray(bits) || bits.length !== nCtx) {
      throw new Error(`the input has ${bits?.length} bits; this network takes an array of ${nCtx}`);
    }
    const wrong = bits.find((bit) => bit !== 0 && bit !== 1);
    if (wrong !== undefined) throw new Error(`the input holds ${wrong}; every bit must be 0 or 1`);
  };

  const headsOf = (head, nHeads) => {
    if (head === null) return range(nHeads);
    checkIndex(head, nHeads, "head");
    return [head];
  };

  /* [head][src]: whether the key is still there. */
  const keptKeys = (removed, nHeads, nSrc) => {
    const kept = range(nHeads).map(() => new Array(nSrc).fill(true));
    for (const {src, head} of removed) {
      checkIndex(src, nSrc, "src");
      for (const h of headsOf(head, nHeads)) kept[h][src] = false;
    }
    const emptied = kept.findIndex((ofHead) => !ofHead.includes(true));
    if (emptied >= 0) {
      throw new Error(
        `removing all ${nSrc} keys of head ${emptied} leaves nothing to attend to; keep at least one of the keys`,
      );
    }
    return kept;
  };

  const decode = (name, {shape, data}) => {
    const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
    const size = shape.reduce((product, length) => product * length, 1);
    if (bytes.length !== 4 * size) {
      throw new Error(`${name} has ${bytes.length} bytes; shape [${shape}] needs ${4 * size}`);
    }
    const view = new DataView(bytes.buffer);
    return Float64Array.from({length: size}, (_, i) => view.getFloat32(4 * i, true));
  };

  const load = ({schema, architecture, config, weights}) => {
    if (schema !== 1) throw new Error(`the payload has schema ${schema}; this version reads schema 1`);
    if (!Object.hasOwn(ARCHITECTURES, architecture)) {
      throw new Error(`architecture ${architecture} is not known; they are ${Object.keys(ARCHITECTURES).join(", ")}`);
    }
    const tensors = Object.fromEntries(Object.entries(weights).map(([name, packed]) => [name, decode(name, packed)]));
    return {architecture, nCtx: config.n_ctx, forward: ARCHITECTURES[architecture](config, tensors)};
  };

  const run = (net, bits, {removed = [], rows = []} = {}) => {
    checkBits(bits, net.nCtx);
    if (removed.length + rows.length > 0 && !["attention", "cls"].includes(net.architecture)) {
      throw new Error(`this is a network of architecture ${net.architecture}: it has no attention to edit`);
    }
    const activations = net.forward(bits, {removed, rows});
    return {...activations, probability: 1 / (1 + Math.exp(-activations.logit))};
  };

  const binary = (bits, positions) => positions.reduce((number, pos) => 2 * number + bits[pos], 0);

  const label = (payload, bits) => {
    checkBits(bits, payload.config.n_ctx);
    if (payload.label === null) return null;
    const rule = binary(bits, payload.rule_positions);
    const targets = payload.targets[rule];
    const labels = payload.label.labels[rule];
    if (payload.label.kind === "table") return labels[binary(bits, targets)] === "1";
    return labels[sum(targets.map((pos) => bits[pos]))] === 1;
  };

  return {load, run, label};
})();
