// @ts-check
/** Looking closer: which part of a long curve a zoomed chart asks the server for, and which one it draws. Pure. */

/** @typedef {import("./state.js").Curve} Curve */
/** @typedef {import("./state.js").Part} Part */
/** @typedef {[number, number]} Range of steps that is shown */

const WIDER = 1; // of the shown width on both sides: smoothing begins there, and the line reaches the edges
const COARSE = 5; // so many times wider than what is shown, a thinned part is asked for again

/**
 * The steps to ask for when these are shown.
 * @param {Range} range
 * @returns {Range}
 */
export function partAround(range) {
  const width = range[1] - range[0];
  return [Math.max(0, Math.floor(range[0] - WIDER * width)), Math.max(0, Math.ceil(range[1] + WIDER * width))];
}

/**
 * Whether a part holds all that the curve has in this range.
 * @param {Curve} curve
 * @param {Part | undefined} part
 * @param {Range} range
 */
function holds(curve, part, range) {
  if (!part || !curve.steps.length) return false;
  const first = Math.max(range[0], curve.steps[0]);
  const last = Math.min(range[1], curve.steps[curve.steps.length - 1]);
  return part.first <= first && last <= part.last;
}

/**
 * Whether the server has more points of the shown range than are known here.
 * @param {Curve | undefined} curve
 * @param {Part | undefined} part
 * @param {Range | null} range
 */
export function lacksPoints(curve, part, range) {
  if (!range || !curve?.means) return false;
  if (!part || !holds(curve, part, range)) return true;
  return Boolean(part.means) && part.last - part.first > COARSE * Math.max(range[1] - range[0], 1);
}

/**
 * The curve to draw: the part while it holds all that is shown, else the whole curve.
 * @param {Curve} curve
 * @param {Part | undefined} part
 * @param {Range | null} range
 * @returns {Curve}
 */
export function shownCurve(curve, part, range) {
  return range && curve.means && part && holds(curve, part, range) ? part : curve;
}
