// @ts-check
/** The address of a list of rollouts, and what is said of a part of a reward. Pure. */
import { notesOf } from "./lab-text.js";

/** @typedef {Record<string, any>} Row */

/**
 * The address with the rollout that is being read.
 * @param {string} search
 * @param {string} id
 * @returns {string}
 */
export function withRollout(search, id) {
  const query = new URLSearchParams(search);
  query.set("rollout", id);
  return `?${query}`;
}

/**
 * Which rollout is shown after the list was drawn again: one that a person chose stays, also where the list lacks it.
 * @param {{shown: string, chosen: boolean, listed: string[], first: string}} now `first` is the server's choice
 * @returns {string}
 */
export function shownAfter({ shown, chosen, listed, first }) {
  return shown && (chosen || listed.includes(shown)) ? shown : first;
}

/**
 * Why a part of a reward earned nothing; empty where it earned something, or nothing is known.
 * @param {Row} part
 * @returns {string}
 */
export function reasonOf(part) {
  if (part.value === null || part.value > 0) return "";
  return (
    part.reason ||
    notesOf(part.spans)
      .map(({ note }) => note)
      .filter(Boolean)
      .join(" · ")
  );
}
