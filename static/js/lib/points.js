// @ts-check
/** How curves grow: points of later attempts take the place of those that were lost. Pure, like `state.js`. */

/** @typedef {import("./state.js").State} State */
/** @typedef {Record<string, any>} Row */

/**
 * Whole curves of a snapshot, those that were asked for, or parts of them: they take the place of what is known.
 * @param {State} state
 * @param {Row} frame
 */
export function addCurves(state, frame) {
  for (const [name, sent] of Object.entries(frame.curves)) {
    const attempts = Array.isArray(sent.attempts) ? sent.attempts : sent.steps.map(() => sent.attempts);
    /** @type {import("./state.js").Curve} */
    const curve = { steps: sent.steps, values: sent.values, attempts };
    if (sent.means) curve.means = sent.means;
    if (frame.first !== undefined) {
      state.parts.set(name, { ...curve, first: frame.first, last: frame.last });
      continue;
    }
    state.curves.set(name, curve);
    attempts.forEach((/** @type {number} */ attempt, /** @type {number} */ at) => {
      if (!((state.began.get(attempt) ?? Infinity) <= curve.steps[at])) state.began.set(attempt, curve.steps[at]);
    });
    if (!state.names.has(name)) state.names.set(name, curve.values[curve.values.length - 1] ?? null);
  }
  return Object.keys(frame.curves).length > 0;
}

/**
 * @param {State} state
 * @param {Row} point
 */
export function addPoint(state, point) {
  for (const [attempt, step] of state.began) if (attempt > point.attempt && step <= point.step) return false;
  if (!((state.began.get(point.attempt) ?? Infinity) <= point.step)) begin(state, point.attempt, point.step);
  let curve = state.curves.get(point.name);
  if (!curve) {
    const begins = !state.names.has(point.name);
    state.names.set(point.name, point.value);
    if (!begins) return true; // its earlier points are not here: the whole curve comes when it is asked for
    state.curves.set(point.name, (curve = { steps: [], values: [], attempts: [] }));
  }
  if (point.step >= (curve.steps[curve.steps.length - 1] ?? 0)) state.names.set(point.name, point.value);
  const part = state.parts.get(point.name);
  if (part && part.first <= point.step && point.step <= part.last) put(part, point);
  return put(curve, point);
}

/**
 * Put a point in its place, or in that of an older attempt's; returns whether that changed anything.
 * @param {import("./state.js").Curve} curve
 * @param {Row} point
 */
function put(curve, point) {
  const at = placeOf(curve.steps, point.step);
  if (curve.steps[at] === point.step) {
    if (curve.attempts[at] > point.attempt) return false; // a later attempt made this step again
    if (curve.attempts[at] === point.attempt && Object.is(curve.values[at], point.value)) return false;
    curve.values[at] = point.value;
    curve.attempts[at] = point.attempt;
    return true;
  }
  if (at === curve.steps.length && curve.means && point.value !== null) {
    curve.means.steps.push(point.step);
    curve.means.values.push(point.value);
    curve.means.counts.push(1);
  }
  curve.steps.splice(at, 0, point.step);
  curve.values.splice(at, 0, point.value);
  curve.attempts.splice(at, 0, point.attempt);
  return true;
}

/**
 * An attempt trains from `step` on: what earlier ones had trained from there was lost and leaves all curves.
 * @param {State} state
 * @param {number} attempt
 * @param {number} step
 */
function begin(state, attempt, step) {
  state.began.set(attempt, step);
  for (const part of state.parts.values()) cut(part, attempt, step);
  for (const [name, curve] of state.curves)
    if (cut(curve, attempt, step)) state.names.set(name, curve.values[curve.values.length - 1] ?? null);
}

/**
 * Drop what attempts before this one had trained from `step` on; returns whether there was any.
 * @param {import("./state.js").Curve} curve
 * @param {number} attempt
 * @param {number} step
 */
function cut(curve, attempt, step) {
  const kept = curve.steps.map((known, at) => known < step || curve.attempts[at] >= attempt);
  if (kept.every(Boolean)) return false;
  curve.values = curve.values.filter((_value, at) => kept[at]);
  curve.steps = curve.steps.filter((_step, at) => kept[at]);
  curve.attempts = curve.attempts.filter((_attempt, at) => kept[at]);
  const means = curve.means;
  if (means) {
    const keep = means.steps.findIndex((known) => known >= step);
    if (keep >= 0) for (const list of [means.steps, means.values, means.counts]) list.length = keep;
  }
  return true;
}

/**
 * First place whose number is not below `wanted`; the end, at once, when it is beyond the last.
 * @param {number[]} sorted
 * @param {number} wanted
 */
function placeOf(sorted, wanted) {
  let high = sorted.length;
  if (high === 0 || sorted[high - 1] < wanted) return high;
  let low = 0;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
