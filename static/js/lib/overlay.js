// @ts-check
/** Curves of several runs over one axis, and the mean and range of those that are one setting. Pure. */

/** @typedef {{steps: number[], at: number[]}} Axis */
/** @typedef {{steps: number[], values: (number | null)[]}} Curve */
/** @typedef {{x: number[], y: (number | null)[]}} Line */
/** @typedef {{name: string, number: number, setting: number, axes: Record<string, Axis>, curves: Record<string, Curve>}} Run */
/** @typedef {{x: number[], mean: number[], low: number[], high: number[]}} Band */

/**
 * A run's curve over an axis; over steps as it is. Points before the first step that the axis knows stand at 0, others
 * at the last known step at or below theirs. Empty where the run has no such axis.
 * @param {Run} run
 * @param {string} name
 * @param {string} axis
 * @returns {Line}
 */
export function lineOf(run, name, axis) {
  const curve = run.curves[name];
  if (!curve) return { x: [], y: [] };
  if (axis === "step") return { x: curve.steps, y: curve.values };
  const known = run.axes[axis];
  if (!known) return { x: [], y: [] };
  return { x: curve.steps.map((step) => at(known, step)), y: curve.values };
}

/**
 * @param {Axis} axis
 * @param {number} step
 */
function at(axis, step) {
  let low = 0;
  let high = axis.steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (axis.steps[middle] <= step) low = middle + 1;
    else high = middle;
  }
  return low ? axis.at[low - 1] : 0;
}

/**
 * Mean and range of several lines, over the x that all of them reach; between its points a line is straight.
 * @param {Line[]} lines
 * @returns {Band}
 */
export function bandOf(lines) {
  /** @type {Band} */
  const band = { x: [], mean: [], low: [], high: [] };
  const whole = lines.map(withoutGaps).filter((line) => line.x.length);
  if (whole.length < lines.length || !whole.length) return band;
  const from = Math.max(...whole.map((line) => line.x[0]));
  const to = Math.min(...whole.map((line) => line.x[line.x.length - 1]));
  const places = Array.from(new Set(whole.flatMap((line) => line.x))).filter((x) => x >= from && x <= to);
  for (const x of places.sort((a, b) => a - b)) {
    const values = whole.map((line) => valueBetween(line, x));
    band.x.push(x);
    band.mean.push(values.reduce((sum, value) => sum + value, 0) / values.length);
    band.low.push(Math.min(...values));
    band.high.push(Math.max(...values));
  }
  return band;
}

/**
 * @param {Line} line
 * @returns {{x: number[], y: number[]}}
 */
function withoutGaps(line) {
  const out = { x: /** @type {number[]} */ ([]), y: /** @type {number[]} */ ([]) };
  line.y.forEach((value, place) => {
    if (value === null || !Number.isFinite(value)) return;
    out.x.push(line.x[place]);
    out.y.push(value);
  });
  return out;
}

/**
 * @param {{x: number[], y: number[]}} line whose ends hold x
 * @param {number} x
 */
function valueBetween(line, x) {
  let after = line.x.findIndex((other) => other >= x);
  if (after <= 0) return line.y[Math.max(after, 0)];
  const [left, right] = [line.x[after - 1], line.x[after]];
  const share = right === left ? 1 : (x - left) / (right - left);
  return line.y[after - 1] + share * (line.y[after] - line.y[after - 1]);
}

/**
 * Runs by setting, in the order of their first.
 * @param {Run[]} runs
 * @returns {Run[][]}
 */
export function bySetting(runs) {
  /** @type {Map<number, Run[]>} */
  const found = new Map();
  for (const run of runs) found.set(run.setting, [...(found.get(run.setting) ?? []), run]);
  return Array.from(found.values());
}
