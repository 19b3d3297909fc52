// @ts-check
/** Making long series short and rough ones smooth. Pure. */

/** @typedef {{x: number[], y: (number | null)[]}} Series */

/**
 * At most about `limit` points: of each bucket the lowest and the highest, so no spike is lost. Gaps stay gaps.
 * @param {number[]} x sorted
 * @param {(number | null)[]} y
 * @param {number} limit
 * @returns {Series}
 */
export function decimate(x, y, limit) {
  if (x.length <= limit || limit < 4) return { x, y };
  const buckets = Math.floor(limit / 2);
  const low = x[0];
  const span = x[x.length - 1] - low;
  const out = { x: /** @type {number[]} */ ([]), y: /** @type {(number | null)[]} */ ([]) };
  let at = 0;
  for (let bucket = 0; bucket < buckets && at < x.length; bucket += 1) {
    const end = low + (span * (bucket + 1)) / buckets;
    let least = -1;
    let most = -1;
    let gap = -1;
    for (; at < x.length && (x[at] < end || bucket === buckets - 1); at += 1) {
      const value = y[at];
      if (value === null) gap = at;
      else {
        if (least < 0 || value < /** @type {number} */ (y[least])) least = at;
        if (most < 0 || value >= /** @type {number} */ (y[most])) most = at;
      }
    }
    for (const place of new Set([least, most, gap].filter((n) => n >= 0).sort((a, b) => a - b))) {
      out.x.push(x[place]);
      out.y.push(y[place]);
    }
  }
  return out;
}

/**
 * Exponential moving average without the bias of its start; a gap stays a gap and the average continues after it.
 * @param {(number | null)[]} y
 * @param {number} weight from 0 (as it is) to below 1
 * @param {number[]} [counts] how many figures each value is the mean of; else one
 * @returns {(number | null)[]}
 */
export function smooth(y, weight, counts) {
  if (!(weight > 0) || isFlat(y)) return y; // an average of equal values differs from them by rounding alone
  let sum = 0;
  let norm = 0;
  return y.map((value, at) => {
    if (value === null || !Number.isFinite(value)) return null;
    const kept = counts ? weight ** counts[at] : weight;
    sum = sum * kept + value * (1 - kept);
    norm = norm * kept + (1 - kept);
    return sum / norm;
  });
}

/**
 * For a logarithmic axis: what is not above zero leaves a gap.
 * @param {(number | null)[]} y
 */
export function positive(y) {
  return y.map((value) => (value !== null && value > 0 ? value : null));
}

/**
 * Value at a step, or of the point that is nearest to it and at most `reach` steps away.
 * @param {number[]} x sorted
 * @param {(number | null)[]} y
 * @param {number} step
 * @param {number} [reach] none but this step, unless points were left out
 * @returns {number | null | undefined} undefined when there is no such step
 */
export function valueAt(x, y, step, reach = 0) {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] <= step) low = middle + 1;
    else high = middle;
  }
  const after = low < x.length && (low === 0 || x[low] - step < step - x[low - 1]);
  const at = after ? low : low - 1;
  return at >= 0 && Math.abs(x[at] - step) <= reach ? y[at] : undefined;
}

/**
 * Of sorted numbers the one that is nearest to another, the lower of two; undefined of none.
 * @param {number[]} sorted
 * @param {number} wanted
 * @returns {number | undefined}
 */
export function nearest(sorted, wanted) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  const before = sorted[low - 1];
  return before !== undefined && !(sorted[low] - wanted < wanted - before) ? before : sorted[low];
}

/**
 * The last figure that is there.
 * @param {(number | null)[]} y
 * @returns {number | null}
 */
export function last(y) {
  for (let at = y.length - 1; at >= 0; at -= 1) {
    const value = y[at];
    if (value !== null && Number.isFinite(value)) return value;
  }
  return null;
}

/**
 * Points of an SVG polyline for the last `count` values; several lines where there are gaps.
 * @param {(number | null)[]} values
 * @param {number} width
 * @param {number} height
 * @param {number} [count]
 * @returns {string[]}
 */
export function sparkLines(values, width, height, count = 48) {
  const shown = values.slice(-count);
  const finite = /** @type {number[]} */ (shown.filter((v) => v !== null && Number.isFinite(v)));
  if (finite.length < 2) return [];
  const low = Math.min(...finite);
  const span = Math.max(...finite) - low || 1;
  /** @type {string[][]} */
  const lines = [[]];
  shown.forEach((value, at) => {
    if (value === null || !Number.isFinite(value)) return void lines.push([]);
    const x = (at / (shown.length - 1)) * width;
    const y = height - 2 - ((value - low) / span) * (height - 4);
    lines[lines.length - 1].push(`${x.toFixed(1)},${y.toFixed(1)}`);
  });
  return lines.filter((line) => line.length > 0).map((line) => line.join(" "));
}

/**
 * The axis of values that are all the same: from 0, so that a learning rate of 1e-6 is not drawn as 0; null otherwise.
 * @param {(number | null)[]} values
 * @returns {[number, number] | null}
 */
export function flatRange(values) {
  const first = values.find((value) => value !== null && Number.isFinite(value)) ?? null;
  if (first === null || !isFlat(values)) return null;
  return first === 0 ? [-0.05, 1] : [Math.min(0, 2 * first), Math.max(0, 2 * first)];
}

/** Values that differ by less than this share of their size, or by less than this, are not drawn as if they moved. */
const LEAST_SHARE = 0.01;
const LEAST_SPAN = 1e-4;
const ROOM = 0.06; // of the span, above and below

/**
 * The axis of values: their range with some room, but never so small a range that a tremor looks like a cliff.
 * On a logarithmic axis in powers of ten, as Plotly wants it.
 * @param {(number | null)[]} values
 * @param {{log?: boolean, tiny?: boolean}} [how] ``tiny``: the metric's own scale is small, such as a learning rate's
 * @returns {[number, number] | null} null without a value
 */
export function valueRange(values, { log = false, tiny = false } = {}) {
  const flat = log ? null : flatRange(values);
  if (flat) return flat;
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value) || (log && value <= 0)) continue;
    const at = log ? Math.log10(value) : value;
    low = Math.min(low, at);
    high = Math.max(high, at);
  }
  if (low > high) return null;
  const least = log
    ? LEAST_SHARE
    : Math.max(LEAST_SHARE * Math.max(Math.abs(low), Math.abs(high)), tiny ? 0 : LEAST_SPAN);
  const span = Math.max(high - low, least);
  const room = ROOM * span;
  const from = (low + high - span) / 2 - room;
  const to = (low + high + span) / 2 + room;
  // What is never negative is not drawn below zero only because its range was widened.
  return !log && low >= 0 && from < -room ? [-room, span + room] : [from, to];
}

/** Below this share of the values their differences are rounding. */
const ROUNDING = 1e-9;

/**
 * Whether all values are the same but for rounding; gaps do not count.
 * @param {(number | null)[]} values
 */
export function isFlat(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return high - low <= ROUNDING * Math.max(Math.abs(low), Math.abs(high));
}

/**
 * First and last step of several curves, for one axis that all charts share; a few steps get some room around them.
 * @param {number[][]} steps of each curve, in order
 * @returns {[number, number] | null} null where there is none
 */
export function stepSpan(steps) {
  const known = steps.filter((of) => of.length > 0);
  if (!known.length) return null;
  const low = Math.min(...known.map((of) => of[0]));
  const high = Math.max(...known.map((of) => of[of.length - 1]));
  return high - low < 3 ? [low - 0.5, high + 0.5] : [low, high];
}
