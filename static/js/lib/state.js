// @ts-check
/** The page's state of a run, and how a frame changes it. No page, no socket, no clock: `node --test` covers it. */

import { addCurves, addPoint } from "./points.js";

/** @typedef {{steps: number[], values: number[], counts: number[]}} Means of the stretches of a thinned curve */
/** @typedef {{steps: number[], values: (number | null)[], attempts: number[], means?: Means | null}} Curve */
/** @typedef {Curve & {first: number, last: number}} Part of a curve, between two steps */
/** @typedef {Record<string, any>} Row */
/**
 * @typedef {object} State
 * @property {number} seq newest change that has been applied
 * @property {Row | null} run RunView
 * @property {Map<string, Curve>} curves by metric name; only those that are known from their beginning
 * @property {Map<string, number | null>} names every metric of the run, with its newest figure
 * @property {Map<string, Part>} parts of curves that were asked for to look closer, the newest of each name
 * @property {Map<string, Row>} rollouts by id
 * @property {Map<number, Set<string>>} steps ids of each step's rollouts
 * @property {Map<string, Row[]>} turns by rollout id, in order of number
 * @property {Map<string, Row>} groups by "step/group"
 * @property {Row[]} events in order of seq
 * @property {Row[]} checkpoints in order of step
 * @property {Set<number>} whole steps of which every rollout is known
 * @property {Map<number, number>} began the lowest step that is known of each attempt
 * @property {number} from step of the snapshot: later ones are whole because they were watched from their beginning
 * @property {Row | null | undefined} queue the run's place in the queue; undefined until a frame has it
 * @property {number} left how many rollouts of that step the snapshot left out
 */

export const EVENTS_KEPT = 1000;
export const STEPS_KEPT = 6;

/** @returns {State} */
export function emptyState() {
  return {
    seq: 0,
    run: null,
    curves: new Map(),
    names: new Map(),
    parts: new Map(),
    rollouts: new Map(),
    steps: new Map(),
    turns: new Map(),
    groups: new Map(),
    events: [],
    checkpoints: [],
    whole: new Set(),
    began: new Map(),
    from: Infinity,
    queue: undefined,
    left: 0,
  };
}

/**
 * Apply one frame and tell what it changed: "run", "points", "rollouts", "turns", "groups", "events", "checkpoints".
 * Rows that are older than what is known are passed over, so a repeated frame changes nothing.
 * @param {State} state
 * @param {Row} frame
 * @returns {Set<string>}
 */
export function applyFrame(state, frame) {
  /** @type {Set<string>} */
  const changed = new Set();
  if (frame.type === "snapshot") restart(state, frame);
  if (frame.type === "queue") {
    state.queue = frame.queue;
    changed.add("run");
  }
  if (!["snapshot", "changes", "step", "curves", "beat"].includes(frame.type)) return changed;
  if (frame.run && !isOlderRun(state.run, frame.run)) {
    state.run = frame.run;
    changed.add("run");
  }
  if (frame.curves && addCurves(state, frame)) changed.add("points");
  for (const point of frame.points || []) if (addPoint(state, point)) changed.add("points");
  for (const row of frame.rollouts || []) if (addRollout(state, row)) changed.add("rollouts");
  for (const row of frame.turns || []) if (addTurn(state, row)) changed.add("turns");
  for (const row of frame.groups || []) if (addGroup(state, row)) changed.add("groups");
  for (const row of frame.events || []) if (insert(state.events, row, (r) => r.seq)) changed.add("events");
  for (const row of frame.checkpoints || [])
    if (insert(state.checkpoints, row, (r) => r.seq)) changed.add("checkpoints");
  if (frame.type === "step") {
    state.whole.add(frame.step);
    changed.add("rollouts"); // also of a step that has none: that is what is known now
  } else if (frame.type !== "beat" && frame.type !== "curves" && typeof frame.seq === "number")
    state.seq = Math.max(state.seq, frame.seq);
  if (state.events.length > EVENTS_KEPT) state.events.splice(0, state.events.length - EVENTS_KEPT);
  if (frame.type === "snapshot") changed.add("snapshot");
  return changed;
}

/**
 * @param {State} state
 * @param {Row} frame
 */
