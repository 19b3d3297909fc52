// @ts-check
/** The rollouts of the newest step: which dots there are, what each is, which are slow. `flight_grid.js` draws them. */
import { t } from "./dom.js";
import { plain, score } from "./format.js";
import { endWords } from "./outcome.js";
import { modelTurns } from "./rollouts.js";

/** @typedef {Record<string, any>} Row */
/** @typedef {{group: number, index: number, row: Row | null}} Cell */

/**
 * Every rollout that the step will have, by group and index; those that have not begun have no row.
 * @param {Row[]} rollouts of the step, by group and index
 * @param {number | null} perStep
 * @param {number | null} groupSize
 * @returns {Cell[][]}
 */
export function gridOf(rollouts, perStep, groupSize) {
  /** @type {Map<number, Map<number, Row>>} */
  const known = new Map();
  const size = groupSize ?? 0;
  const wanted = size ? Math.ceil((perStep ?? 0) / size) : 0;
  for (let number = 0; number < wanted; number += 1) known.set(number, new Map());
  for (const row of rollouts) {
    const group = known.get(row.group) ?? new Map();
    known.set(row.group, group.set(row.index, row));
  }
  return Array.from(known.entries())
    .sort((a, b) => a[0] - b[0])
    .map(([group, rows]) => {
      const count = Math.max(size, ...Array.from(rows.keys(), (index) => index + 1));
      return Array.from({ length: count }, (_, index) => ({ group, index, row: rows.get(index) ?? null }));
    });
}

/**
 * The rollouts that have been played for longest.
 * @param {Row[]} rollouts by group and index, which decide between those that began together
 * @param {number} most
 * @returns {Row[]}
 */
export function slowest(rollouts, most) {
  const flying = rollouts.filter((row) => row.status === "running");
  const began = (/** @type {Row} */ row) => Date.parse(row.started_at);
  return flying.sort((a, b) => began(a) - began(b)).slice(0, most);
}

/**
 * The state in which a dot is drawn. Once all are played, those that have not ended are being scored.
 * @param {Row | null} row
 * @param {string} phase of the run
 */
export function stateOf(row, phase) {
  if (!row) return "waiting";
  return row.status === "running" && phase === "scoring" ? "scoring" : row.status;
}

/** @param {Row} row */
export const nameOf = (row) => `${row.group}.${row.policy ? plain(row.policy) : row.index}`;

/** @param {Row[]} turns */
const last = (turns) => turns.at(-1)?.messages?.[0];

/**
 * The turn that is being played: an answer is waited for within the turn that asked.
 * @param {Row} row
 * @param {Row[]} turns as far as they are known
 */
export function turnOf(row, turns) {
  const count = turns.length ? modelTurns(turns) : row.turns;
  return last(turns)?.role === "assistant" ? count : count + 1;
}

/**
 * The part that a rollout in flight waits for since its last turn.
 * @param {Row[]} turns
 * @param {string} phase
 */
export function waitsFor(turns, phase) {
  if (phase === "scoring") return t("flight.scoring");
  const message = last(turns);
  if (!message) return t("flight.begins");
  if (message.role !== "assistant") return t("flight.writes");
  const call = message.tool_calls?.at(-1);
  return call?.name ? t("flight.tool", { name: plain(String(call.name)) }) : t("flight.answer");
}

/**
 * A dot in words: its label, its tooltip, and the line below the grid.
 * @param {Cell} cell
 * @param {Row[]} turns
 * @param {string} phase
 */
export function cellWords(cell, turns, phase) {
  const { row } = cell;
  if (!row) return `${cell.group}.${cell.index} · ${t("flight.waiting")}`;
  if (row.status === "running")
    return [nameOf(row), t("turn", { n: turnOf(row, turns) }), waitsFor(turns, phase)].join(" · ");
  const words = [nameOf(row), endWords(row), t(row.turns === 1 ? "one_turn" : "turns", { n: row.turns })];
  if (row.reward !== null) words.push(`${t("reward")} ${score(row.reward)}`);
  return words.join(" · ");
}

/**
 * The mark inside a dot.
 * @param {Row | null} row
 * @param {Row[]} turns
 * @param {string} state
 * @param {Record<string, string>} marks of outcomes, where a dot is large enough to show one: the colour is the reward's
 */
export function markOf(row, turns, state, marks) {
  if (!row || state === "scoring") return "";
  if (state === "running") return String(turnOf(row, turns));
  return marks[row.outcome] ?? "";
}

/**
 * Which step it is, and whether all of it has ended.
 * @param {number | null} step
 * @param {number} ended
 * @param {number} all
 */
export function stepWords(step, ended, all) {
  if (step === null) return "";
  return t(all && ended === all ? "flight.step_done" : "step_number", { n: step });
}

/**
 * Who ordered the end of which rollouts, as far as the page knows events.
 * @param {Row[]} events
 * @returns {Map<string, string>}
 */
export function ordersOf(events) {
  const orders = events.filter((event) => event.kind === "rollout_order");
  return new Map(orders.map((event) => [event.payload.rollout, event.payload.by]));
}

/**
 * Where the run page shows a rollout.
 * @param {Row} row
 */
export const addressOf = (row) => `?tab=rollouts&step=${row.step}&rollout=${row.id}`;

/**
 * The size of dots.
 * @param {number} count of them
 * @param {Record<string, number>} sizes each with the count above which it is used, the smallest first
 */
export const sizeOf = (count, sizes) => Object.keys(sizes).find((size) => count > sizes[size]) ?? "large";
