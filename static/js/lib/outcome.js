// @ts-check
/** The outcome of a rollout, in the words of every page. */
import { t } from "./dom.js";
import { plain } from "./format.js";

/** @typedef {Record<string, any>} Row */

/**
 * The outcome, and next to it whether the rollout was cut off.
 * @param {Row} row
 */
export function outcomeWords(row) {
  const word = t(`outcome.${row.outcome}`);
  return row.status === "truncated" ? `${word} · ${t("truncated")}` : word;
}

/**
 * Why it came to nothing, if a failure outside the policy is why; else its outcome.
 * @param {Row} row
 */
export function endWords(row) {
  return row.failure ? plain(row.failure.title) : outcomeWords(row);
}
