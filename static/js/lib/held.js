// @ts-check
/** Why a run's step waits, with a countdown: `held_text` of `webapp/runs/reports.py` says the same once. */
import { duration } from "./format.js";

/** @typedef {Record<string, any>} Row */
/** @typedef {import("./format.js").Translate} Translate */

/**
 * The reason why the step waits, the time of the next try and of the pause.
 * @param {Row | null | undefined} held
 * @param {string} what it waits for, in the server's words
 * @param {number} now milliseconds, by the server's clock
 * @param {Translate} t
 * @returns {string} empty when nothing is waited for
 */
export function heldText(held, what, now, t) {
  if (!held) return "";
  const next = secondsTo(held.next_try_at, now);
  const left = duration(secondsTo(held.until, now), t);
  return t(next > 0 ? "held" : "held_now", { step: held.step, what, next: duration(next, t), left });
}

/**
 * @param {string} iso
 * @param {number} now
 */
const secondsTo = (iso, now) => Math.max(0, Math.round((Date.parse(iso) - now) / 1000));