function restart(state, frame) {
  Object.assign(state, emptyState());
  for (const [name, value] of Object.entries(frame.names || {})) state.names.set(name, value);
  // The newest step comes without its turns: it is whole once it was asked for. Later ones are watched from their begin.
  state.from = frame.step ?? frame.run?.step ?? 0;
  state.left = frame.more?.rollouts ?? 0;
}

/**
 * @param {Row | null} known
 * @param {Row} run
 */
function isOlderRun(known, run) {
  return known !== null && typeof run.seq === "number" && run.seq < known.seq;
}

/**
 * Any one of these rollouts: all of a step are of the same attempt.
 * @param {State} state
 * @param {Set<string>} ids
 * @returns {Row | undefined}
 */
function firstOf(state, ids) {
  for (const id of ids) return state.rollouts.get(id);
  return undefined;
}

/**
 * @param {State} state
 * @param {Row} row
 */
function addRollout(state, row) {
  const known = state.rollouts.get(row.id);
  if (known && (known.seq > row.seq || (known.seq === row.seq && !(known.short && !row.short)))) return false;
  let ids = state.steps.get(row.step);
  if (!ids) {
    state.steps.set(row.step, (ids = new Set()));
    if (row.step > state.from) state.whole.add(row.step);
  }
  const other = firstOf(state, ids);
  if (other && other.attempt > row.attempt) return false;
  if (other && other.attempt < row.attempt) forget(state, row.step, ids);
  ids.add(row.id);
  state.rollouts.set(row.id, row);
  return true;
}

/**
 * Drop a step's rollouts, turns and groups, keeping the step's place.
 * @param {State} state
 * @param {number} step
 * @param {Set<string>} ids
 */
function forget(state, step, ids) {
  for (const id of ids) {
    state.rollouts.delete(id);
    state.turns.delete(id);
  }
  ids.clear();
  for (const key of state.groups.keys()) if (key.startsWith(`${step}/`)) state.groups.delete(key);
}

/**
 * @param {State} state
 * @param {Row} row
 */
function addTurn(state, row) {
  let turns = state.turns.get(row.rollout);
  if (!turns) state.turns.set(row.rollout, (turns = []));
  return insert(turns, row, (r) => r.number);
}

/**
 * @param {State} state
 * @param {Row} row
 */
function addGroup(state, row) {
  const key = `${row.step}/${row.group}`;
  const known = state.groups.get(key);
  if (known && (known.attempt > row.attempt || known.seq >= row.seq)) return false;
  state.groups.set(key, row);
  return true;
}

/**
 * Put a row in its place, or in that of an older one with the same key.
 * @param {Row[]} rows
 * @param {Row} row
 * @param {(row: Row) => number} keyOf
 */
function insert(rows, row, keyOf) {
  const key = keyOf(row);
  let at = rows.length;
  while (at > 0 && keyOf(rows[at - 1]) >= key) at -= 1;
  if (at < rows.length && keyOf(rows[at]) === key) {
    if (rows[at].seq >= row.seq) return false;
    rows[at] = row;
    return true;
  }
  rows.splice(at, 0, row);
  return true;
}

/**
 * Free the rollouts of old steps, keeping the newest few.
 * @param {State} state
 */
export function trim(state) {
  const steps = Array.from(state.steps.keys()).sort((a, b) => b - a);
  for (const step of steps.slice(STEPS_KEPT)) {
    forget(state, step, /** @type {Set<string>} */ (state.steps.get(step)));
    state.steps.delete(step);
    state.whole.delete(step);
    state.from = Math.max(state.from, step);
  }
}

/**
 * The step that is being worked on: the newest one of the run's present attempt that has rollouts.
 * @param {State} state
 * @returns {number | null}
 */
export function currentStep(state) {
  let newest = null;
  let ofAttempt = -1;
  for (const [step, ids] of state.steps) {
    const first = firstOf(state, ids);
    if (!first) continue;
    if (first.attempt > ofAttempt || (first.attempt === ofAttempt && step > (newest ?? -1))) {
      newest = step;
      ofAttempt = first.attempt;
    }
  }
  return newest;
}

/**
 * A step's rollouts by group and index.
 * @param {State} state
 * @param {number | null} step
 * @returns {Row[]}
 */
export function rolloutsOf(state, step) {
  const ids = step === null ? undefined : state.steps.get(step);
  const rows = Array.from(ids || [], (id) => /** @type {Row} */ (state.rollouts.get(id)));
  return rows.sort((a, b) => a.group - b.group || a.index - b.index);
}
