// @ts-check
/** Axes of curves: steps, or what had gone by at their end (hours, rollouts, tokens). Pure. */

/** @typedef {{steps: number[], at: number[]}} Axis what had gone by at the end of some steps; straight between them */

export const AXES = ["step", "time", "rollouts", "tokens"];

/**
 * The place of a step. Before the first known one the axis begins at zero; after the last it continues at the average rate.
 * @param {Axis | undefined} axis none: steps
 * @param {number} step
 */
export function placeOn(axis, step) {
  return axis ? between(axis.steps, axis.at, step) : step;
}

/**
 * The step at a place, which may lie between two.
 * @param {Axis | undefined} axis
 * @param {number} place
 */
export function stepAt(axis, place) {
  return axis ? between(axis.at, axis.steps, place) : place;
}

/**
 * @param {number[]} from never falling
 * @param {number[]} to
 * @param {number} value
 */
function between(from, to, value) {
  const end = from.length - 1;
  if (end < 0) return value;
  if (value > from[end]) return from[end] > 0 ? (to[end] * value) / from[end] : to[end];
  let low = 0;
  let high = end;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (from[middle] < value) low = middle + 1;
    else high = middle;
  }
  const [left, at] = low ? [from[low - 1], to[low - 1]] : [0, 0];
  return from[low] > left ? at + ((to[low] - at) * (value - left)) / (from[low] - left) : to[low];
}

/**
 * Shapes and labels that stand at steps, moved to where these stand on an axis; what spans the whole chart stays.
 * @param {any[]} parts
 * @param {Axis | undefined} axis
 */
export function moved(parts, axis) {
  if (!axis) return parts;
  return parts.map((part) => {
    if (part.xref === "paper") return part;
    const places = ["x", "x0", "x1"].filter((key) => typeof part[key] === "number");
    return { ...part, ...Object.fromEntries(places.map((key) => [key, placeOn(axis, part[key])])) };
  });
}
