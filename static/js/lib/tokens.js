// @ts-check
/** Tokens of a rollout: what each spells, where the parts of the conversation begin, and the step of its colour. */

/** @typedef {Record<string, any>} Columns as the API gives them */
/** @typedef {"prompt" | "model" | "environment"} Who */
/** @typedef {{who: Who, from: number, to: number}} Part places among all tokens, the prompt's first */
/** @typedef {"advantage" | "logprob" | "entropy" | "ratio" | "mask"} By */

const SURPRISE = [0.05, 0.2, 0.7, 1.6, 3, 5]; // nats; 0.05 is a probability of 95%, 5 one of 0.7%
const ENTROPY = [0.05, 0.2, 0.6, 1.2, 2, 3.5];
const RATIO = [1.02, 1.1, 1.3, 2]; // and their inverses

/**
 * Runs of tokens with the same writer.
 * @param {Columns} columns
 * @returns {Part[]}
 */
export function partsOf(columns) {
  /** @type {Part[]} */
  const parts = columns.prompt.length ? [{ who: "prompt", from: 0, to: columns.prompt.length }] : [];
  columns.sampled.forEach((/** @type {number} */ own, /** @type {number} */ at) => {
    const who = own ? "model" : "environment";
    const place = columns.prompt.length + at;
    const last = parts[parts.length - 1];
    if (last?.who === who) last.to = place + 1;
    else parts.push({ who, from: place, to: place + 1 });
  });
  return parts;
}

/**
 * The text of a token. A piece of a character shows its bytes.
 * @param {Columns} columns
 * @param {number} place
 */
export function spellingOf(columns, place) {
  const id = idOf(columns, place);
  const [text, whole] = columns.spelling[id] ?? [`#${id}`, true];
  return whole ? text : `‹${text}›`;
}

/**
 * @param {Columns} columns
 * @param {number} place
 * @returns {number}
 */
export function idOf(columns, place) {
  return place < columns.prompt.length ? columns.prompt[place] : columns.ids[place - columns.prompt.length];
}

/**
 * A value of a token, or null where it has none.
 * @param {Columns} columns
 * @param {number} place
 * @param {By} by
 * @returns {number | null}
 */
export function valueOf(columns, place, by) {
  const at = place - columns.prompt.length;
  if (at < 0 || !columns.sampled[at]) return null;
  if (by === "mask") return columns.learned[at];
  if (by === "advantage" && !columns.learned[at]) return null;
  const column = columns[by];
  return Array.isArray(column) ? (column[at] ?? null) : (column ?? null);
}

/**
 * The step of a value's colour: 0 to 6 where more is more, -4 to 4 where it leans to one side; null without a value.
 * @param {number | null} value
 * @param {By} by
 * @param {number} most the largest advantage of the rollout, without its sign
 */
export function shadeOf(value, by, most) {
  if (value === null) return null;
  if (by === "logprob") return over(-value, SURPRISE);
  if (by === "entropy") return over(value, ENTROPY);
  if (by === "mask") return value ? 3 : 0;
  if (by === "ratio") return value >= 1 ? over(value, RATIO) : -over(1 / value, RATIO) || 0;
  return most ? Math.round((4 * value) / most) || 0 : 0;
}

/**
 * @param {number} value
 * @param {number[]} limits
 */
function over(value, limits) {
  return limits.filter((limit) => value >= limit).length;
}

/** @param {Columns} columns */
export function mostOf(columns) {
  const values = Array.isArray(columns.advantage) ? columns.advantage : [columns.advantage ?? 0];
  return values.reduce((/** @type {number} */ most, /** @type {number} */ value) => Math.max(most, Math.abs(value)), 0);
}
