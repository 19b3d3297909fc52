// @ts-check
/** The outcome of a rollout, in the words of every page. */
import { failureWords } from "./failure.js";
import { t } from "./dom.js";

/** @typedef {Record<string, any>} Row */

/** As pages list them. */
export const OUTCOMES = /** @type {const} */ (["in_flight", "solved", "partly", "failed", "no_verdict", "excluded"]);

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
  return (row.error && failureWords(row.error).title) || outcomeWords(row);
}
